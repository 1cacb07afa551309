"""A real terminal around `handrail`: what a person would see, and what they type."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import monotonic

import pexpect
import pyte

ROOT = Path(__file__).resolve().parents[2]
MAIN = "from handrail.cli import main; main()"
ENV = {"PATH": os.defpath, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "LANG": "C.UTF-8"}
ENV["PYTHONSAFEPATH"] = "1"  # as the installed command, which imports nothing from the current directory
WIDTHS = (40, 80, 200)


class Terminal:
    """A process in a terminal of its own."""

    def __init__(self, child: "pexpect.spawn[bytes]", columns: int) -> None:
        self.pid = child.pid
        self.raw = b""
        self.columns = columns
        self._child = child
        self._screen = pyte.HistoryScreen(columns, 60, history=2_000)
        self._feed = pyte.ByteStream(self._screen)

    @property
    def seen(self) -> str:
        """Everything it wrote, with plain line feeds."""
        return self.raw.decode("utf-8", "replace").replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        """The lines on the screen and those that were scrolled away, as a person reads them."""
        width = self._screen.columns
        gone = ["".join(line[x].data for x in range(width)).rstrip() for line in self._screen.history.top]
        return [*gone, *(line.rstrip() for line in self._screen.display)]

    @property
    def shown(self) -> str:
        return "\n".join(self.lines).rstrip()

    def wait_for(self, text: str, seconds: float = 90) -> str:
        """Everything seen so far, once `text` is in it."""
        return self.wait_until(lambda: text in self.seen, repr(text), seconds)

    def wait_shown(self, text: str, seconds: float = 90) -> str:
        """The same of what is on the screen."""
        return self.wait_until(lambda: text in self.shown, repr(text), seconds)

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = 90) -> str:
        end = monotonic() + seconds
        while not holds():
            if not self._read(end):
                raise AssertionError(f"{what} did not come; what came:\n{self.seen[-3000:]}")
        return self.seen

    def type(self, text: str) -> None:
        self._child.send(text.encode())

    def resize(self, columns: int) -> None:
        self._child.setwinsize(60, columns)
        self._screen.resize(columns=columns)

    def press_control_c(self) -> None:
        self.type("\x03")

    def press_control_d(self) -> None:
        self.type("\x04")

    def end(self, seconds: float = 90) -> int:
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
        return True


@contextlib.contextmanager
def terminal(*words: str, cwd: Path, columns: int = 80, env: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    """Run `handrail` with these words in a terminal of so many columns."""
    command = [sys.executable, "-c", MAIN, *words]
    child = pexpect.spawn(
        command[0], command[1:], cwd=str(cwd), env={**ENV, **(env or {})}, dimensions=(60, columns), timeout=90
    )
    child.delaybeforesend = None
    try:
        yield Terminal(child, columns)
    finally:
        child.close(force=True)


def plain(
    *words: str, cwd: Path, given: str = "", env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `handrail` without a terminal."""
    command = [sys.executable, "-c", MAIN, *words]
    return subprocess.run(
        command,
        cwd=cwd,
        env={**ENV, **(env or {})},
        input=given,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
