"""A real terminal around `handrail`: what a person would see, and what they type."""

import contextlib
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parents[2]
MAIN = "from handrail.cli import main; main()"
ENV = {"PATH": os.defpath, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "LANG": "C.UTF-8", "COLUMNS": "100"}


class Terminal:
    """A process in a terminal of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", master: int) -> None:
        self.pid = process.pid
        self.seen = ""
        self._process = process
        self._master = master

    def wait_for(self, text: str, seconds: float = 90) -> str:
        """Everything seen so far, once `text` is in it."""
        end = monotonic() + seconds
        while text not in self.seen:
            if not self._read(end):
                raise AssertionError(f"{text!r} did not come; what came: {self.seen[-3000:]}")
        return self.seen

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def press_control_c(self) -> None:
        self.type("\x03")

    def end(self, seconds: float = 90) -> int:
        """The exit code, once it has ended and all was read."""
        end = monotonic() + seconds
        while self._read(end):
            pass
        try:
            return self._process.wait(max(0.1, end - monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end; what came: {self.seen[-3000:]}") from None

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0, end - monotonic()))
        if not ready:
            return False
        with contextlib.suppress(OSError):  # the other side is closed
            if data := os.read(self._master, 65536):
                self.seen += data.decode("utf-8", "replace").replace("\r\n", "\n")
                return True
        return False


@contextlib.contextmanager
def terminal(*words: str, cwd: Path) -> Iterator[Terminal]:
    """Run `handrail` with these words in a terminal."""
    master, slave = pty.openpty()
    command = ["setsid", "--ctty", sys.executable, "-c", MAIN, *words]
    with subprocess.Popen(command, cwd=cwd, env=ENV, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        try:
            yield Terminal(process, master)
        finally:
            process.kill()
            os.close(master)
