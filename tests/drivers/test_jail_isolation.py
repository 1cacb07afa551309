"""Nothing outside a jail is reached from inside; every attempt says that it started, and succeeds when made outside."""

import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path

import anyio
import pytest

from handrail.contract.driver import Command, Mount
from handrail.contract.errors import Unavailable
from handrail.contract.limits import Limits
from handrail.drivers._explain import NO_MORE_PROCESSES
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers.attempts import METADATA
from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.open import open_sandbox
from tests.broken._guards import careless_guard
from tests.drivers import liars
from tests.drivers.conftest import Open
from tests.drivers.watching import MARK, PATIENCE, alive, collect, descendants, eventually, lives, new_mark, run

pytestmark = pytest.mark.anyio

AT_ONCE = 50.0
"""Seconds: what is refused at once takes none of them, what times out takes more."""
A_SECOND = 1.0
"""What is promised: after that long nothing lives of the jails of a client that was killed."""
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root; the half that runs as root did not run")
LIBC = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
async def jail(opened: Open) -> GuardedDriver:
    return await opened("jail")


async def inside(jail: GuardedDriver, code: str, *arguments: str) -> str:
    """What a Python program says in the jail, after its STARTED."""
    program = f"print('STARTED', flush=True)\n{code}"
    ran = await collect(await jail.start(Command(argv=(sys.executable, "-c", program, *arguments))))
    assert ran.stdout.startswith(b"STARTED\n"), ran
    return ran.stdout.decode().removeprefix("STARTED\n").strip()


def outside(code: str, *arguments: str, **options: object) -> str:
    """The control: the same program beside this one."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout.strip()


async def attempt(jail: GuardedDriver, *words: str) -> list[list[str]]:
    """The guard's own attempts, inside."""
    ran = await collect(await jail.start(Command(argv=(jail.program, "--attempt", *words))))
    lines = ran.stdout.decode().splitlines()
    assert (lines[0], lines[-1]) == ("STARTED", "ENDED"), ran
    return [line.split("\t") for line in lines[1:-1]]


def attempt_outside(*words: str) -> list[list[str]]:
    ran = subprocess.run([str(PROGRAM), "--attempt", *words], capture_output=True, text=True, check=False, env={})
    return [line.split("\t") for line in ran.stdout.splitlines()[1:-1]]


SEARCH = """
import pathlib, sys
found = []
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        found += [str(path)] if sys.argv[1].encode()[::-1] in path.read_bytes() else []
    except OSError:
        pass
print(len(found))
"""


async def test_keys_in_the_environment_of_the_host_are_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    key = new_mark()
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    jail = await opened("jail")
    assert await inside(jail, SEARCH, key[::-1]) == "0"
    assert key.encode() not in (await run(jail, "echo STARTED; env; set; export")).stdout
    assert int(outside(SEARCH, key[::-1])) >= 1, "the control: a child outside has it"


async def test_a_process_outside_is_neither_seen_nor_signalled(jail: GuardedDriver) -> None:
    word = new_mark()
    command, pipe = [str(PROGRAM), "--attempt", "stay", word], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == b"STARTED\n"
        assert await attempt(jail, "see", word[::-1]) == [["see", "refused", "No such process"]]
        assert attempt_outside("see", word[::-1]) == [["see", "reached", ""]], "the control"
        code = "import os, sys\ntry: os.kill(int(sys.argv[1]), 9); print('killed')\nexcept OSError as e: print(e.errno)"
        assert await inside(jail, code, str(it.pid)) in (str(errno.ESRCH), str(errno.EPERM))
        await run(jail, "kill -9 -1")
        assert it.poll() is None
        outside(code, str(it.pid))
        assert it.wait() == -signal.SIGKILL, "the control"


DEVICES = """
import os, stat
for top in ("/dev", "/run"):
    for parent, _, names in os.walk(top):
        for name in names:
            if stat.S_IFMT(os.lstat(f"{parent}/{name}").st_mode) in (stat.S_IFCHR, stat.S_IFBLK):
                print(f"{parent}/{name}")
"""


async def test_of_all_devices_only_the_harmless_ones_are_there_and_they_work(jail: GuardedDriver) -> None:
    harmless = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "pts/ptmx")}
    assert set((await inside(jail, DEVICES)).split()) == harmless
    assert set(outside(DEVICES).split()) > harmless - {"/dev/pts/ptmx"}, "the control: the machine has more"
    assert await attempt(jail, "devices", "-") == [["devices", "refused", "No such device"]]
    assert attempt_outside("devices", "-") == [["devices", "reached", ""]], "the control"
    ran = await run(jail, "echo x > /dev/null; head -c 3 /dev/zero | wc -c; head -c 9 /dev/urandom | wc -c; "
                          "echo x > /dev/full; echo y > /dev/stdout; echo z | cat /dev/fd/0")  # fmt: skip
    assert ran.stdout.split() == [b"3", b"9", b"y", b"z"]
    assert b"No space left" in ran.stderr


async def test_a_terminal_can_be_had_and_is_seen_by_nobody_outside(jail: GuardedDriver) -> None:
    code = "import os, pty\na, b = pty.openpty()\nos.write(a, b'x\\n')\nprint(os.ttyname(b), os.read(b, 9))"
    assert await inside(jail, code) == "/dev/pts/0 b'x\\n'"


CONNECT = """
import socket, sys
for family, address in (("AF_UNIX", sys.argv[1]), ("AF_UNIX", "\\0" + sys.argv[2])):
    with socket.socket(getattr(socket, family)) as it:
        try:
            it.connect(address)
            print("reached", end=" ")
        except OSError as error:
            print(error.errno, end=" ")
"""


async def test_sockets_outside_are_out_of_reach_by_path_and_by_name(jail: GuardedDriver) -> None:
    unix = socket.AF_UNIX
    with tempfile.TemporaryDirectory() as place, socket.socket(unix) as one, socket.socket(unix) as two:
        path, name = f"{place}/socket", new_mark()
        for it, address in ((one, path), (two, f"\0{name}")):
            it.bind(address)
            it.listen()
        assert (await inside(jail, CONNECT, path, name)).split() == [str(errno.ENOENT), str(errno.ECONNREFUSED)]
        assert outside(CONNECT, path, name).split() == ["reached", "reached"], "the control"


@pytest.fixture
def ports() -> Iterator[dict[str, socket.socket]]:
    """What listens on this machine's own addresses."""
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as tcp6,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        yield {"tcp": tcp, "tcp6": tcp6, "udp": udp}


REACH = """
import socket, sys
for family, host, port in ((socket.AF_INET, "127.0.0.1", sys.argv[1]), (socket.AF_INET6, "::1", sys.argv[2])):
    with socket.socket(family) as it:
        it.settimeout(2)
        try:
            it.connect((host, int(port)))
            print("reached", end=" ")
        except OSError as error:
            print("refused", end=" ")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
    it.sendto(b"hello", ("127.0.0.1", int(sys.argv[3])))
"""


async def test_tcp_and_udp_of_this_machine_are_out_of_reach(
    jail: GuardedDriver, ports: dict[str, socket.socket]
) -> None:
    numbers = [str(it.getsockname()[1]) for it in ports.values()]
    assert (await inside(jail, REACH, *numbers)).split() == ["refused", "refused"]
    with pytest.raises(BlockingIOError):
        ports["udp"].recv(100)
    assert outside(REACH, *numbers).split() == ["reached", "reached"], "the control"
    assert await anyio.to_thread.run_sync(eventually, lambda: _heard(ports["udp"])), "the control"


def _heard(udp: socket.socket) -> bool:
    try:
        return udp.recv(100) == b"hello"
    except BlockingIOError:
        return False


FAR = """
import socket, sys
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    with socket.socket(socket.AF_INET, kind) as it:
        it.settimeout(30)
        try:
            it.connect((sys.argv[1], 80))
            print("reached")
        except OSError as error:
            print(error.errno)
"""


@pytest.mark.parametrize("address", ["169.254.169.254", "192.0.2.1", "10.0.0.1", "224.0.0.1"])
async def test_addresses_far_away_are_unreachable_at_once(jail: GuardedDriver, address: str) -> None:
    with anyio.fail_after(AT_ONCE):
        said = await inside(jail, FAR, address)
    assert said.split() == [str(errno.ENETUNREACH)] * 2
    assert (await inside(jail, FAR, "127.0.0.1")).split() == [str(errno.ECONNREFUSED), "reached"], "the control"


async def test_the_attempt_to_find_a_way_to_the_metadata_address_finds_one_where_there_is_one(opened: Open) -> None:
    words = ("route", "127.0.0.1", "route", METADATA)
    none, full = await opened("jail"), await opened("jail", network="full")
    there, metadata = await attempt(none, *words)
    assert there == ["route", "reached", ""], "the control: a route that is there is found"
    assert metadata[:2] == ["route", "refused"]
    assert "unreachable" in metadata[2]
    assert await attempt(full, *words) == attempt_outside(*words), "the machine's own routes, whatever they are"
    assert attempt_outside(*words)[0] == ["route", "reached", ""], "the control"


async def test_the_jail_has_a_loopback_of_its_own_and_nothing_else(jail: GuardedDriver) -> None:
    code = "import socket; print(*(name for _, name in socket.if_nameindex()))"
    assert await inside(jail, code) == "lo"
    both = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
    assert await inside(jail, f"{both}; print('up')") == "up"


@pytest.mark.parametrize("network", ["none", "full"])
async def test_sockets_that_no_network_namespace_holds_cannot_be_made(opened: Open, network: str) -> None:
    """Those to the machine below a virtual one, and other rare kinds; the usual ones can."""
    jail = await opened("jail", network=network)
    code = (
        "import socket\nfor family in (40, 38, 17, 21, 30, 44, 1, 2, 10):\n    try:\n"
        "        socket.socket(family, 5 if family == 38 else 1).close(); print('made', end=' ')\n"
        "    except OSError as error:\n        print(error.errno, end=' ')\n"
    )
    assert (await inside(jail, code)).split() == [str(errno.EAFNOSUPPORT)] * 6 + ["made"] * 3
    if Path("/dev/vsock").exists():
        assert outside(code).split()[0] == "made", "the control"


SHARED = "import ctypes, sys; print(ctypes.CDLL(None).shmget(int(sys.argv[1]), 0, 0) >= 0)"


async def test_shared_memory_of_the_machine_is_out_of_reach(jail: GuardedDriver) -> None:
    key = int.from_bytes(os.urandom(3), "big") + 1
    segment = LIBC.shmget(key, 4096, 0o1600 | 0o1000)
    assert segment >= 0
    try:
        assert await inside(jail, SHARED, str(key)) == "False"
        assert outside(SHARED, str(key)) == "True", "the control"
    finally:
        LIBC.shmctl(segment, 0, None)


OPEN = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_WRONLY))
        print("opened", path)
    except OSError:
        pass
"""
SETTINGS = [
    "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname",
    "/proc/sys/vm/drop_caches", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces",
    "/proc/sysrq-trigger", "/proc/self/oom_score_adj", "/proc/self/uid_map", "/proc/self/setgroups",
    "/proc/self/timerslack_ns", "/proc/self/attr/current",
]  # fmt: skip


async def test_no_setting_of_the_kernel_can_be_opened_for_writing(jail: GuardedDriver) -> None:
    assert await inside(jail, OPEN, *SETTINGS) == ""
    assert "opened /proc/self/oom_score_adj" in outside(OPEN, *SETTINGS), "the control"
    if os.geteuid() == 0:
        assert "opened /proc/sys/kernel/core_pattern" in outside(OPEN, *SETTINGS), "the control"


async def test_files_are_not_a_way_to_the_kernel_or_the_guard_either(jail: GuardedDriver) -> None:
    for path in ("/proc/self/mem", "/proc/1/mem", "/proc/1/environ", "/proc/1/fd/0", "/proc/kcore", *SETTINGS):
        with pytest.raises(OSError):
            await jail.read(path)
        with pytest.raises(OSError):
            await jail.write(path, b"x")
    assert b"root" in await jail.read("/etc/passwd"), "the control"


LOOK = """
import os
for name in ("mem", "maps", "environ", "fd/0", "exe", "root", "cwd", "io", "auxv", "stack", "ns/net"):
    for pid in ("1", "self"):
        path = f"/proc/{pid}/{name}"
        try:
            if name in ("fd/0", "exe", "root", "cwd", "ns/net"):
                os.readlink(path)
            else:
                os.read(os.open(path, os.O_RDONLY), 1)
            print(path)
        except OSError:
            pass
"""


async def test_the_guard_shows_neither_memory_nor_descriptors(jail: GuardedDriver) -> None:
    seen = (await inside(jail, LOOK)).split()
    assert [path for path in seen if "/1/" in path] == []
    assert len(seen) >= 8, "the control: its own are seen"


async def test_only_the_workspace_and_the_private_places_are_mounted_writable(jail: GuardedDriver) -> None:
    text = await inside(jail, "print(open('/proc/self/mountinfo').read())")
    writable: dict[str, bool] = {}
    for line in text.splitlines():  # of two mounts in one place the last is seen
        fields, _, rest = line.partition(" - ")
        parts = fields.split()
        writable[parts[4]] = "rw" in parts[5].split(",") and "rw" in rest.split()[2].split(",")
        assert parts[6:] == [], "what is mounted inside is not seen outside, nor the other way round"
    places = {path for path, it in writable.items() if it}
    devices = {path for path in places if path.startswith("/dev/") and path != "/dev/shm"}
    own = {"/var/tmp"} if jail.workspace.startswith("/var/tmp/") else set()  # elsewhere it is a link to /tmp
    assert places - devices == {jail.workspace, "/home/sandbox", "/tmp", "/dev/shm", *own}
    assert devices <= {f"/dev/{name}" for name in HARMLESS}


HARMLESS = {"null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx", "shm", "fd", "stdin", "stdout", "stderr"}


async def test_there_are_no_devices_but_the_harmless_ones(jail: GuardedDriver) -> None:
    found = (await run(jail, "echo STARTED; ls -A /dev; find / -xdev -type b 2>/dev/null; ls /sys 2>/dev/null")).stdout
    names = set(found.decode().split()) - {"STARTED"}
    assert names - {"core"} <= HARMLESS
    assert {"null", "urandom"} <= names, "the control"
    assert Path("/sys/kernel").exists(), "the control"


@root_only
async def test_secrets_that_only_root_may_read_are_not_even_there(jail: GuardedDriver) -> None:
    etc = Path("/etc")
    paths = [str(path) for path in (*etc.glob("ssh/*key"), *etc.glob("ssl/private/*"), etc / "shadow")]
    assert any(os.access(path, os.R_OK) for path in paths), "the control"
    code = "import os, sys; print(*(path for path in sys.argv[1:] if os.path.lexists(path)))"
    assert await inside(jail, code, *paths) == ""


async def test_a_link_in_the_workspace_leads_nowhere_outside(jail: GuardedDriver) -> None:
    with tempfile.NamedTemporaryFile("w", dir="/var/tmp") as secret:
        secret.write("SECRET")
        secret.flush()
        Path(jail.workspace, "link").symlink_to(secret.name)
        Path(jail.workspace, "up").symlink_to("../" * 40 + secret.name.lstrip("/"))
        assert Path(jail.workspace, "link").read_text() == "SECRET", "the control"
        ran = await run(jail, "echo STARTED; cat link up; ln /etc/passwd hard; cat /proc/1/root/etc/hostname")
        assert ran.stdout == b"STARTED\n"
        for name in ("link", "up"):
            with pytest.raises(FileNotFoundError):
                await jail.read(f"{jail.workspace}/{name}")


async def test_two_jails_share_nothing_but_what_is_mounted_into_both(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    one, two = [await opened("jail", mounts=[Mount(str(tmp_path / "shared"), "/srv/s", True)]) for _ in range(2)]
    assert (await run(one, "for place in /tmp /dev/shm /srv/s; do echo STARTED > $place/told; done")).code == 0
    ran = await run(two, "cat /tmp/told /dev/shm/told /srv/s/told")
    assert ran.stdout == b"STARTED\n"
    assert ran.stderr.count(b"No such file") == 2


STORM = """
import os, time
try:
    for count in range(200):
        if os.fork() == 0:
            time.sleep(1000)
except OSError:
    print("STARTED", count, flush=True)
time.sleep(1000)
"""


async def test_a_storm_of_processes_disturbs_nobody_else_and_its_own_next_command_says_why(tmp_path: Path) -> None:
    limits = Limits(processes=60)
    async with open_sandbox("jail", limits=limits) as stormy, open_sandbox("jail", limits=limits) as calm:
        if "limit_processes" not in stormy.features:
            reason = next(it.reason for it in stormy.report.guarantees if it.feature == "limit_processes")
            pytest.skip(f"the half that runs as an ordinary user did not run: {reason}")
        job = await stormy.start([sys.executable, "-c", STORM])
        assert await anyio.to_thread.run_sync(eventually, lambda: "STARTED" in job.tail(5))
        assert (await calm.run("for i in 1 2 3 4 5; do true | true; done; echo calm")).stdout == "calm\n"
        if os.geteuid() == 0:  # a cgroup counts the guard's processes too: not even a file can be looked at
            with pytest.raises(Unavailable, match="temporarily unavailable"):
                await stormy.run_code("print()")
        else:
            hindered = await stormy.run_code("import os\nfor _ in range(70):\n    os.fork() or os._exit(0)\n")
            assert hindered.exit_code != 0
            assert NO_MORE_PROCESSES in hindered.notes
        assert await stormy.terminate(job.id)
        assert (await stormy.run("true | true; echo calm")).stdout == "calm\n"


TWENTY = """
import sys, anyio
from contextlib import AsyncExitStack
from handrail.drivers.open import open_sandbox

async def main(mark):
    async with AsyncExitStack() as stack:
        for _ in range(20):
            sandbox = await stack.enter_async_context(open_sandbox("jail", env={"HANDRAIL_TEST_MARK": mark}))
            await sandbox.start("setsid sleep 1000 & trap '' TERM; sleep 1000; true")
            print(sandbox.workspace)
        print("READY", flush=True)
        await anyio.sleep(1000)

anyio.run(main, sys.argv[1])
"""


def left_by(pid: int, *tops: str) -> list[Path]:
    return [path for top in {*tops, "/var/tmp", "/dev/shm"} for path in Path(top).glob(f"handrail-{pid}-*")]


def start_again(env: dict[str, str]) -> None:
    code = "from handrail.drivers.scratch import make_scratch, remove_scratch; remove_scratch(make_scratch())"
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=PATIENCE)


def time_to_die() -> float:
    """How long plain processes, as many, need to be seen dead on this machine now."""
    mark = new_mark()
    plain = [subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK: mark}) for _ in range(60)]
    assert eventually(lambda: len(alive(mark)) == 60)
    began = time.monotonic()
    for each in plain:
        each.kill()
    for each in plain:
        each.wait()
    assert eventually(lambda: not alive(mark))
    return time.monotonic() - began


async def test_with_python_killed_twenty_jails_are_gone_and_their_directories_at_the_next_start(tmp_path: Path) -> None:
    mark, tmp = new_mark(), str(tmp_path)
    env = {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": tmp}
    with ExitStack() as stack:
        command = [sys.executable, "-c", TWENTY, mark]
        python = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env))
        stack.callback(python.kill)
        assert python.stdout is not None
        places = [line.strip() for line in takewhile(lambda line: line != "READY\n", python.stdout)]
        assert len(places) == 20
        assert await anyio.to_thread.run_sync(eventually, lambda: len(alive(mark)) >= 60), "the control: they run"
        family = descendants(python.pid)
        names = Counter(each.name for each in family)
        assert (names["bwrap"], names["guard"]) == (20, 40), "the control: each has a guard, and a supervisor below it"
        assert {each.pid for each in family} >= set(alive(mark))
        assert all(map(lives, family)), "the control"
        assert any((path / "passwd").exists() for path in left_by(python.pid, tmp)), (
            "the control: it has a copy of /etc"
        )
        busy = await anyio.to_thread.run_sync(time_to_die)
        killed = time.monotonic()
        python.kill()
        gone = await anyio.to_thread.run_sync(
            eventually, lambda: not (alive(mark) or any(map(lives, family))), A_SECOND + 10 * busy
        )
        late = [each for each in family if lives(each)]
        assert gone, f"after {time.monotonic() - killed:.2f} s there still live {late} and {alive(mark)}"
    assert all(Path(place).exists() for place in places), "the control: nobody else looks there"
    await anyio.to_thread.run_sync(start_again, env)
    assert [place for place in places if Path(place).exists()] == []
    assert left_by(python.pid, tmp) == []


NO_RANGE = "#define syscall(...) (-1)\n"
NO_LIST = f"{NO_RANGE}#define opendir(path) NULL\n"
CARELESS = {
    "closes nothing first": ("\tkeep_only(kept, sizeof kept / sizeof *kept);\n", "", True),
    "cannot close a range": ("enum { GRACE", f"{NO_RANGE}enum {{ GRACE", True),
    "cannot even list them": ("enum { GRACE", f"{NO_LIST}enum {{ GRACE", True),
    "the control": ("enum { GRACE", f"{NO_LIST}#define getrlimit(...) (-1)\nenum {{ GRACE", False),
}


@pytest.mark.parametrize("fault", CARELESS)
async def test_two_walls_keep_the_guards_descriptors_from_a_command(opened: Open, tmp_path: Path, fault: str) -> None:
    """They are closed, by any of three ways, and nothing that is run would have them if they were not."""
    old, new, closed = CARELESS[fault]
    other = careless_guard(("supervise.c", old, new))
    jail = await opened("jail", bubblewrap=liars.with_guard(other))
    assert (await run(jail, "ls /proc/self/fd")).stdout.split() == [b"0", b"1", b"2", b"3"], "the last is listed"
    process, said = await jail.start(Command(argv=("cat",), input=True)), b""
    await process.send(b"x")
    await process.send(None)
    with anyio.move_on_after(PATIENCE if closed else 0.5) as scope:
        said = (await collect(process)).stdout
    assert (said, scope.cancelled_caught) == ((b"x", False) if closed else (b"", True)), "else its supervisor holds it"


async def test_what_is_written_to_var_tmp_stays_inside(jail: GuardedDriver) -> None:
    assert await inside(jail, "open('/var/tmp/told', 'w').write('here'); print(open('/var/tmp/told').read())") == "here"
    assert not os.path.exists("/var/tmp/told")
