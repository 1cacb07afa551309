"""The kit leaves no process behind, also where the driver under test ends none."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.drivers.watching import MARK, PATIENCE, alive, new_mark

CARELESS = (
    f"""
import sys
sys.path.append({str(Path(__file__).parents[2])!r})  # the broken drivers are in tests/, which is not installed
"""
    """
import subprocess
import anyio
from handrail import Chunk
from handrail.drivers.posix import open_posix
from tests.broken.altered import Altered

class Started:
    id, pid = "1", None
    def __init__(self, popen):
        self.popen = popen
    async def output(self):
        yield Chunk("stdout", b"")
        await self.wait()
    async def send(self, data):
        pass
    async def wait(self):
        while self.popen.poll() is None:
            await anyio.sleep(0.01)
        return self.popen.returncode
    async def signal(self, name):
        pass

class Careless(Altered):
    '''Ends nothing: its commands and what they start live on, each in a session of its own.'''
    async def start(self, command):
        words = list(command.argv or ("bash", "-c", command.line))
        env = {"PATH": "/usr/bin:/bin", "MARK_NAME": "MARK_VALUE"}
        devnull = subprocess.DEVNULL
        return Started(subprocess.Popen(
            words, cwd=command.cwd, env=env, stdin=devnull, stdout=devnull, stderr=devnull, start_new_session=True))

async def open_careless(*, workspace: str):
    return Careless(await open_posix(workspace=workspace), {})
"""
)


@contextmanager
def conforming(directory: Path, mark: str, *only: str) -> Iterator["subprocess.Popen[str]"]:
    """`handrail conform` with a driver whose commands carry the mark."""
    (directory / "careless.py").write_text(CARELESS.replace("MARK_NAME", MARK).replace("MARK_VALUE", mark))
    words = ["-m", "handrail", "conform", "careless:open_careless", *(word for it in only for word in ("--only", it))]
    out = subprocess.PIPE
    with subprocess.Popen([sys.executable, *words], cwd=directory, stdout=out, stderr=out, text=True) as kit:
        try:
            yield kit
        finally:
            kit.kill()
            for pid in alive(mark):
                os.kill(pid, signal.SIGKILL)


def until(holds: Callable[[], object]) -> None:
    limit = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_what_a_check_started_is_killed_though_the_driver_kills_nothing(tmp_path: Path) -> None:
    mark = new_mark()
    with conforming(tmp_path, mark, "KILL ends a child in its own session") as kit:
        until(lambda: len(alive(mark)) > 1)  # the control: it ran
        said, _ = kit.communicate(timeout=PATIENCE)
        assert "0 of 1 checks" in said, "the control: the driver did not end it"
        until(lambda: alive(mark) == [])


def test_an_interrupted_kit_leaves_nothing_running(tmp_path: Path) -> None:
    mark = new_mark()
    with conforming(tmp_path, mark, "KILL ends a child in its own session", "KILL ends a child") as kit:
        until(lambda: len(alive(mark)) > 3)
        os.kill(kit.pid, signal.SIGINT)
        kit.communicate(timeout=PATIENCE)
        assert kit.returncode == 130
        until(lambda: alive(mark) == [])
