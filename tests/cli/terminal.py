"""A real terminal around `handrail`: what a person would see, and what they type."""

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from time import monotonic

import pexpect
import pexpect.fdpexpect
import pyte

ROOT = Path(__file__).resolve().parents[2]
MAIN = "from handrail.cli import main; main()"
ENV = {"PATH": os.defpath, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "LANG": "C.UTF-8"}
ENV["PYTHONSAFEPATH"] = "1"  # as the installed command, which imports nothing from the current directory
WIDTHS = (40, 80, 200)
ROWS = 60
PATIENCE = 90.0
"""Seconds for what must come, on a busy machine."""


@cache
def _loaded() -> str:
    """The address of a process that has loaded `handrail`, and forks for each run (loaded.py)."""
    place = tempfile.mkdtemp(prefix="handrail-loaded-")
    command = [sys.executable, str(Path(__file__).with_name("loaded.py")), f"{place}/address"]
    serving = subprocess.Popen(command, env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert serving.stdin is not None
    assert serving.stdout is not None
    assert serving.stdout.readline() == b"ready\n"
    atexit.register(shutil.rmtree, place)
    atexit.register(serving.wait)
    atexit.register(serving.stdin.close)  # done first: it ends the process
    return f"{place}/address"


class Run:
    """One run of `handrail`, by a fork of the process that has loaded it."""

    def __init__(self, words: Sequence[str], cwd: Path, env: Mapping[str, str] | None, streams: Sequence[int]) -> None:
        request = {"words": words, "cwd": str(cwd), "env": {**ENV, **(env or {})}}
        self._code: int | None = None
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(_loaded())
            socket.send_fds(asking, [json.dumps(request).encode()], streams)
            self._answers = asking.makefile()
        self.pid = int(self._answers.readline())

    def wait(self) -> int:
        """The exit code; minus the signal that ended it."""
        if self._code is None:
            with self._answers:
                self._code = int(self._answers.readline())
        return self._code

    def kill(self) -> None:
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()


class _Forked(pexpect.fdpexpect.fdspawn):
    """Such a run in a terminal, as `pexpect.spawn` has it."""

    signalstatus = None

    def __init__(self, words: Sequence[str], cwd: Path, env: Mapping[str, str] | None, columns: int) -> None:
        ours, theirs = os.openpty()
        super().__init__(ours)
        self.setwinsize(ROWS, columns)
        self._run = Run(words, cwd, env, [theirs] * 3)
        os.close(theirs)
        self.pid = self._run.pid

    def setwinsize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self.child_fd, (rows, columns))

    def wait(self) -> None:
        self.exitstatus = self._run.wait()

    def close(self, force: bool = True) -> None:
        super().close()
        self._run.kill()


class Terminal:
    """A process in a terminal of its own."""

    def __init__(self, child: "pexpect.spawn[bytes] | _Forked", columns: int) -> None:
        self.pid = child.pid
        self.raw = b""
        self.columns = columns
        self._child = child
        self._screen = pyte.HistoryScreen(columns, ROWS, history=2_000)
        self._feed = pyte.ByteStream(self._screen)
        self._lines: list[str] | None = None

    @property
    def seen(self) -> str:
        """Everything it wrote, with plain line feeds."""
        return self.raw.decode("utf-8", "replace").replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        """The lines on the screen and those that were scrolled away, as a person reads them."""
        if self._lines is None:
            rows = self._screen.buffer
            drawn = [*self._screen.history.top, *(rows.get(number, {}) for number in range(ROWS))]
            self._lines = ["".join(row[x].data for x in range(max(row, default=-1) + 1)).rstrip() for row in drawn]
        return self._lines

    @property
    def shown(self) -> str:
        return "\n".join(self.lines).rstrip()

    def wait_for(self, text: str, seconds: float = PATIENCE) -> str:
        """Everything seen so far, once `text` is in it."""
        return self.wait_until(lambda: text in self.seen, repr(text), seconds)

    def wait_shown(self, text: str, seconds: float = PATIENCE) -> str:
        """The same of what is on the screen."""
        return self.wait_until(lambda: text in self.shown, repr(text), seconds)

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = PATIENCE) -> str:
        end = monotonic() + seconds
        while not holds():
            if not self._read(end):
                raise AssertionError(f"{what} did not come; what came:\n{self.seen[-3000:]}")
        return self.seen

    def type(self, text: str) -> None:
        self._child.send(text.encode())

    def resize(self, columns: int) -> None:
        self._child.setwinsize(ROWS, columns)
        self._screen.resize(columns=columns)
        self._lines = None

    def press_control_c(self) -> None:
        self.type("\x03")

    def press_control_d(self) -> None:
        self.type("\x04")

    def ended(self, seconds: float) -> bool:
        """Whether it ends within this time."""
        end = monotonic() + seconds
        while self._read(end):
            pass
        return monotonic() < end

    def end(self, seconds: float = PATIENCE) -> int:
        """The exit code, once it has ended and all was read; minus the signal that ended it."""
        end = monotonic() + seconds
        while self._read(end):
            pass
        if monotonic() >= end:
            raise AssertionError(f"it does not end; what came:\n{self.seen[-3000:]}")
        self._child.wait()
        code = self._child.exitstatus
        return code if code is not None else -(self._child.signalstatus or 0)

    def _read(self, end: float) -> bool:
        try:
            data = self._child.read_nonblocking(65536, max(0.01, end - monotonic()))
        except (pexpect.EOF, pexpect.TIMEOUT):
            return False
        self.raw += data
        self._feed.feed(data)
        self._lines = None  # drawn again when somebody looks: that is most of what a terminal costs
        return True


def begun(screen: Terminal) -> None:
    """Wait for the empty prompt of a chat."""
    screen.wait_until(lambda: screen.shown.splitlines()[-1:] == [">"], "the prompt")


def say(screen: Terminal, text: str) -> None:
    """Type a line into a chat as a person does, and send it."""
    screen.type(text)
    screen.wait_shown(text.strip()[:30])
    screen.type("\r")


@contextlib.contextmanager
def terminal(
    *words: str, cwd: Path, columns: int = 80, env: Mapping[str, str] | None = None, fresh: bool = False
) -> Iterator[Terminal]:
    """Run `handrail` with these words in a terminal of so many columns; `fresh`, in a new interpreter."""
    child: pexpect.spawn[bytes] | _Forked
    if fresh or _for_the_interpreter(env):
        command = [sys.executable, "-c", MAIN, *words]
        child = pexpect.spawn(
            command[0], command[1:], cwd=str(cwd), env={**ENV, **(env or {})}, dimensions=(ROWS, columns)
        )
        child.delaybeforesend = None
    else:
        child = _Forked(words, cwd, env, columns)
    try:
        yield Terminal(child, columns)
    finally:
        child.close(force=True)


def _for_the_interpreter(env: Mapping[str, str] | None) -> bool:
    """Whether one of these variables is read when an interpreter starts."""
    return any(name.startswith(("LC_", "LANG", "PYTHON")) for name in env or ())


def plain(
    *words: str, cwd: Path, given: str = "", env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `handrail` without a terminal."""
    if _for_the_interpreter(env):
        command = [sys.executable, "-c", MAIN, *words]
        return subprocess.run(
            command, cwd=cwd, env={**ENV, **(env or {})}, input=given, capture_output=True, text=True, check=False
        )
    with tempfile.TemporaryFile() as typed, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        typed.write(given.encode())
        typed.seek(0)
        run = Run(words, cwd, env, [typed.fileno(), out.fileno(), err.fileno()])
        try:
            code = run.wait()
        finally:
            run.kill()
        printed, told = (os.pread(file.fileno(), 1 << 26, 0).decode() for file in (out, err))
    return subprocess.CompletedProcess(words, code, printed, told)
