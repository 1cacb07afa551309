"""Drivers with a hole in a wall."""

import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import anyio

from handrail.contract.driver import Chunk, Command, Driver, Mount, Process
from handrail.drivers.host import open_host
from handrail.testing.conformance.fixture import Opener
from tests.broken._guards import careless_directory, with_bubblewrap, with_guard
from tests.broken.altered import Altered, Broken, Catalogue

FILE_WALL: Final = Catalogue("file_isolation")
PROCESS_WALL: Final = Catalogue("process_isolation")
NETWORK_WALL: Final = Catalogue("network_isolation")
PRIVILEGES: Final = Catalogue("no_privileges")
ENV_WALL: Final = Catalogue("env_isolation")
MOST: Final = 1 << 20
SHARES_NETWORK: Final = """
at = words.index("--unshare-all")
words[at:at+1] = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
"""
SHOWS: Final = """
at = words.index("--")
words[at:at] = ["--bind", {path!r}, {path!r}]
"""
FILE_WALL.opening("shows temporary files of the machine", with_bubblewrap(SHOWS, path=tempfile.gettempdir()))
FILE_WALL.opening("lets commands write to /usr", with_bubblewrap(SHOWS, path="/usr"))
for _name, _edit in {
    "leaves its root writable": ("jail.c", '!make_read_only("/", 0) ||', ""),
    "leaves /dev writable": ("jail.c", ' || !make_read_only("/dev", 0)', ""),
    "shows the devices of the machine": ("jail.c", "return hide_devices();", "return true;"),
    "shares a mount that was not its own": (
        "jail.c",
        "return hide_devices();",
        'return hide_devices() && mount(NULL, "/dev/shm", NULL, MS_SHARED, NULL) == 0;',
    ),
}.items():
    FILE_WALL.opening(_name, with_guard(_edit))


def _from_machine(path: str, start: int, length: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(length)


@FILE_WALL.driver("reads from the machine what is not inside")
class _ReadsOutside(Altered):
    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        try:
            return await self.driver.read(path, start=start, length=length)
        except OSError:
            if Path(path).is_file():
                with suppress(OSError):
                    return _from_machine(path, start, MOST if length is None else min(length, MOST))
            raise


@FILE_WALL.driver("writes to the machine what is not inside")
class _WritesOutside(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        if not path.startswith(self.workspace) and Path(path).is_file():
            with suppress(OSError):
                Path(path).write_bytes(data)
        await self.driver.write(path, data, mode=mode)


def _mounts(change: Callable[[Mount], Mount]) -> Any:
    return lambda options: {**options, "mounts": tuple(change(mount) for mount in options.get("mounts") or ())}


def _copied(mount: Mount) -> Mount:
    if not mount.writable or not Path(mount.source).is_dir():
        return mount
    copy = shutil.copytree(mount.source, f"{careless_directory()}/mount-{token_hex(4)}", symlinks=True)
    return replace(mount, source=str(copy), target=mount.target or mount.source)


FILE_WALL.opening("lets commands write to every mount", _mounts(lambda mount: replace(mount, writable=True)))
FILE_WALL.opening("lets commands write to a copy of a mount", _mounts(_copied))


@lru_cache(maxsize=1)
def _own_variables() -> dict[str, str]:
    """Return the variables of this process, as a child process sees them."""
    printed = subprocess.run(["env", "-0"], capture_output=True, check=True).stdout.decode(errors="surrogateescape")
    return dict(pair.split("=", 1) for pair in printed.split("\0") if "=" in pair)


@ENV_WALL.driver("gives commands the variables of this process")
class _Leaks(Altered):
    async def start(self, command: Command) -> Process:
        kept = {name: value for name, value in _own_variables().items() if name not in ("PATH", "HOME", "TMPDIR")}
        return await super().start(replace(command, env={**kept, **(self.options.get("env") or {}), **command.env}))


@ENV_WALL.driver("keeps the variables of a command for the next")
class _Keeps(Altered):
    def __init__(self, driver: Driver, options: dict[str, Any]) -> None:
        super().__init__(driver, options)
        self.kept: dict[str, str] = {}

    async def start(self, command: Command) -> Process:
        process = await super().start(replace(command, env={**self.kept, **command.env}))
        self.kept |= command.env
        return process


ENV_WALL.opening("forgets the variables of the sandbox", lambda options: {**options, "env": None})


@ENV_WALL.driver("prefers the variables of the sandbox")
class _Prefers(Altered):
    async def start(self, command: Command) -> Process:
        return await super().start(replace(command, env={**command.env, **(self.options.get("env") or {})}))


class _Outside(Altered):
    """A driver that runs commands on the host."""

    def __init__(self, driver: Driver, host: Driver) -> None:
        super().__init__(driver, {})
        self.host = host

    async def start(self, command: Command) -> Process:
        try:
            return await self.host.start(command)
        except OSError:  # its program or directory is inside alone
            return await self.driver.start(command)

    async def close(self) -> None:
        await self.host.close()
        await self.driver.close()


def _outside(opener: Opener) -> Opener:
    async def opened(**options: Any) -> Driver:
        return _Outside(await opener(**options), await open_host(**{**options, "network": "full"}))

    return opened


PROCESS_WALL.append(Broken("runs commands outside the jail", "process_isolation", _outside))
for _name, _edit in {
    "leaves a descriptor to commands": (
        "supervise.c", "plan->script, plan->link};", "plan->script, plan->link, dup(channel.in)};"),
    "has one table of processes": ("launch.c", "CLONE_NEWPID | CLONE_NEWNS", "CLONE_NEWNS"),
}.items():  # fmt: skip
    PROCESS_WALL.opening(_name, with_guard(_edit))
NETWORK_WALL.opening("shares the network of the machine", with_bubblewrap(SHARES_NETWORK))
NETWORK_WALL.opening("allows sockets of every family", with_guard(("filter.c", "\tONLY_FAMILIES(__NR_socket),\n", "")))
for _name, _rule in {
    "allows ptrace": "REFUSE(__NR_ptrace, EPERM)",
    "allows keyrings": "REFUSE(__NR_keyctl, EPERM)",
    "allows setuid by fchmod": "REFUSE_BITS(__NR_fchmod, 1, SPECIAL_MODE)",
    "allows io_uring": "REFUSE(CALL_IO_URING_SETUP, ENOSYS)",
    "allows typing into a terminal": "REFUSE_VALUE(__NR_ioctl, 1, TIOCSTI)",
}.items():
    PRIVILEGES.opening(_name, with_guard(("filter.c", f"\t{_rule},", "")))
PRIVILEGES.opening("leaves the bounding set", with_guard(("payload.c", "prctl(PR_CAPBSET_DROP, capability)", "0")))
PRIVILEGES.opening(
    "allows files that are made setuid",
    with_guard(
        ("filter.c", "\tREFUSE_CREATION(__NR_openat, 2),", ""),
        ("filter.c", "\tREFUSE_CREATION(__NR_open, 1),", ""),
    ),
)
PRIVILEGES.opening(
    "filters no system call", with_guard(("payload.c", "if (settings.jail && install_filter() < 0)", "if (0)"))
)


class _Child:
    """A plain child of this process."""

    id = "child"
    pid: int | None = None

    def __init__(self, ran: "subprocess.CompletedProcess[bytes]") -> None:
        self._ran = ran

    async def output(self) -> AsyncIterator[Chunk]:
        yield Chunk("stdout", self._ran.stdout)

    async def send(self, data: bytes | None) -> None:
        return None

    async def wait(self) -> int:
        return self._ran.returncode

    async def signal(self, name: str) -> None:
        return None


@PRIVILEGES.driver("runs programs of the workspace beside itself")
class _Beside(Altered):
    async def start(self, command: Command) -> Process:
        if not command.argv or not command.argv[0].startswith(f"{self.workspace}/") or command.input:
            return await super().start(command)
        try:
            return _Child(await anyio.run_process(list(command.argv), check=False, cwd=command.cwd, env={"PATH": ""}))
        except OSError:
            return await super().start(command)
