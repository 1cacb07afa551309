"""Drivers that do not end a command's processes, or end others."""

from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import anyio.lowlevel

from handrail.aio import in_background
from handrail.contract.driver import Chunk, Command, Driver, Process, SignalName
from handrail.testing.conformance.fixture import Opener
from tests.broken.altered import Altered, AlteredProcess, Broken, Catalogue

TREES: Final = Catalogue("tree_kill")
GROUPS: Final = Catalogue("tree_kill", base="posix")
"""Broken drivers over the driver that kills process groups, and claims no more."""


class _Claims(Altered):
    """A driver that claims to end whole trees."""

    def __init__(self, driver: Driver, options: dict[str, Any]) -> None:
        super().__init__(driver, options)
        self.features = driver.features | {"tree_kill"}


GROUPS.add("ends a process group alone", _Claims)


@TREES.running("sends TERM for KILL")
class _Gentle(AlteredProcess):
    async def signal(self, name: SignalName) -> None:
        await self.process.signal("TERM")


@TREES.running("sends KILL for TERM")
class _Harsh(AlteredProcess):
    async def signal(self, name: SignalName) -> None:
        await self.process.signal("KILL")


@TREES.running("changes the exit code of an ended command that is signalled")
class _Recodes(AlteredProcess):
    ended: int | None = None
    late = False

    async def wait(self) -> int:
        self.ended = await self.process.wait()
        return 137 if self.late else self.ended

    async def signal(self, name: SignalName) -> None:
        self.late = self.late or self.ended is not None
        await self.process.signal(name)


@TREES.driver("signals every command")
class _All(Altered):
    def __init__(self, driver: Driver, options: dict[str, Any]) -> None:
        super().__init__(driver, options)
        self.processes: list[Process] = []

    async def start(self, command: Command) -> Process:
        process, driver = await self.driver.start(command), self
        self.processes.append(process)

        class Together(AlteredProcess):
            async def signal(self, name: SignalName) -> None:
                for each in driver.processes:
                    await each.signal(name)

        return Together(process, command)


@TREES.running("says that a command is dead half a second before it is")
class _Early(AlteredProcess):
    killed = False

    async def output(self) -> AsyncIterator[Chunk]:
        if not self.killed:
            async for chunk in self.process.output():
                yield chunk

    async def wait(self) -> int:
        return 137 if self.killed else await self.process.wait()

    async def signal(self, name: SignalName) -> None:
        if name != "KILL":
            await self.process.signal(name)
            return
        self.killed = True
        in_background(self._later())

    async def _later(self) -> None:
        await anyio.sleep(0.5)
        try:
            await self.process.signal("KILL")
        except Exception:  # noqa: BLE001 - it was closed meanwhile
            pass


@TREES.running("waits for what a command left running")
class _Held(AlteredProcess):
    """A process that waits for leftover processes, unless it was signalled: then parents may die before children."""

    signalled = False

    async def signal(self, name: SignalName) -> None:
        self.signalled = True
        await super().signal(name)

    async def output(self) -> AsyncIterator[Chunk]:
        async for chunk in self.process.output():
            yield chunk
        await self.process.wait()
        if self.notes and not self.signalled:
            await anyio.sleep(6)


@TREES.driver("goes on with a start that was cancelled")
class _GoesOn(Altered):
    async def start(self, command: Command) -> Process:
        with anyio.CancelScope(shield=True):
            process = await super().start(command)
        await anyio.lowlevel.checkpoint()
        return process


class _TwoDrivers(Altered):
    """A driver with one driver for files and one for commands; the first close closes only that of the files."""

    def __init__(self, driver: Driver, commands: Driver) -> None:
        super().__init__(driver, {})
        self.commands, self.closed = commands, False

    async def start(self, command: Command) -> Process:
        return await self.commands.start(command)

    async def close(self) -> None:
        if self.closed:
            await self.commands.close()
        self.closed = True
        await self.driver.close()


def _two(opener: Opener) -> Opener:
    async def opened(**options: Any) -> Driver:
        return _TwoDrivers(await opener(**options), await opener(**options))

    return opened


TREES.append(Broken("lets commands run on when it is closed", "tree_kill", _two))
