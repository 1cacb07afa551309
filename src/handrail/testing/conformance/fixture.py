"""The fixture of a check: a driver, opened for it or shared with others, and a directory of its own inside."""

import inspect
import os
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import Any, Final, TypeVar

import anyio

from handrail.aio import in_background
from handrail.contract.driver import Chunk, Command, Driver, Process
from handrail.contract.errors import BrokenDriver, HandrailError, Unavailable
from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.scratch import make_scratch, remove_scratch
from handrail.sandbox.report import check_driver
from handrail.sandbox.sandbox import WORKSPACE, Sandbox
from handrail.testing.conformance._leftovers import kill_leftovers

Opener = Callable[..., Awaitable[Driver]]
T = TypeVar("T")
MISSING: Final = 127
"""The exit code of a shell that does not find a program."""
CLOSE_PATIENCE: Final = 3
"""Multiple of the patience for which the kit waits for a driver to close."""
STUCK_PATIENCE: Final = 0.5
"""Seconds to wait for later drivers, once one has not closed in time, so that the kit ends."""
CANCEL_PATIENCE: Final = 1.0
"""Seconds for a cancelled task to clean up."""
LOOK: Final = 0.01
"""Seconds between the first two looks while waiting for a condition."""
LATER_LOOK: Final = 0.1
"""Greatest pause between two looks, in seconds."""


class NotTried(Exception):
    """A check cannot be made here, for a reason that says nothing about the driver; the message names it."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The output and the exit code of a command."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")


class Fixture:
    """A driver, and a directory inside that belongs to one check."""

    def __init__(self, driver: Driver, directory: str, patience: float) -> None:
        self.driver = driver
        self.directory = directory
        self.patience = patience
        """Seconds to wait for an effect that a good driver has at once."""
        self._probe: str | None = None

    @property
    def workspace(self) -> str:
        """The driver's directory inside in which commands start."""
        return workspace_of(self.driver)

    @property
    def sandbox(self) -> Sandbox:
        """A Sandbox over the driver, whose relative paths begin in the directory. Do not close it."""
        return Sandbox(self.driver).at(self.directory)

    def at(self, name: str) -> str:
        """Return the path of a name in the directory."""
        return f"{self.directory}/{name}"

    async def start(self, command: str | Sequence[str], **options: Any) -> Process:
        """Make a Command of a line or an argv, in the directory unless `cwd` is given."""
        kind = {"line": command} if isinstance(command, str) else {"argv": tuple(command)}
        return await self.driver.start(Command(**kind, **{"cwd": self.directory, **options}))

    async def run(self, command: str | Sequence[str], **options: Any) -> Ran:
        """Run a command to its end."""
        return await collect(await self.start(command, **options))

    async def needs(self, *programs: str) -> None:
        """Raise NotTried unless these programs exist inside."""
        line = "; ".join(f"command -v {shlex.quote(name)} >/dev/null || echo {shlex.quote(name)}" for name in programs)
        missing = (await self.run(line)).text.split()
        if missing:
            raise NotTried(f"there is no {', '.join(missing)} in the sandbox")

    async def exists(self, name: str) -> bool:
        """Whether the directory has an entry of this name."""
        above, _, last = self.at(name).rpartition("/")
        try:
            return any(entry.name == last for entry in await self.driver.list(above))
        except (FileNotFoundError, NotADirectoryError):
            return False

    async def until(self, name: str) -> None:
        """Wait until the directory has an entry of this name."""
        await until(partial(self.exists, name))

    async def kill(self, process: Process) -> None:
        """Kill a command whose end is of no interest, and wait until it is dead: the next check works in its place."""
        await process.signal("KILL")
        with anyio.move_on_after(self.patience), suppress(Exception):
            await collect(process)

    async def probe(self) -> str:
        """Return the path inside of a static program that makes attempts, and needs neither shell nor Python.

        Raises NotTried where there is none for this system.
        """
        if self._probe is None:
            if sys.platform != "linux" or not PROGRAM.exists():
                raise NotTried("the program that makes these attempts was not built: it needs Linux")
            self._probe = self.at("probe")
            await self.driver.write(self._probe, PROGRAM.read_bytes(), mode=0o755)
        return self._probe


def workspace_of(driver: Driver) -> str:
    return str(getattr(driver, "workspace", WORKSPACE))


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds. Looks become rarer, because each costs the driver something."""
    wait = LOOK
    while not await holds():
        await anyio.sleep(wait)
        wait = min(1.5 * wait, LATER_LOOK)


async def collect(process: Process) -> Ran:
    """Read the rest of a command's output, and its exit code."""
    parts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    async for chunk in process.output():
        parts[chunk.stream].append(chunk.data)
    return Ran(await process.wait(), b"".join(parts["stdout"]), b"".join(parts["stderr"]))


async def until_says(output: AsyncIterator[Chunk], text: bytes) -> bytes:
    """Read until a text was printed, or to the end; return everything that was read."""
    printed = b""
    async for chunk in output:
        printed += chunk.data
        if text in printed:
            break
    return printed


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Await with a limit. Raises TimeoutError afterwards; a driver that blocks in a thread is left behind."""
    given: list[T] = []
    raised: list[Exception] = []
    done = anyio.Event()

    async def run() -> None:
        try:
            given.append(await work)
        except Exception as error:  # noqa: BLE001 - raised below
            raised.append(error)
        finally:
            done.set()

    task = in_background(run())
    try:
        with anyio.fail_after(seconds):
            await done.wait()
    finally:
        task.cancel()  # by asyncio itself: what anyio shields, as a thread that is waited for, ends too
        with anyio.move_on_after(CANCEL_PATIENCE, shield=True):
            await done.wait()
    if not given:
        raise raised[0] if raised else RuntimeError("the driver cancelled the task that called it")
    return given[0]


async def outcome(work: Awaitable[object]) -> str:
    """Return the name of the exception that an awaitable raises, or `no error`."""
    try:
        await work
    except (OSError, ValueError, Unavailable) as error:
        return type(error).__name__
    return "no error"


class Open:
    """Opens the driver under test. Checks of one worker share the driver that was opened without options."""

    def __init__(self, opener: Opener, patience: float) -> None:
        self.patience = patience
        self._close_patience = CLOSE_PATIENCE * patience
        self._opener = opener
        self._shared: Driver | None = None
        self._own: list[Driver] = []
        self._directories: list[str] = []
        self._names: list[str] = []
        """Names of the directories inside that checks got; leftover processes work in them."""

    async def __call__(self, *, own: bool = False, **options: Any) -> Fixture:
        """Make a fixture with a new directory. With options, or with `own=True`, its driver is opened for it alone.

        The options are those of `open_sandbox`: workspace, limits, network, env and mounts.
        """
        if not own and not options:
            if self._shared is None:
                self._shared = await self._opened({})
            return await self._fixture(self._shared)
        driver = await self._opened(options)
        self._own.append(driver)
        return await self._fixture(driver)

    async def end_check(self, *, kept: bool = False, harmed: bool = False) -> None:
        """Close the drivers opened for one check, and the shared driver if the check may have harmed it.

        Unless the check was kept, nothing that it started runs any more, whatever the driver did about it.
        """
        drivers, self._own = self._own, []
        if harmed and self._shared is not None:
            drivers.append(self._shared)
            self._shared = None
        for driver in drivers:
            if not await _closed(driver, self._close_patience):
                self._close_patience = STUCK_PATIENCE
        if not kept:
            names, self._names = self._names, []
            kill_leftovers(names)
        if harmed:
            kill_leftovers(self._directories)
            self._remove_directories()

    async def end(self) -> None:
        """Close all drivers and remove all directories."""
        await self.end_check(harmed=True)

    def _remove_directories(self) -> None:
        directories, self._directories = self._directories, []
        for directory in directories:
            remove_scratch(directory)

    async def _opened(self, options: dict[str, Any]) -> Driver:
        if "workspace" not in options:
            self._directories.append(make_scratch())
            options = {"workspace": os.path.realpath(self._directories[-1]), **options}
        taken = _parameters(self._opener)
        lacking = [name for name in options if taken is not None and name not in taken]
        if "workspace" in lacking:
            raise BrokenDriver("The opener does not take workspace by name: write `async def open_mine(*, workspace)`.")
        if lacking:
            raise NotTried(f"its opener takes no {', '.join(lacking)}")
        try:
            opening: object = self._opener(**options)
            driver: Driver | None = await opening if inspect.isawaitable(opening) else None
        except HandrailError as error:
            raise NotTried(f"it cannot be opened with {', '.join(options)}: {error}") from error
        if not inspect.isawaitable(opening):
            raise BrokenDriver("The opener is not an async function: write `async def`.")
        if driver is None:
            raise BrokenDriver("The opener returned None: return the driver.")
        check_driver(driver)
        return driver

    async def _fixture(self, driver: Driver) -> Fixture:
        self._names.append(f"conformance-{token_hex(4)}")
        directory = f"{workspace_of(driver).rstrip('/')}/{self._names[-1]}"
        await driver.make_dir(directory)
        return Fixture(driver, directory, self.patience)


def _parameters(opener: Opener) -> set[str] | None:
    """Return the names of the options that an opener takes; None if it takes any."""
    parameters = inspect.signature(opener).parameters.values()
    if any(it.kind is it.VAR_KEYWORD for it in parameters):
        return None
    return {it.name for it in parameters if it.kind is not it.POSITIONAL_ONLY}


async def _closed(driver: Driver, patience: float) -> bool:
    """Close a driver; return whether it answered.

    Twice: it costs nothing where once is enough, and otherwise a sandbox would be left to the garbage collector.
    """

    async def twice() -> None:
        for _ in range(2):
            with suppress(Exception):
                await driver.close()

    with anyio.CancelScope(shield=True):
        try:
            await within(patience, twice())
        except TimeoutError:
            return False
    return True


@asynccontextmanager
async def opened(opener: Opener, patience: float) -> AsyncIterator[Open]:
    """Make an Open, and close everything that it opened at the end."""
    open = Open(opener, patience)
    try:
        yield open
    finally:
        with anyio.CancelScope(shield=True):
            await open.end()
