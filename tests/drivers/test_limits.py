"""What a sandbox may use is counted where it could leak, and a limit that cannot be set ends the command."""

import errno
import sys
from pathlib import Path

import pytest

from handrail.contract.driver import Command
from handrail.contract.errors import Unavailable
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver
from tests.broken._guards import careless_guard
from tests.drivers import liars
from tests.drivers.conftest import Open
from tests.drivers.watching import collect, guard_pid, run

pytestmark = pytest.mark.anyio


async def python(driver: GuardedDriver, code: str, *arguments: str) -> list[str]:
    ran = await collect(await driver.start(Command(argv=(sys.executable, "-S", "-c", code, *arguments))))
    assert ran.code == 0, ran
    return ran.stdout.decode().split()


MANY_FILES = """
import sys
for place in ("/tmp", "/dev/shm", "/var/tmp"):
    count = 0
    try:
        while count < 2000:
            open(f"{place}/{place[1:4]}{count}", "x").close()
            count += 1
    except OSError as error:
        print(place, count, error.errno)
"""


async def test_a_private_place_takes_as_many_files_as_it_has_pages(opened: Open) -> None:
    jail = await opened("jail", limits=Limits(tmp=1 << 20))
    said = await python(jail, MANY_FILES)
    counts = dict(zip(said[::3], map(int, said[1::3]), strict=True))
    assert counts.keys() == {"/tmp", "/dev/shm", "/var/tmp"}, said
    assert all(count <= 256 for count in counts.values()), counts
    assert counts["/tmp"] > 200, "the control: many are possible"
    assert set(said[2::3]) == {str(errno.ENOSPC)}


SEGMENTS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmget.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
for size in (56, 65536, 65537, 1 << 32):
    made = libc.shmget(0, size, 0o1600)
    print(0 if made >= 0 else ctypes.get_errno())
    if made >= 0:
        libc.shmctl(made, 0, None)
"""


async def test_a_segment_of_shared_memory_is_small(opened: Open) -> None:
    jail, host = await opened("jail"), await opened("host")
    assert await python(jail, SEGMENTS) == ["0", "0", str(errno.EINVAL), str(errno.EINVAL)]
    assert (await python(host, SEGMENTS))[:3] == ["0", "0", "0"], "the control: what is refused is possible"


TERMINALS = """
import os
held = []
try:
    while len(held) < 400:
        held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
except OSError as error:
    print(len(held), error.errno)
else:
    print(len(held), 0)
"""


async def test_terminals_are_counted(opened: Open) -> None:
    count, error = map(int, await python(await opened("jail"), TERMINALS))
    assert (count, error) in ((256, errno.ENOSPC), (0, errno.ENOENT)), "an old kernel gives ordinary users none"


@pytest.mark.guarded
async def test_out_of_memory_a_command_is_taken_first_and_its_guard_is_not(driver: GuardedDriver) -> None:
    own = Path("/proc/self/oom_score_adj").read_text().strip()
    assert (await run(driver, "cat /proc/self/oom_score_adj; (cat /proc/self/oom_score_adj)")).stdout.split() == [
        b"1000",
        b"1000",
    ]
    process = await driver.start(Command(line="sleep 1000"))
    guard = guard_pid(driver)
    children = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    scores = {Path(f"/proc/{pid}/oom_score_adj").read_text().strip() for pid in (str(guard), *children)}
    assert scores == {own}, "guard and supervisor are as this process is"
    await process.signal("KILL")
    await process.wait()


STANDINGS = {"jail": "enforced", "host": "advisory", "posix": "absent"}


async def test_the_report_says_how_memory_and_cpu_time_are_counted(driver: GuardedDriver, kind: str) -> None:
    assert driver.report.standing("limit_memory") == STANDINGS[kind]
    assert any("cpu" in note and "each process" in note for note in (*driver.report.notes, *driver.report.facts))


FAILING = {
    "a limit": ("payload.c", "return setrlimit(resource, &limit) < 0", "errno = EINVAL; return true"),
    "a limit that is not there": ("payload.c", "if (getrlimit(resource, &limit) < 0)", "errno = EINVAL; if (true)"),
    "a drop of capabilities": (
        "payload.c",
        "return syscall(SYS_capset, &header, none) < 0",
        "errno = EPERM; return true",
    ),
}


@pytest.mark.parametrize("fault", FAILING)
async def test_a_limit_or_a_drop_that_fails_ends_the_command(
    kind: str, opened: Open, tmp_path: Path, fault: str
) -> None:
    careless = careless_guard(FAILING[fault])
    if kind == "host":
        driver = await liars.host_with(careless, tmp_path)
    else:
        driver = await opened("jail", bubblewrap=liars.with_guard(careless))
    marked = Path(driver.workspace, "ran")
    with pytest.raises(OSError, match="cannot be started"):
        await driver.start(Command(line=f"touch {marked}"))
    assert not marked.exists()
    await driver.close()


FORGETTING = {
    "the bounding set": "prctl(PR_CAPBSET_DROP, capability)",
    "the secure bits": "prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE)",
}


@pytest.mark.parametrize("what", FORGETTING)
async def test_where_privileges_cannot_be_given_up_there_is_no_jail_and_on_the_host_nothing_to_give_up(
    opened: Open, tmp_path: Path, what: str
) -> None:
    careless = careless_guard(("payload.c", FORGETTING[what], "(errno = EPERM, -1)"))
    with pytest.raises(Unavailable, match="privileges cannot be given up"):
        await opened("jail", bubblewrap=liars.with_guard(careless))
    host = await liars.host_with(careless, tmp_path)
    assert (await run(host, "echo runs")).stdout == b"runs\n"
    await host.close()


async def test_where_giving_up_privileges_fails_otherwise_there_is_no_host_either(tmp_path: Path) -> None:
    careless = careless_guard(("payload.c", FORGETTING["the secure bits"], "(errno = EINVAL, -1)"))
    with pytest.raises(Unavailable, match="privileges cannot be given up"):
        await liars.host_with(careless, tmp_path)


async def test_a_worker_that_ends_without_an_answer_is_not_taken_for_an_error_of_the_file(tmp_path: Path) -> None:
    answers = "*answer = 1 + (error ? error : operate(message));\n\t_exit(0);"
    careless = careless_guard(("files.c", answers, f"_exit({errno.ENOENT} + (answer == NULL));"))
    (tmp_path / "file").write_text("here")
    host = await liars.host_with(careless, tmp_path)
    for work in (host.read(f"{tmp_path}/file"), host.stat(f"{tmp_path}/file"), host.make_dir(f"{tmp_path}/x")):
        with pytest.raises(Unavailable, match="ended without an answer"):
            await work
    await host.close()


@pytest.mark.parametrize("seconds", [20_000_000_000, -1, 0, 253_402_300_799])
async def test_a_time_far_from_now_is_told_as_it_is(opened: Open, seconds: int) -> None:
    jail = await opened("jail")
    assert (await run(jail, f"touch -d @{seconds} /dev/shm/old && stat -c %Y /dev/shm/old")).stdout.strip() == (
        str(seconds).encode()
    ), "the control: it can be kept there"
    assert (await jail.stat("/dev/shm/old")).mtime == seconds
    assert [entry.mtime for entry in await jail.list("/dev/shm")] == [seconds]
