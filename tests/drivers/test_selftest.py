"""A self-test finds every promise that is broken, and costs something only once."""

import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from handrail.contract.driver import Driver, Feature, Mount
from handrail.contract.errors import Unavailable, WeakerThanAsked
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers.attempts import Attempt
from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.host import open_host
from handrail.drivers.jail import open_jail
from handrail.drivers.memory import MemoryDriver
from handrail.drivers.open import open_sandbox
from handrail.drivers.selftest import NOTE, weigh
from handrail.drivers.selftest import tested as self_tested
from tests.broken._guards import careless_guard
from tests.drivers import liars
from tests.drivers.watching import eventually

pytestmark = pytest.mark.anyio

ISOLATION = {"file_isolation", "env_isolation", "process_isolation", "network_isolation", "no_privileges", "tree_kill"}


@pytest.fixture
def home(tmp_path: Path) -> str:
    (tmp_path / "work").mkdir()
    return str(tmp_path / "work")


def as_a(kind: type[GuardedDriver]) -> Callable[..., Awaitable[Driver]]:
    """Open a driver that breaks a promise: the real one, but for its class."""

    async def opened(**options: object) -> Driver:
        driver = await open_jail(**options)  # type: ignore[arg-type]
        driver.__class__ = kind
        return driver

    return opened


async def found(opener: Callable[..., Awaitable[Driver]], **options: object) -> GuardedDriver:
    """What a self-test made of a driver, which is closed again. Its name is new, so that it is really tried."""
    driver = await self_tested(f"{opener}-{options}", opener, options)
    await driver.close()
    assert isinstance(driver, GuardedDriver)
    assert driver.features == driver.report.features
    return driver


async def test_a_jail_that_keeps_its_promises_loses_none(home: str) -> None:
    driver = await found(open_jail, workspace=home)
    assert driver.lost == ()
    assert driver.features >= ISOLATION
    assert NOTE in driver.report.facts
    assert os.listdir(home) == [], "and it leaves nothing in the workspace"


async def test_the_host_loses_nothing_because_it_claims_nothing(home: str) -> None:
    driver = await found(open_host, workspace=home)
    assert driver.lost == ()
    assert driver.features.isdisjoint({"file_isolation", "process_isolation", "network_isolation"})


async def test_every_limit_that_was_asked_for_is_tried(home: str) -> None:
    limits = Limits(processes=64, open_files=100, file_size=1 << 20, cpu=5.0, tmp=1 << 20)
    driver = await found(open_jail, workspace=home, limits=limits)
    assert driver.lost == ()


async def test_no_limits_at_all_are_tried_too(home: str) -> None:
    limits = Limits(processes=None, open_files=None, tmp=None)
    assert (await found(open_jail, workspace=home, limits=limits)).lost == ()


BUBBLEWRAPS: dict[str, tuple[str, set[Feature]]] = {
    "shares the network": (liars.SHARES_NETWORK, {"network_isolation"}),
    "shows temporary files": (liars.SHOWS_TEMPORARY_FILES, {"file_isolation"}),
    "forgets the sizes": (liars.FORGETS_SIZES, {"limit_tmp"}),
}


@pytest.mark.parametrize("lie", BUBBLEWRAPS)
async def test_a_bubblewrap_that_does_less_is_found_out(tmp_path: Path, home: str, lie: str) -> None:
    edit, expected = BUBBLEWRAPS[lie]
    bubblewrap = liars.lying(edit, tmp=tempfile.gettempdir())
    driver = await found(open_jail, workspace=home, bubblewrap=bubblewrap)
    besides = set() if "limit_tmp" in expected else {"limit_tmp"}  # where temporary files are in /tmp
    assert {guarantee.feature for guarantee in driver.lost} - besides == expected
    assert all(guarantee.standing == "absent" and guarantee.reason for guarantee in driver.lost)


GUARDS: dict[str, tuple[str, str, str, set[Feature]]] = {
    "has no filter": ("payload.c", "if (settings.jail && install_filter() < 0)", "if (0)", {"no_privileges"}),
    "leaves the bounding set": ("payload.c", "prctl(PR_CAPBSET_DROP, capability)", "0", {"no_privileges"}),
    "sets no limits": ("payload.c", "error = set_limits();", "", {"limit_open_files", "limit_file_size", "limit_cpu"}),
    "counts no files": (
        "jail.c",
        "snprintf(options, sizeof options",
        "return true; snprintf(options, sizeof options",
        {"limit_tmp"},
    ),
    "leaves the root writable": ("jail.c", '!make_read_only("/", 0) ||', "", {"file_isolation"}),
    "leaves /dev writable": ("jail.c", ' || !make_read_only("/dev", 0)', "", {"file_isolation"}),
    "leaves the machine's devices": (
        "jail.c",
        "return hide_devices();",
        "return true;",
        {"file_isolation"},
    ),
    "leaves its channel to commands": (
        "supervise.c",
        "plan->script, plan->link};",
        "plan->script, plan->link, dup(channel.in)};",
        {"process_isolation"},
    ),
    "has one table of processes": ("launch.c", "CLONE_NEWPID | CLONE_NEWNS", "CLONE_NEWNS", {"process_isolation"}),
}
BESIDES: dict[str, set[Feature]] = {
    "has no filter": {"network_isolation"},  # on a virtual machine
    "sets no limits": {"limit_processes"},  # where that is claimed
    "has one table of processes": {"tree_kill"},  # what is killed there may end after it was said to be dead
}

UNUSABLE = {"has one table of processes"}
"""An ordinary user's kernel does not let such a guard start anything."""


@pytest.mark.parametrize("fault", GUARDS)
async def test_a_guard_that_does_less_is_found_out(tmp_path: Path, home: str, fault: str) -> None:
    file, old, new, expected = GUARDS[fault]
    other = careless_guard((file, old, new))
    bubblewrap = liars.with_guard(other)
    limits = Limits(open_files=100, file_size=1 << 20, cpu=5.0)
    try:
        driver = await found(open_jail, workspace=home, bubblewrap=bubblewrap, limits=limits)
    except Unavailable:
        assert fault in UNUSABLE
        return
    assert {guarantee.feature for guarantee in driver.lost} - BESIDES.get(fault, set()) == expected


DRIVERS: dict[type[GuardedDriver], Feature] = {
    liars.Leaking: "env_isolation",
    liars.Surviving: "tree_kill",
    liars.Overwriting: "atomic_write",
}


@pytest.mark.parametrize("broken", DRIVERS)
async def test_a_driver_that_breaks_a_promise_is_found_out(home: str, broken: type[GuardedDriver]) -> None:
    driver = await found(as_a(broken), workspace=home)
    assert [guarantee.feature for guarantee in driver.lost] == [DRIVERS[broken]]
    assert DRIVERS[broken] not in driver.features


async def test_a_driver_that_does_not_work_is_unavailable(home: str) -> None:
    with pytest.raises(Unavailable, match="does not work here"):
        await found(as_a(liars.Forgetful), workspace=home)


async def test_it_runs_once_for_each_configuration(home: str) -> None:
    class Mine(liars.Counting):
        pass

    options = {"workspace": home, "limits": Limits(), "network": "none", "mounts": ()}
    for change, more in (({}, True), ({}, False), ({"env": {"A": "1"}}, False), ({"network": "full"}, True),
                         ({"limits": Limits(open_files=99)}, True), ({"mounts": (Mount("/usr", "/srv/usr"),)}, True),
                         ({"mounts": (Mount("/usr", "/srv/other"),)}, False)):  # fmt: skip
        before = Mine.started
        driver = await self_tested(f"counted-{id(Mine)}", as_a(Mine), {**options, **change})
        assert (Mine.started > before) == more, change
        await driver.close()


async def test_many_at_once_share_one_test(home: str) -> None:
    class Mine(liars.Counting):
        pass

    async def one() -> None:
        await (await self_tested(f"shared-{id(Mine)}", as_a(Mine), {"workspace": home})).close()

    await one()
    alone = Mine.started
    Mine.started = 0

    async def another() -> None:
        await (await self_tested(f"shared-too-{id(Mine)}", as_a(Mine), {"workspace": home})).close()

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(another)
    assert Mine.started == alone


async def test_it_leaves_no_file_and_no_process(home: str) -> None:
    def ours() -> list[str]:
        return sorted(str(path) for path in Path(tempfile.gettempdir()).glob(f"handrail-{os.getpid()}-*"))

    before = ours()
    await found(open_jail, workspace=home, limits=Limits(open_files=98))
    assert ours() == before
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    named = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    assert not [name for name in named if name.startswith(str(PROGRAM).encode())]


async def test_what_is_shown_because_it_was_asked_for_is_no_fault(home: str) -> None:
    tmp = tempfile.gettempdir()
    driver = await found(open_jail, workspace=home, mounts=(Mount(tmp, tmp),))
    assert {guarantee.feature for guarantee in driver.lost} <= {"limit_tmp"}


async def test_a_driver_of_another_kind_is_left_alone() -> None:
    async def open_memory(**options: object) -> Driver:
        return MemoryDriver()

    driver = await self_tested("memory", open_memory, {})
    assert isinstance(driver, MemoryDriver)


async def test_a_cancelled_test_closes_its_driver(home: str) -> None:
    opened: list[GuardedDriver] = []
    ready = anyio.Event()

    async def open_one(**options: object) -> Driver:
        opened.append(await open_jail(**options))  # type: ignore[arg-type]
        ready.set()
        return opened[0]

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(self_tested, "cancelled", open_one, {"workspace": home})
            await ready.wait()
            scope.cancel()
    assert await anyio.to_thread.run_sync(eventually, lambda: not Path(f"/proc/{opened[0].guard.pid}").exists())


async def test_a_sandbox_with_a_missing_wall_is_refused_unless_that_is_allowed(tmp_path: Path, home: str) -> None:
    bubblewrap = liars.lying(liars.SHARES_NETWORK)
    for driver in ("auto", "jail"):
        with pytest.raises(WeakerThanAsked, match=r"network_isolation is absent.*could connect to a server"):
            async with open_sandbox(driver, workspace=home, bubblewrap=bubblewrap):
                pass
        async with open_sandbox(driver, workspace=home, bubblewrap=bubblewrap, allow_weaker=True) as sandbox:
            assert sandbox.report.driver == "jail"
            assert "network_isolation" not in sandbox.features
            assert "file_isolation" in sandbox.features


async def test_where_no_jail_can_be_made_auto_refuses_and_allow_weaker_takes_the_host(home: str) -> None:
    with pytest.raises(WeakerThanAsked, match=r"(?s)does not exist.*install bubblewrap.*handrail doctor"):
        async with open_sandbox(workspace=home, bubblewrap="/nowhere/bwrap"):
            pass
    async with open_sandbox(workspace=home, bubblewrap="/nowhere/bwrap", allow_weaker=True) as sandbox:
        assert sandbox.report.driver == "host"
        assert "No isolation" in sandbox.report.notes[0]


READ = Attempt("file_isolation", "read", "", "read a file")
UNIX = Attempt("file_isolation", "unix", "", "connect to a socket")
TRACE = Attempt("no_privileges", "ptrace", "", "trace")
KEYS = Attempt("no_privileges", "keyring", "", "use keys")


@pytest.mark.parametrize(
    ("inside", "outside", "expected"),
    [
        ({READ: False, UNIX: False}, {READ: True, UNIX: True}, {}),
        ({READ: True, UNIX: False}, {READ: True, UNIX: True}, {"file_isolation": "absent"}),
        ({READ: False, UNIX: False}, {READ: True, UNIX: False}, {"file_isolation": "advisory"}),
        ({READ: True, UNIX: False}, {READ: False, UNIX: False}, {"file_isolation": "absent"}),
        ({TRACE: False, KEYS: False}, {TRACE: True, KEYS: False}, {}),
        ({TRACE: False, KEYS: False}, {TRACE: False, KEYS: False}, {"no_privileges": "advisory"}),
    ],
)
async def test_an_attempt_that_fails_outside_too_proves_nothing(
    inside: dict[Attempt, bool], outside: dict[Attempt, bool], expected: dict[str, str]
) -> None:
    assert {finding.feature: finding.standing for finding in weigh(inside, outside)} == expected
    assert all("connect to a socket" in each.reason for each in weigh(inside, outside) if each.standing == "advisory"
               and each.feature == "file_isolation")  # fmt: skip


async def test_a_long_path_to_temporary_files_is_no_hindrance(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100) / ("y" * 100)
    long.mkdir(parents=True)
    code = "import anyio\nfrom handrail import open_sandbox\nasync def main():\n    async with open_sandbox() as it:\n"
    code += "        print(len(it.workspace) > 200, (await it.run('echo held')).stdout)\nanyio.run(main)"
    env = {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(long)}
    command = [sys.executable, "-c", code]
    ran = await anyio.run_process(command, env=env, check=False)
    assert ran.stdout == b"True held\n\n", ran.stderr
