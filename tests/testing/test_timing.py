"""A verdict does not depend on how fast the machine is: what comes late, or at the same time, is waited for."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail.contract.driver import Command, Driver, Process, SignalName
from handrail.drivers.posix import open_posix
from handrail.testing.conformance import Opener, conform
from tests.broken import BROKEN, Altered, AlteredProcess
from tests.testing.test_broken import base

pytestmark = pytest.mark.anyio

LATE = 0.7
"""Seconds; longer than a command has between TERM and KILL."""


class LateCommands(Altered):
    """A command that takes input begins some time after it was started."""

    async def start(self, command: Command) -> Process:
        if command.argv is not None and command.input:
            env = {**command.env, "WORDS": " ".join(command.argv)}  # where others do not see them
            command = replace(command, argv=("sh", "-c", f"sleep {LATE}; exec $WORDS"), env=env)
        return await super().start(command)


class LateTerm(AlteredProcess):
    async def signal(self, name: SignalName) -> None:
        if name == "TERM":
            await anyio.sleep(LATE)
        await self.process.signal(name)


class LateSignals(Altered):
    process = LateTerm


class LateDeaths(Altered):
    """A tree is seen to be dead two seconds after it was, and a command that does nothing takes a second."""

    seconds = 2.0
    asked: float | None = None

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        if path.endswith("/gone"):
            self.asked = self.asked or anyio.current_time()
            if anyio.current_time() < self.asked + self.seconds:
                raise FileNotFoundError(path)
        return await super().read(path, start=start, length=length)

    async def start(self, command: Command) -> Process:
        if command.line == "true":
            await anyio.sleep(1)
        return await super().start(command)


class NoDeaths(LateDeaths):
    seconds = 60.0


class InPlace(Altered):
    """Writes a file in its place, in a thread; who writes at the same time has opened it too by then."""

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        with Path(path).open("wb") as file:
            await anyio.lowlevel.checkpoint()
            await anyio.to_thread.run_sync(file.write, data)


def over(kind: Callable[..., Driver], opener: Opener) -> Opener:
    async def opened(**options: Any) -> Driver:
        return kind(await opener(**options), options)

    return opened


async def holds(opener: Opener, check: str, patience: float = 3) -> bool:
    """Whether it holds; it must have been tried."""
    verdict = await conform(opener, only=[check], workers=1, patience=patience)
    (found,) = (it for guarantee in verdict.guarantees.values() for it in guarantee.checks)
    assert found.tried, found.not_tried
    return found.kept


async def test_a_process_that_begins_late_is_seen_all_the_same() -> None:
    check = "one command does not see the processes of another"
    (shared,) = (it for it in BROKEN if it.name == "has one table of processes")
    assert not await holds(over(LateCommands, shared.over(base("jail"))), check)
    assert await holds(over(LateCommands, base("jail")), check), "the control"


async def test_a_tree_that_hears_term_late_is_killed_and_that_is_no_fault() -> None:
    assert await holds(over(LateSignals, base("jail")), "too much output ends a tree")


async def test_a_tree_that_dies_late_where_everything_is_late_is_no_fault() -> None:
    check = "KILL ends a child"
    assert await holds(over(LateDeaths, base("jail")), check, patience=1)
    assert not await holds(over(NoDeaths, base("jail")), check, patience=1), "the control"


async def test_writes_at_the_same_time_are_seen_to_mix() -> None:
    check = "of two writers one wins whole"
    assert not await holds(over(InPlace, open_posix), check)
    assert await holds(open_posix, check), "the control"
