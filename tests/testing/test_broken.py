"""Every check can be seen to fail: each broken driver fails exactly the checks that it names."""

import os
import tempfile
from pathlib import Path

import pytest

from handrail.contract.driver import Feature, FileStat
from handrail.drivers._cgroup import can_keep
from handrail.drivers.attempts import ATTEMPTS, targets_outside, try_outside
from handrail.drivers.memory import open_memory
from handrail.drivers.open import known_drivers
from handrail.drivers.posix import open_posix
from handrail.testing.conformance import CHECKS, DriverVerdict, Opener, conform
from tests.broken import BROKEN, Altered, Broken
from tests.broken._limits import UNWATCHED
from tests.broken.altered import Catalogue
from tests.testing.refusals import Refusals

pytestmark = pytest.mark.anyio

PATIENCE = 4.0
"""Seconds that a broken driver keeps a check waiting."""
SLOW = {"a command that computes for longer than the limit is ended"}
ORDINARY_USER_ONLY: set[Feature] = set() if can_keep("processes") else {"limit_processes"}
"""What the jail does not enforce for root without a cgroup, because the kernel does not."""
IN_MEMORY = {
    check.name for check in CHECKS if check.feature in ("files", "range_read") and "exec" not in check.needs
} - {"writes at the same time all arrive"}
"""Checks that take a thousandth of the time on the memory driver; it does nothing at the same time."""


def base(name: str) -> Opener:
    jail = known_drivers()["jail"]
    assert not isinstance(jail, str), jail
    return {"jail": jail, "posix": open_posix, "memory": open_memory}[name]


def failed(verdict: DriverVerdict) -> set[str]:
    claimed = [guarantee for guarantee in verdict.guarantees.values() if guarantee.standing in ("kept", "broken")]
    return {check.check.name for guarantee in claimed for check in guarantee.failed}


def own_checks(broken: Broken) -> list[tuple[str, list[str]]]:
    """Where it meets the checks of its promise, and which: in memory if it fails there too.

    Of the others it then meets those that it fails.
    """
    names = [check.name for check in CHECKS if check.feature == broken.feature and check.name not in SLOW]
    if not broken.must_fail & IN_MEMORY or broken.feature not in ("files", "range_read"):
        return [(broken.base, names)]
    others = [name for name in names if name in broken.must_fail - IN_MEMORY]
    met = [("memory", [name for name in names if name in IN_MEMORY]), (broken.base, others)]
    return [(where, names) for where, names in met if names]


def out_of_reach(broken: Broken) -> set[str]:
    """What such a driver does not fail, because this user cannot do it outside a sandbox either: it is tried there."""
    if broken.name not in AS_THIS_USER:
        return set()
    own = [it for it in ATTEMPTS if it.feature == broken.feature]
    attempts = [it for it in own if f"a command cannot {it.meaning}" in broken.must_fail]
    with targets_outside([]) as values:
        tried = try_outside(attempts, {**values, "inside": os.path.dirname(values["secret"])})
    refused = {f"a command cannot {it.meaning}" for it, ok in zip(attempts, tried.reached, strict=False) if not ok}
    assert os.geteuid() != 0 or not refused, "root can do all of it"
    return refused


SHOWS_TMP = "shows temporary files of the machine"
"""What it fails is listed for a machine whose temporary files are in /tmp."""
AS_THIS_USER = frozenset({"lets commands write to /usr", "runs programs of the workspace beside itself"})
"""What they let a command do is what this user may do outside; root may do all of it."""
MEETS = [
    it
    for it in BROKEN
    if (os.geteuid() != 0 or it.feature not in ORDINARY_USER_ONLY)
    and (it.name != UNWATCHED or not can_keep("memory"))
    and (it.name != SHOWS_TMP or tempfile.gettempdir() == "/tmp")
]


@pytest.mark.parametrize("broken", MEETS, ids=lambda broken: broken.name)
async def test_a_broken_driver_fails_exactly_what_it_names_of_its_promise(broken: Broken) -> None:
    workers = 4 if broken.feature == "tree_kill" else 2  # each opens a sandbox; where much is waited for, more of them
    for where, names in own_checks(broken):
        refusals = Refusals()
        verdict = await conform(refusals.over(broken, base(where)), only=names, patience=PATIENCE, workers=workers)
        assert broken.must_fail & set(names), "the control: it has something to fail"
        assert failed(verdict) == (broken.must_fail & set(names)) - out_of_reach(broken)
        assert refusals.found == [], "it raises nothing of its own"


async def test_every_check_has_a_broken_driver_of_its_promise_that_it_catches() -> None:
    """In the test above, but for what takes long and what only an ordinary user can try: those are in the matrix."""
    met = {name for broken in BROKEN for _, names in own_checks(broken) for name in broken.must_fail & set(names)}
    assert {check.name for check in CHECKS} - met == SLOW
    listed = {name for broken in BROKEN for name in broken.must_fail}
    assert {check.name for check in CHECKS} - listed == set()
    assert listed <= {check.name for check in CHECKS}, "no list names a check that is gone"


class Refuses(Altered):
    """Raises of its own, raises another error, and fails in a call that nobody asked for."""

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        raise PermissionError(path)

    async def list(self, path: str) -> list[FileStat]:
        try:
            return await self.driver.list(path)
        except FileNotFoundError:
            raise OSError("cannot") from None

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await self.driver.stat(path)
        await self.driver.write(path, data, mode=mode)

    async def stat(self, path: str) -> FileStat:
        return await self.driver.stat(path)


async def test_a_driver_that_raises_of_its_own_is_found(tmp_path: Path) -> None:
    refusals, catalogue = Refusals(), Catalogue("files")
    catalogue.add("refuses", Refuses)
    driver = await refusals.over(catalogue[0], open_memory)(workspace=str(tmp_path))
    await driver.make_dir(f"{driver.workspace}/here")
    for work in (
        driver.read(f"{driver.workspace}/here"), driver.list(f"{driver.workspace}/no"),
        driver.write(f"{driver.workspace}/new", b""), driver.stat(f"{driver.workspace}/no"),
    ):  # fmt: skip
        with pytest.raises(OSError):
            await work
    assert [line.split(",")[0] for line in refusals.found] == ["('read'", "('list'", "('write'"]


async def test_no_two_broken_drivers_have_one_name() -> None:
    assert len({broken.name for broken in BROKEN}) == len(BROKEN)
    assert all(broken.must_fail for broken in BROKEN)


@pytest.mark.long
@pytest.mark.parametrize("broken", MEETS, ids=lambda broken: broken.name)
async def test_a_broken_driver_passes_every_check_that_it_does_not_name(
    broken: Broken, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole matrix; each row is printed."""
    names = [it.name for it in CHECKS]
    refusals = Refusals()
    verdict = await conform(refusals.over(broken, base(broken.base)), only=names, patience=PATIENCE)
    with capsys.disabled():
        print(f"\n{broken.name}: fails {len(failed(verdict))} of {len(names)} in {verdict.seconds:.1f} s")
        print("".join(f"    {name}\n" for name in sorted(failed(verdict))), end="")
    unclaimed = {it.name for it in CHECKS if os.geteuid() == 0 and it.feature in ORDINARY_USER_ONLY}
    assert failed(verdict) == broken.must_fail - out_of_reach(broken) - unclaimed
    assert refusals.found == []
