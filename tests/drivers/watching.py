"""Run a command to its end, and see from outside which processes live."""

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from handrail.contract.driver import Command
from handrail.drivers._guarded import GuardedDriver, GuardedProcess
from handrail.drivers.posix import PosixDriver

PATIENCE: Final = 90.0
"""Seconds that nothing here should ever need."""
MARK: Final = "HANDRAIL_TEST_MARK"


def new_mark() -> str:
    return uuid4().hex


def alive(mark: str) -> list[int]:
    """The living processes that carry this mark in their environment."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


class Relative(NamedTuple):
    """A process, so told that another one with its number is not taken for it."""

    pid: int
    born: int
    name: str


def descendants(pid: int) -> list[Relative]:
    """All processes below this one, in whatever namespaces they are."""
    below: dict[int, list[Relative]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (found := _look(int(entry.name))):
            below.setdefault(found[2], []).append(found[0])
    family = list(below.get(pid, ()))
    for each in family:
        family += below.get(each.pid, ())
    return family


def lives(it: Relative) -> bool:
    """Whether it is still there, and more than an entry that nobody has collected yet."""
    found = _look(it.pid)
    return found is not None and found[0].born == it.born and found[1] not in "ZX"


def _look(pid: int) -> tuple[Relative, str, int] | None:
    """A process, its state, and its parent's number; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    start, _, rest = text.rpartition(")")
    fields = rest.split()
    return Relative(pid, int(fields[19]), start.partition("(")[2]), fields[0], int(fields[1])


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def eventually(condition: Callable[[], bool], patience: float = PATIENCE) -> bool:
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def descriptors(*, collected: bool = False) -> int:
    """How many this process has open; `collected`, after those that earlier tests left to the collector are closed."""
    if collected:
        gc.collect()
    return len(os.listdir("/proc/self/fd"))


def guard_pid(driver: GuardedDriver | PosixDriver) -> int:
    """The guard itself, below bubblewrap where there is one; without a guard, what starts the commands."""
    if isinstance(driver, PosixDriver):
        return driver.starter.pid
    pid = driver.guard.pid
    if driver.name != "jail":
        return pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


class Ran:
    """What a command did."""

    def __init__(self, code: int, stdout: bytes, stderr: bytes, notes: tuple[str, ...]) -> None:
        self.code, self.stdout, self.stderr, self.notes = code, stdout, stderr, notes

    def __repr__(self) -> str:
        return f"Ran({self.code}, {self.stdout!r}, {self.stderr!r}, {self.notes!r})"


async def collect(process: GuardedProcess) -> Ran:
    parts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    async for chunk in process.output():
        parts[chunk.stream].append(chunk.data)
    return Ran(await process.wait(), b"".join(parts["stdout"]), b"".join(parts["stderr"]), process.notes)


async def run(driver: GuardedDriver, line: str, **options: object) -> Ran:
    return await collect(await driver.start(Command(line=line, **options)))  # type: ignore[arg-type]


async def until_says(process: GuardedProcess, word: bytes) -> bytes:
    """Read until `word` was printed: the control that a hostile command really started."""
    said = b""
    async for chunk in process.output():
        said += chunk.data
        if word in said:
            return said
    raise AssertionError(f"it ended without {word!r}: {said!r}")
