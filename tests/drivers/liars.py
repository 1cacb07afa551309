"""Bubblewraps and guards that do less than they say, and drivers that break one promise each."""

from dataclasses import replace
from pathlib import Path

from handrail.contract.driver import Command, SignalName
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver, GuardedProcess
from handrail.drivers._options import fixed_env
from handrail.drivers._reports import host_report
from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.guard.spawn import spawn
from tests.broken._guards import OTHER_GUARD, lying_bubblewrap
from tests.drivers.watching import collect

SHARES_NETWORK = """
at = words.index("--unshare-all")
words[at:at+1] = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
"""
SHOWS_TEMPORARY_FILES = """
at = words.index("--")
words[at:at] = ["--bind", {tmp!r}, {tmp!r}]
"""
FORGETS_SIZES = """
while "--size" in words:
    at = words.index("--size")
    del words[at:at+2]
"""
NO_JAIL = """
at = words.index("--")
os.execv({guard!r}, [{guard!r}, *words[at+2:]])
"""


def program(path: Path, text: str, *, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def lying(edit: str, **values: str) -> str:
    """A bubblewrap that changes what it was told."""
    return lying_bubblewrap(edit, **{"guard": str(PROGRAM), **values})


def with_guard(program: str) -> str:
    """A bubblewrap whose jail has another program as its guard."""
    return lying(OTHER_GUARD, other=program)


async def host_with(program: str, workspace: Path) -> GuardedDriver:
    """The host driver over another guard's program."""
    guard = spawn(lambda arguments: [program, *arguments])
    await guard.greet(jail=False, limits=Limits(), roots=[str(workspace)])
    env = fixed_env(str(workspace), str(workspace), {}, home=str(workspace))
    return GuardedDriver(
        guard, report=host_report(), workspace=str(workspace), env=env, tmp=str(workspace), program=program
    )


class Counting(GuardedDriver):
    """Counts what is started."""

    started = 0

    async def start(self, command: Command) -> GuardedProcess:
        type(self).started += 1
        return await super().start(command)


class Leaking(GuardedDriver):
    """Gives commands a variable that nobody asked for."""

    async def start(self, command: Command) -> GuardedProcess:
        return await super().start(replace(command, env={"API_KEY": "secret"}))


class Hasty(GuardedProcess):
    """Says that it is dead, and is not."""

    killed = False

    async def signal(self, name: SignalName) -> None:
        self.killed = True

    async def wait(self) -> int:
        return 137 if self.killed else await super().wait()


class Surviving(GuardedDriver):
    async def start(self, command: Command) -> GuardedProcess:
        process = await super().start(command)
        return Hasty(process._channel, process._exchange)


class Overwriting(GuardedDriver):
    """Writes into the file that is there."""

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        process = await self.start(Command(argv=("tee", path), input=True))
        await process.send(data)
        await process.send(None)
        await collect(process)


class Forgetful(GuardedDriver):
    """Reads something else than was written."""

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        return b"x" * len(await super().read(path, start=start, length=length))
