"""Each limit is crossed on purpose: what crosses it ends or is refused, and everything else goes on."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from handrail.contract.driver import Command
from handrail.contract.errors import HandrailError
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers._limit_notes import WATCH
from handrail.drivers.jail import open_jail
from handrail.drivers.limit_table import LIMIT_TABLE
from handrail.drivers.open import open_sandbox
from handrail.drivers.scratch import make_scratch, remove_scratch
from handrail.sandbox.sandbox import Sandbox
from tests.drivers.conftest import Open
from tests.drivers.watching import Ran, collect, run

pytestmark = pytest.mark.anyio

MIB = 1 << 20
LIMIT = 200 * MIB
BOMB = """
import mmap, sys, time
shared = sys.argv[1] == "shared"
flags = (mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE) | mmap.MAP_ANONYMOUS
print("STARTED", flush=True)
area = mmap.mmap(-1, 1 << 30, flags=flags)
for at in range(0, 1 << 30, 4096):
    area[at] = 1
time.sleep(3)
print("ALL", flush=True)
"""
MANY = """
import os, time
print("STARTED", flush=True)
for _ in range(50):
    if os.fork() == 0:
        held = b"x" * (10 << 20)
        time.sleep(5)
        os._exit(0)
time.sleep(3)
print("ALL", flush=True)
"""
FORKS = """
import os, time
held = bytearray(b"x") * (100 << 20)
for _ in range(8):
    if os.fork() == 0:
        sum(held[::4096])
        time.sleep(1.5)
        os._exit(0)
for _ in range(8):
    os.wait()
print("ALL")
"""
MEMFD = """
import os
print("STARTED", flush=True)
fd = os.memfd_create("x")
for _ in range(400):
    os.write(fd, bytes(1 << 20))
print("ALL", flush=True)
"""
SEGMENTS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmget.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
made = 0
for size in (65536, 4096):
    for _ in range(5000):
        if libc.shmget(0, size, 0o1600) < 0:
            break
        made += size
queues = 0
while queues < 5000 and libc.msgget(0, 0o1600) >= 0:
    queues += 1
print(made, queues)
"""
THREADS = """
import threading, time
threading.stack_size(65536)
count = 0
try:
    while count < 400:
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
        count += 1
except RuntimeError:
    pass
print(count, flush=True)
import os; os._exit(0)
"""


async def python(driver: GuardedDriver, code: str, *arguments: str) -> Ran:
    return await collect(await driver.start(Command(argv=(sys.executable, "-S", "-c", code, *arguments))))


async def still_works(driver: GuardedDriver) -> None:
    assert (await run(driver, "echo next")).stdout == b"next\n", "the guard lives, and the next command works"


@pytest.fixture
async def own() -> AsyncIterator[Open]:
    """Open jails on workspaces of their own."""
    opened: list[tuple[GuardedDriver, str]] = []

    async def open_one(**limits: int | None) -> GuardedDriver:
        workspace = make_scratch()
        opened.append((await open_jail(workspace=workspace, limits=Limits(**limits)), workspace))  # type: ignore[arg-type]
        return opened[-1][0]

    yield open_one
    for driver, workspace in opened:
        await driver.close()
        remove_scratch(workspace)


@pytest.mark.parametrize("kind", ["private", "shared"])
async def test_a_gigabyte_of_memory_is_stopped_below_a_limit_of_200_mib(own: Open, kind: str) -> None:
    jail, other = await own(memory=LIMIT), await own(memory=LIMIT)
    beside = await other.start(Command(line="sleep 2; echo undisturbed"))
    ran = await python(jail, BOMB, kind)
    assert ran.stdout == b"STARTED\n", "the control: it began, and did not get all"
    assert ran.code != 0, ran
    await still_works(jail)
    assert (await collect(beside)).stdout == b"undisturbed\n"


async def test_many_small_processes_count_together(own: Open) -> None:
    jail = await own(memory=LIMIT)
    ran = await python(jail, MANY)
    assert ran.stdout.startswith(b"STARTED\n")
    assert any("200 MiB" in note for note in ran.notes), "a cgroup kills some of them, the watch the whole command"
    await still_works(jail)


async def test_what_processes_share_counts_once(own: Open) -> None:
    jail = await own(memory=LIMIT)
    ran = await python(jail, FORKS)
    assert (ran.code, ran.stdout) == (0, b"ALL\n"), "900 MiB are resident, and 100 MiB are used"


async def test_memory_without_a_process_does_not_escape(own: Open) -> None:
    jail = await own(memory=LIMIT)
    ran = await python(jail, MEMFD)
    assert ran.stdout == b"STARTED\n", ran
    assert (await python(await own(), MEMFD)).stdout == b"STARTED\nALL\n", "the control: without a limit it works"
    await still_works(jail)


async def test_segments_and_queues_of_system_v_are_few(own: Open) -> None:
    made, queues = map(int, (await python(await own(memory=LIMIT), SEGMENTS)).stdout.split())
    assert 0 < made <= 16 * MIB
    assert queues <= 32


async def test_a_fork_storm_and_threads_stop_at_the_limit(own: Open) -> None:
    jail, other = await own(processes=60), await own(processes=60)
    count = int((await python(jail, THREADS)).stdout)
    assert 30 <= count <= 64, count
    storm = await jail.start(Command(line="for n in $(seq 200); do sleep 30 & done; echo ALL"))
    assert (await run(other, "echo undisturbed; true | true")).stdout == b"undisturbed\n"
    ran = await collect(storm)
    assert b"ALL" not in ran.stdout or b"fork" in ran.stderr, ran
    await still_works(jail)


FILL = """
import os, sys
place = sys.argv[1]
count = written = 0
try:
    while count < 3000:
        open(f"{place}/f{count}", "x").close()
        count += 1
except OSError as error:
    print(count, error.errno)
for n in range(count):
    os.unlink(f"{place}/f{n}")
try:
    with open(f"{place}/big", "wb", buffering=0) as file:
        while written < 64 << 20:
            written += file.write(bytes(1 << 16))
except OSError as error:
    print(written, error.errno)
os.unlink(f"{place}/big")
"""


@pytest.mark.parametrize("place", ["workspace", "home"])
async def test_bytes_and_files_of_the_workspace_and_of_home_are_counted(own: Open, place: str) -> None:
    jail = await own(workspace=4 * MIB, tmp=4 * MIB)
    ran = await python(jail, FILL, jail.spaces[place])
    files, no_files, size, no_space = map(int, ran.stdout.split())
    assert (no_files, no_space) == (28, 28), ran
    assert 500 < files <= 1024
    assert 3 * MIB < size <= 4 * MIB
    await jail.write(f"{jail.spaces[place]}/after", b"x")
    await still_works(jail)
    if place == "workspace":
        assert os.listdir(jail.workspace) == [], "nothing is on this machine's disk"


async def test_a_command_that_was_killed_for_memory_says_so_wherever_it_is_told(own: Open) -> None:
    jail = await own(memory=LIMIT)
    sandbox = Sandbox(jail)
    done = await sandbox.run(["bash", "-c", f"{sys.executable} -S -c '{BOMB}' shared; exit 0"], timeout=60)
    assert done.limit == "memory"
    assert done.to_data()["limit"] == "memory"
    by = "cgroup" if os.geteuid() == 0 and Path("/sys/fs/cgroup/memory").exists() else WATCH
    assert any("200 MiB" in note and by in note and "smaller parts" in note for note in done.notes), done.notes
    assert any("--memory" in note for note in sandbox.report.notes), sandbox.report.notes
    assert any("200 MiB" in fact and by in fact for fact in sandbox.report.facts)


@pytest.mark.parametrize("limits", [{"memory": 1000}, {"processes": 1}, {"tmp": 1}])
async def test_a_limit_with_which_nothing_works_is_refused_with_the_least(own: Open, limits: dict[str, int]) -> None:
    with pytest.raises(HandrailError, match=rf"limits.{next(iter(limits))} is 1.* nothing works with less than"):
        await own(**limits)


async def test_limits_larger_than_any_machine_are_taken_and_the_report_says_so() -> None:
    huge = 1 << 70
    limits = Limits(huge, huge, 1e18, huge, huge, huge, huge)
    async with open_sandbox("jail", limits=limits) as sandbox:
        assert (await sandbox.run("echo works")).stdout == "works\n"
        assert any("more than this machine has" in note for note in sandbox.report.notes)


async def test_the_least_limits_work(own: Open) -> None:
    least = {row.name: row.least for row in LIMIT_TABLE if row.least}
    async with open_sandbox("jail", limits=Limits(**least)) as sandbox:  # type: ignore[arg-type]
        assert (await sandbox.run("echo works")).stdout == "works\n"


async def test_a_workspace_that_was_given_is_not_limited_and_the_report_says_so(tmp_path: Path) -> None:
    async with open_sandbox("jail", workspace=tmp_path, limits=Limits(workspace=4 * MIB)) as sandbox:
        assert sandbox.report.standing("limit_workspace") == "advisory"
        assert any("limits.workspace (4 MiB) is not kept" in note for note in sandbox.report.notes)
        await sandbox.write_text("kept.txt", "x")
    assert (tmp_path / "kept.txt").read_text() == "x"


HIDDEN = """
import ctypes, mmap, time
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
print("STARTED", flush=True)
area = mmap.mmap(-1, 1 << 30)
for at in range(0, 1 << 30, 4096):
    area[at] = 1
time.sleep(1)
print("ALL", flush=True)
"""


async def test_a_process_that_hides_its_memory_is_counted_all_the_same(own: Open) -> None:
    jail = await own(memory=LIMIT)
    assert (await python(jail, HIDDEN)).stdout == b"STARTED\n"
    await still_works(jail)


async def test_a_small_command_beside_a_bomb_goes_on(own: Open) -> None:
    jail = await own(memory=LIMIT)
    small = await jail.start(Command(line="sleep 2; echo small"))
    bombs = [await jail.start(Command(argv=(sys.executable, "-S", "-c", BOMB, "shared"))) for _ in range(2)]
    assert [(await collect(bomb)).stdout for bomb in bombs] == [b"STARTED\n"] * 2
    assert (await collect(small)).stdout == b"small\n"
