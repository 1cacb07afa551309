"""A driver that passes everything on to another one, so that one behaviour can be changed; a list of such changes."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from handrail.contract.driver import Chunk, Command, Driver, Feature, FileStat, Process, SignalName
from handrail.sandbox.sandbox import WORKSPACE
from handrail.testing.conformance.fixture import Opener

LISTED: Final = Path(__file__).with_name("must_fail.txt")


class AlteredProcess:
    """A Process that passes everything on to another one."""

    def __init__(self, process: Process, command: Command) -> None:
        self.process = process
        self.command = command
        self.id = process.id
        self.pid = process.pid

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(getattr(self.process, "notes", ()))

    async def output(self) -> AsyncIterator[Chunk]:
        async for chunk in self.process.output():
            yield chunk

    async def send(self, data: bytes | None) -> None:
        await self.process.send(data)

    async def wait(self) -> int:
        return await self.process.wait()

    async def signal(self, name: SignalName) -> None:
        await self.process.signal(name)


Kind = Callable[[Driver, dict[str, Any]], Driver]
"""A function that makes a driver from another one and its options."""


class Altered:
    """A Driver that passes everything on to another one. `process` is the class of its processes."""

    process: type[AlteredProcess] = AlteredProcess

    def __init__(self, driver: Driver, options: dict[str, Any]) -> None:
        self.driver = driver
        self.options = options
        self.features: frozenset[Feature] = driver.features
        self.name = str(getattr(driver, "name", type(driver).__name__))
        self.workspace = str(getattr(driver, "workspace", WORKSPACE))

    async def type_of(self, path: str) -> str:
        """Return the type of the inner driver's file at a path; empty if unknown."""
        try:
            return (await self.driver.stat(path)).type
        except OSError:
            return ""

    async def start(self, command: Command) -> Process:
        return self.process(await self.driver.start(command), command)

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        return await self.driver.read(path, start=start, length=length)

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await self.driver.write(path, data, mode=mode)

    async def stat(self, path: str) -> FileStat:
        return await self.driver.stat(path)

    async def list(self, path: str) -> list[FileStat]:
        return await self.driver.list(path)

    async def make_dir(self, path: str) -> None:
        await self.driver.make_dir(path)

    async def remove(self, path: str) -> None:
        await self.driver.remove(path)

    async def close(self) -> None:
        await self.driver.close()


@dataclass(frozen=True, slots=True)
class Broken:
    """One changed behaviour."""

    name: str
    """A sentence about the driver's fault."""
    feature: Feature
    """The promise that the fault breaks first; other promises may depend on that promise."""
    over: Callable[[Opener], Opener]
    """A function that opens a good driver and changes it."""
    base: str = "jail"
    """The name of the driver that is changed."""

    @property
    def must_fail(self) -> frozenset[str]:
        """The names of the checks that the broken driver fails; all others pass."""
        return _listed().get(self.name, frozenset())


@lru_cache(maxsize=1)
def _listed() -> dict[str, frozenset[str]]:
    """Read the failing checks by the name of the broken driver; checks stand on indented lines below the name."""
    found: dict[str, set[str]] = {}
    name = ""
    for line in LISTED.read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            found[name].add(line.strip())
        elif line:
            name = line
            found[name] = set()
    return {name: frozenset(checks) for name, checks in found.items()}


class Catalogue(list[Broken]):
    """The broken drivers of one promise."""

    def __init__(self, feature: Feature, base: str = "jail") -> None:
        super().__init__()
        self.feature, self.base = feature, base

    def add(self, name: str, kind: Kind) -> None:
        """Add a broken driver that is wrapped after opening."""
        self.append(Broken(name, self.feature, lambda opener: _wrapping(opener, kind), self.base))

    def opening(self, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Add a broken driver that is opened with other options."""
        self.append(Broken(name, self.feature, lambda opener: _changing(opener, change), self.base))

    def driver(self, name: str) -> Callable[[type[Altered]], type[Altered]]:
        """Decorate a class: add it as `add` does."""

        def add(kind: type[Altered]) -> type[Altered]:
            self.add(name, kind)
            return kind

        return add

    def running(self, name: str) -> Callable[[type[AlteredProcess]], type[AlteredProcess]]:
        """Add a broken driver with changed commands."""

        def add(process: type[AlteredProcess]) -> type[AlteredProcess]:
            self.add(name, type(process.__name__, (Altered,), {"process": process}))
            return process

        return add


def _wrapping(opener: Opener, kind: Kind) -> Opener:
    async def opened(**options: Any) -> Driver:
        return kind(await opener(**options), options)

    return opened


def _changing(opener: Opener, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Opener:
    def opened(**options: Any) -> Awaitable[Driver]:
        return opener(**change(dict(options)))

    return opened
