"""What a command can try against its own guard, the machine's devices and its client's memory comes to nothing."""

import errno
import os
import socket
import stat
import sys
from pathlib import Path

import anyio
import pytest

from handrail.contract.driver import Command
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers.guard import frames
from tests.broken._guards import careless_guard
from tests.drivers import liars
from tests.drivers.conftest import Open
from tests.drivers.watching import PATIENCE, collect, run

pytestmark = pytest.mark.anyio

DEVICES = ["null", "zero", "full", "random", "urandom", "tty"]
WHOLE_MAX = 512 << 20
TAKES_FILES_AWAY = "import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))"
CHANGES = """
import errno, os, stat, sys
def attempt(change):
    try:
        change()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "changed"
for path in sys.argv[1:]:
    now = os.stat(path)  # what they are already: where it is allowed it harms nothing
    mode = attempt(lambda: os.chmod(path, stat.S_IMODE(now.st_mode)))
    print(path, mode, attempt(lambda: os.utime(path, ns=(now.st_atime_ns, now.st_mtime_ns))))
"""
NETLINK = """
import errno, socket, sys
def attempt(make, protocol):
    try:
        made = make(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "made"
print(*[attempt(make, int(word)) for make in (socket.socket, socket.socketpair) for word in sys.argv[1:]])
"""
LINKS = """
import socket, struct
with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as route:
    route.bind((0, 0))
    route.send(struct.pack("=IHHII16x", 32, 18, 0x301, 1, 0))
    print(b"lo\\0" in route.recv(65536))
print(socket.getaddrinfo("127.0.0.1", 80)[0][4], len(socket.socketpair()))
"""


async def python(driver: GuardedDriver, code: str, *arguments: str) -> str:
    ran = await collect(await driver.start(Command(argv=(sys.executable, "-c", code, *arguments))))
    assert ran.code == 0, ran
    return ran.stdout.decode().strip()


async def jail_with(opened: Open, place: Path, file: str, old: str, new: str) -> GuardedDriver:
    """A jail whose guard was compiled with one change."""
    other = careless_guard((file, old, new))
    return await opened("jail", bubblewrap=liars.with_guard(other))


async def test_no_mode_and_no_time_of_the_machines_devices_can_be_changed(opened: Open) -> None:
    jail = await opened("jail")
    paths = [f"/dev/{name}" for name in DEVICES]
    Path(jail.workspace, "own").touch()
    said = await python(jail, CHANGES, "own", *paths)
    assert said.splitlines() == ["own changed changed", *(f"{path} EROFS EROFS" for path in paths)], "a control first"


async def test_the_mode_of_the_machines_full_device_stays(opened: Open) -> None:
    jail = await opened("jail")
    before = os.stat("/dev/full").st_mode
    try:
        ran = await run(jail, "touch own && chmod 600 own && stat -c %a own; chmod 600 /dev/full")
        after = os.stat("/dev/full").st_mode
    finally:
        if not os.geteuid():
            os.chmod("/dev/full", stat.S_IMODE(before))
    assert ran.stdout == b"600\n", "the control"
    assert b"Read-only file system" in ran.stderr, ran
    assert after == before


async def test_the_devices_still_take_what_is_written_and_terminals_work(opened: Open) -> None:
    jail = await opened("jail")
    ran = await run(jail, "echo x > /dev/null && head -c 4 /dev/zero /dev/urandom | wc -c; echo x > /dev/full")
    assert int(ran.stdout) > 8, ran
    assert b"No space left on device" in ran.stderr, ran
    terminal = (
        "import os, pty; a, b = pty.openpty(); os.write(b, b'hi'); print(os.read(a, 9), os.isatty(b), flush=True); "
        "pty.spawn(['sh', '-c', 'echo said > /dev/tty'])"
    )
    assert (await python(jail, terminal)).split() == ["b'hi'", "True", "said"]


async def test_a_command_may_limit_itself_but_not_its_supervisor(opened: Open) -> None:
    jail = await opened("jail")
    ran = await collect(await jail.start(Command(argv=(sys.executable, "-c", TAKES_FILES_AWAY))))
    assert b"PermissionError" in ran.stderr, ran
    assert (ran.code, b"ProcessLookupError" in ran.stderr) == (1, False), ran
    control = "import resource as r; r.prlimit(0, r.RLIMIT_NOFILE, (40, 40)); print(r.getrlimit(r.RLIMIT_NOFILE))"
    assert await python(jail, control) == "(40, 40)"
    assert (await run(jail, "ulimit -n 50 && ulimit -n")).stdout == b"50\n"


async def test_a_supervisor_that_can_hear_nothing_ends_its_command(opened: Open, tmp_path: Path) -> None:
    """The same with the filter's rule left out; the limit bites when an orphan's end has woken the supervisor."""
    rule = "REFUSE_OTHERS(__NR_prlimit64, 0, 0),"
    jail = await jail_with(opened, tmp_path, "filter.c", rule, "")
    code = f"import os, time; {TAKES_FILES_AWAY}; print('TAKEN', flush=True); os.system('(true &)'); time.sleep(1000)"
    with anyio.fail_after(PATIENCE):
        ran = await collect(await jail.start(Command(argv=(sys.executable, "-c", code))))
    assert (ran.code, ran.stdout) == (137, b"TAKEN\n"), "the control: it was not refused"
    assert (await run(jail, "echo usable")).stdout == b"usable\n"


async def test_of_netlink_a_command_gets_only_what_tells_of_its_own_network(opened: Open) -> None:
    jail = await opened("jail", network="full")
    said = (await python(jail, NETLINK, "0", "11", "15", "16")).split()
    assert said[:4] == ["made", *["EAFNOSUPPORT"] * 3], "the first is the control"
    assert said[5:] == ["EAFNOSUPPORT"] * 3
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15):
        pass  # the control: outside there is such a socket
    assert await python(jail, LINKS) == "True\n('127.0.0.1', 80) 2"


@pytest.mark.guarded
async def test_a_file_that_grows_while_it_is_read_whole_is_not_read_without_end(driver: GuardedDriver) -> None:
    path = Path(driver.workspace, "growing")
    path.write_bytes(b"x" * (3 << 20))
    channel, where = driver.guard.channel, os.fsencode(path)
    exchange = channel.open(lambda id: frames.file(id, frames.READ, where))
    await channel.until(exchange, lambda: bool(exchange.chunks))
    os.truncate(path, WHOLE_MAX + (8 << 20))
    total = 0
    while not (exchange.over and not exchange.chunks):
        await channel.until(exchange, lambda: bool(exchange.chunks) or exchange.over)
        while exchange.chunks:
            size = len(exchange.chunks.popleft()[1])
            total += size
            channel.consumed(exchange, size)
    assert exchange.exited == (errno.EFBIG, 0)
    assert total == WHOLE_MAX + 1, "the control: it had begun, and went on until then"
    os.truncate(path, 5 << 20)
    assert len(await driver.read(str(path))) == 5 << 20


async def test_a_directory_with_too_many_entries_is_refused_in_plain_words(opened: Open, tmp_path: Path) -> None:
    """With a guard whose bound is small; the bound is for about a million entries."""
    jail = await jail_with(opened, tmp_path, "files.c", "LIST_MAX (256ull << 20)", "LIST_MAX (64ull << 10)")
    many = Path(jail.workspace, "many")
    many.mkdir()
    for number in range(64):
        (many / str(number)).touch()
    assert len(await jail.list(str(many))) == 64, "the control"
    for number in range(64, 256):
        (many / str(number)).touch()
    with pytest.raises(OSError, match="too many entries to list at once") as raised:
        await jail.list(str(many))
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(many))
