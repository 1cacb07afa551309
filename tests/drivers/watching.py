"""Run a command to its end, and see from outside which processes live."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

from handrail.contract.driver import Command
from handrail.drivers.guarded import GuardedDriver, GuardedProcess

PATIENCE: Final = 20.0
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


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def guard_pid(driver: GuardedDriver) -> int:
    """The guard itself, below bubblewrap where there is one."""
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
