"""What is outside a jail is out of reach, and no privilege can be had inside; each attempt has a control outside."""

import errno
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from handrail.contract.driver import Command, Mount
from handrail.contract.errors import Unavailable
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver
from tests.drivers.attempts import ATTEMPTS, WORKS_INSIDE
from tests.drivers.conftest import Open
from tests.drivers.watching import MARK, PATIENCE, collect, new_mark, run, until_says

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).with_name("attempts.py")
REFUSALS = {errno.EPERM, errno.ENOSYS, errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENOENT}
ROOT_ONLY = {
    "mount", "mknod", "chroot", "setns", "fsopen", "bpf", "perf", "userfaultfd", "syslog", "core_pattern", "sysrq",
    "namespaces sysctl", "terminal input",
}  # fmt: skip
MAY_BE_OFF = {"terminal input", "io_uring", "userfaultfd", "perf", "sysrq", "namespaces sysctl"}
"""Refused outside too on some machines, by a setting of the kernel."""
needs_x86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the attempts' numbers are those of x86_64")


@pytest.fixture
async def jail(opened: Open) -> GuardedDriver:
    return await opened("jail")


async def python(driver: GuardedDriver, code: str, *arguments: str) -> str:
    ran = await collect(await driver.start(Command(argv=(sys.executable, "-c", code, *arguments))))
    assert ran.code == 0, ran
    return ran.stdout.decode().strip()


@needs_x86
async def test_no_privilege_can_be_had_inside_and_the_same_attempts_work_outside(jail: GuardedDriver) -> None:
    await jail.write(f"{jail.workspace}/attempts.py", PROGRAM.read_bytes())
    inside = await collect(await jail.start(Command(argv=(sys.executable, "attempts.py"))))
    assert inside.code == 0, inside
    results: dict[str, int] = json.loads(inside.stdout)
    assert {name: results[name] for name in WORKS_INSIDE} == dict.fromkeys(WORKS_INSIDE, 0), "the control inside"
    allowed = {name: results[name] for name in ATTEMPTS if results[name] not in REFUSALS}
    assert not allowed
    outside = subprocess.run(
        [sys.executable, str(PROGRAM)], capture_output=True, cwd=jail.workspace, check=True, timeout=PATIENCE
    )
    control: dict[str, int] = json.loads(outside.stdout)
    expected = set(ATTEMPTS) - MAY_BE_OFF - (ROOT_ONLY if os.geteuid() else set())
    refused_outside = {name: os.strerror(control[name]) for name in expected if control[name]}
    assert not refused_outside, "the control outside"


async def test_the_payload_has_no_capabilities_no_new_privileges_and_a_filter(jail: GuardedDriver) -> None:
    status = (await run(jail, "cat /proc/self/status")).stdout.decode()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[name], 16) == 0, name
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")


async def test_files_outside_are_not_there(jail: GuardedDriver, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    paths = [str(secret), str(Path.home() / ".ssh"), "/etc/shadow", "/root/.bashrc", "/sys/kernel", "/boot", "/var/log"]
    ran = await run(jail, f"echo STARTED; cat {' '.join(paths)}; ls -la /home /mnt /var")
    assert b"STARTED" in ran.stdout
    assert b"SECRET" not in ran.stdout
    for path in paths:
        assert f"{path}: No such file".encode() in ran.stderr, path


async def test_only_the_workspace_and_the_private_places_can_be_written(jail: GuardedDriver) -> None:
    places = "/ /usr /etc /bin /dev /run /var /opt /proc /proc/sys"
    allowed = "x /tmp/written /dev/shm/written"
    line = f"for d in {places}; do touch $d/x && echo wrote $d; done; touch {allowed} && echo CONTROL"
    assert (await run(jail, line)).stdout == b"CONTROL\n"


async def test_the_workspace_has_its_own_path_and_a_short_one(jail: GuardedDriver) -> None:
    ran = await run(jail, "pwd; echo hi > /workspace/file; cat file; readlink /workspace")
    assert ran.stdout.decode().split() == [jail.workspace, "hi", jail.workspace]
    assert (await jail.stat("/workspace/file")).real_path == f"{jail.workspace}/file"
    assert Path(jail.workspace, "file").read_text() == "hi\n"


async def test_a_command_sees_its_own_processes_only(jail: GuardedDriver) -> None:
    mark = new_mark()
    other = await jail.start(Command(line="echo STARTED; sleep 1000", env={MARK: mark}))
    await until_says(other, b"STARTED")
    ran = await run(jail, "ls /proc | grep '^[0-9]' | sort -n | tr '\\n' ' '; kill -9 -1; echo survived")
    assert {int(pid) for pid in ran.stdout.split() if pid.isdigit()} < set(range(1, 10))
    await other.signal("KILL")
    assert await other.wait() == 137, "the other command was not killed by the first"


async def test_the_supervisor_cannot_be_read_or_ended(jail: GuardedDriver) -> None:
    line = "cat /proc/1/mem /proc/1/environ; readlink -v /proc/1/exe; kill -9 1; kill -STOP 1; kill -TERM 1; echo alive"
    ran = await run(jail, line)
    assert ran.stdout == b"alive\n"
    assert ran.stderr.count(b"ermission denied") == 3
    assert (await run(jail, "echo usable")).stdout == b"usable\n"


OWN = ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup")
LINKS = f"import os; print(*(os.readlink('/proc/self/ns/' + name) for name in {OWN}))"
NAMES = "import os, socket; print(socket.gethostname(), os.uname().nodename, open('/proc/sys/kernel/hostname').read())"


def outside(code: str, *arguments: str) -> list[str]:
    words = [sys.executable, "-c", code, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout.split()


@pytest.mark.parametrize("network", ["none", "full"])
async def test_a_jail_has_namespaces_of_its_own(opened: Open, network: str) -> None:
    jail = await opened("jail", network=network)
    found = dict(zip(OWN, zip((await python(jail, LINKS)).split(), outside(LINKS), strict=True), strict=True))
    assert {name for name, (here, there) in found.items() if here == there} == ({"net"} if network == "full" else set())
    assert outside(LINKS) == outside(LINKS), "the control: without one they agree"


@pytest.mark.parametrize("network", ["none", "full"])
async def test_the_name_of_the_machine_is_hidden(opened: Open, network: str) -> None:
    jail = await opened("jail", network=network)
    assert (await python(jail, NAMES)).split() == ["sandbox"] * 3
    assert set(outside(NAMES)) == {socket.gethostname()} != {"sandbox"}, "the control"


@pytest.fixture
def server() -> Iterator[dict[str, str]]:
    """Listeners outside: TCP, UDP and an abstract socket."""
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(0.5)
        name = f"handrail-{new_mark()}"
        abstract.bind(f"\0{name}")
        abstract.listen()
        heard: list[bytes] = []

        def listen() -> None:
            try:
                heard.append(udp.recv(100))
            except OSError:
                pass

        thread = threading.Thread(target=listen)
        thread.start()
        yield {"tcp": str(tcp.getsockname()[1]), "udp": str(udp.getsockname()[1]), "abstract": name}
        thread.join()
        assert heard in ([], [b"control"]), "what came out of the jail"


REACH = """
import socket, sys
tcp, udp, abstract = sys.argv[1:4]
def attempt(name, family, address):
    with socket.socket(family) as s:
        s.settimeout(3)
        try:
            s.connect(address)
            print(name, "reached")
        except OSError as error:
            print(name, type(error).__name__)
attempt("tcp", socket.AF_INET, ("127.0.0.1", int(tcp)))
attempt("abstract", socket.AF_UNIX, "\\0" + abstract)
if "metadata" in sys.argv:
    attempt("metadata", socket.AF_INET, ("169.254.169.254", 80))
    attempt("world", socket.AF_INET, ("192.0.2.1", 53))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.sendto(sys.argv[-1].encode(), ("127.0.0.1", int(udp)))
"""


async def test_the_network_of_the_machine_is_out_of_reach(jail: GuardedDriver, server: dict[str, str]) -> None:
    inside = await python(jail, REACH, *server.values(), "metadata", "escaped")
    assert "reached" not in inside
    assert outside(REACH, *server.values(), "control") == ["tcp", "reached", "abstract", "reached"], "the control"


async def test_with_a_full_network_the_machine_is_reached(opened: Open, server: dict[str, str]) -> None:
    jail = await opened("jail", network="full")
    assert "tcp reached" in await python(jail, REACH, *server.values(), "control")
    assert "network_isolation" not in jail.features


CONNECT = """
import socket, sys
print(socket.socket(socket.AF_UNIX).connect_ex(sys.argv[1]))
"""


async def test_a_unix_socket_outside_is_out_of_reach(
    jail: GuardedDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        server.listen()
        assert await python(jail, CONNECT, str(tmp_path / "socket")) == str(errno.ENOENT)
        assert outside(CONNECT, str(tmp_path / "socket")) == ["0"], "the control"


async def test_a_server_of_one_command_is_reached_by_the_next_and_not_from_outside(jail: GuardedDriver) -> None:
    process = await jail.start(Command(argv=(sys.executable, "-um", "http.server", "8765", "--bind", "127.0.0.1")))
    await until_says(process, b"Serving")
    code = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8765/').status)"
    assert await python(jail, code) == "200"
    with socket.socket() as outside, pytest.raises(ConnectionRefusedError):
        outside.connect(("127.0.0.1", 8765))
    await process.signal("KILL")
    await process.wait()


async def test_the_private_places_are_sized(opened: Open) -> None:
    jail = await opened("jail", limits=Limits(tmp=1 << 20))
    fill = "for place in /tmp /dev/shm; do head -c 2M /dev/zero > $place/filled; wc -c < $place/filled; done"
    ran = await run(jail, fill)
    assert ran.stderr.count(b"No space left") == 2
    assert ran.stdout.split() == [b"1048576"] * 2


STORM = """
import os, time
count = 1
try:
    while count < 500:
        if os.fork() == 0:
            time.sleep(1000)
        count += 1
except BlockingIOError:
    pass
print(count, "STARTED", flush=True)
time.sleep(1000)
"""


async def test_a_storm_of_processes_stops_at_the_limit_and_disturbs_no_other_jail(opened: Open) -> None:
    stormy, calm = await opened("jail", limits=Limits(processes=60)), await opened("jail", limits=Limits(processes=60))
    storm = await stormy.start(Command(argv=(sys.executable, "-c", STORM)))
    said = await until_says(storm, b"STARTED")
    assert 30 < int(said.split()[0]) <= 64
    assert (await run(calm, "true | true; echo calm")).stdout == b"calm\n"
    try:  # root's cgroup counts the guard's processes too: there the command may not even start
        hindered = await collect(await stormy.start(Command(argv=(sys.executable, "-c", "import os; os.fork()"))))
        said = hindered.stderr
    except Unavailable as error:
        said = str(error).encode()
    assert b"Resource temporarily unavailable" in said, "the next command says what is wrong"
    await storm.signal("KILL")
    with anyio.fail_after(PATIENCE):
        await storm.wait()
    assert (await run(stormy, "true | true; echo calm")).stdout == b"calm\n"


async def test_the_interpreter_and_its_environment_work_inside(jail: GuardedDriver) -> None:
    module = anyio if anyio.__file__.startswith(sys.prefix) else json
    code = f"import sys, json, {module.__name__} as module; print(json.dumps([sys.prefix, module.__file__]))"
    assert json.loads(await python(jail, code)) == [sys.prefix, module.__file__]
    with pytest.raises(OSError):
        await jail.write(f"{sys.prefix}/planted", b"x")
    assert not Path(sys.prefix, "planted").exists()


async def test_a_mount_appears_where_it_was_asked_for_and_hides_nothing(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("data")
    mounts = [Mount(str(tmp_path / "data"), "/srv/data"), Mount(str(tmp_path), str(tmp_path))]
    jail = await opened("jail", mounts=mounts)
    ran = await run(jail, "cat /srv/data/file; touch /srv/data/x || echo refused; touch here && echo writable")
    assert ran.stdout == b"datarefused\nwritable\n"


async def test_the_report_claims_exactly_the_features(jail: GuardedDriver) -> None:
    assert jail.features == jail.report.features
    assert {"tree_kill", "file_isolation", "network_isolation", "no_privileges"} <= jail.features
    assert all(guarantee.reason for guarantee in jail.report.guarantees if guarantee.standing != "enforced")


async def test_the_host_says_that_it_isolates_nothing(opened: Open) -> None:
    host = await opened("host")
    assert host.features.isdisjoint({"file_isolation", "process_isolation", "network_isolation", "no_privileges"})
    assert {"exec", "stdin", "tree_kill", "env_isolation", "limit_cpu"} <= host.features
    assert all(guarantee.reason for guarantee in host.report.guarantees if guarantee.standing != "enforced")
