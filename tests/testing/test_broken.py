"""Every check can be seen to fail: each broken driver fails exactly the checks that it names."""

import os
import tempfile

import pytest

from handrail.contract.driver import Feature
from handrail.drivers.attempts import ATTEMPTS, targets_outside, try_outside
from handrail.drivers.memory import open_memory
from handrail.drivers.open import known_drivers
from handrail.drivers.posix import open_posix
from handrail.testing.broken import BROKEN, Broken, bounded
from handrail.testing.conformance import CHECKS, DriverVerdict, Opener, conform

pytestmark = pytest.mark.anyio

PATIENCE = 4.0
"""Seconds that a broken driver keeps a check waiting."""
SLOW = {"a command that computes for longer than the limit is ended"}
ORDINARY_USER_ONLY: set[Feature] = {"limit_processes"}
"""What the jail does not enforce for root, because the kernel does not."""
IN_MEMORY = {
    check.name for check in CHECKS if check.feature in ("files", "range_read") and "exec" not in check.needs
} - {"writes at the same time all arrive"}
"""Checks that take a thousandth of the time on the memory driver; it does nothing at the same time."""


def base(name: str) -> Opener:
    jail = known_drivers()["jail"]
    assert not isinstance(jail, str), jail
    return {"jail": jail, "posix": open_posix, "bounded": bounded(jail), "memory": open_memory}[name]


def failed(verdict: DriverVerdict) -> set[str]:
    claimed = [promise for promise in verdict.promises.values() if promise.standing in ("kept", "broken")]
    return {check.check.name for promise in claimed for check in promise.failed}


def own_checks(broken: Broken) -> tuple[str, list[str]]:
    """Where it meets the checks of its promise, and which: in memory if it fails there too."""
    names = [check.name for check in CHECKS if check.feature == broken.feature and check.name not in SLOW]
    if broken.must_fail & IN_MEMORY and broken.feature in ("files", "range_read"):
        return "memory", [name for name in names if name in IN_MEMORY]
    return broken.base, names


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
    and (it.name != SHOWS_TMP or tempfile.gettempdir() == "/tmp")
]


@pytest.mark.parametrize("broken", MEETS, ids=lambda broken: broken.name)
async def test_a_broken_driver_fails_exactly_what_it_names_of_its_promise(broken: Broken) -> None:
    where, names = own_checks(broken)
    workers = 4 if broken.feature == "tree_kill" else 2  # each opens a sandbox; where much is waited for, more of them
    verdict = await conform(broken.over(base(where)), only=names, patience=PATIENCE, workers=workers)
    assert broken.must_fail & set(names), "the control: it has something to fail"
    assert failed(verdict) == (broken.must_fail & set(names)) - out_of_reach(broken)


async def test_every_check_has_a_broken_driver_that_it_catches() -> None:
    caught = {name for broken in BROKEN for name in broken.must_fail}
    assert {check.name for check in CHECKS} - caught == set()
    assert caught <= {check.name for check in CHECKS}, "no list names a check that is gone"


async def test_no_two_broken_drivers_have_one_name() -> None:
    assert len({broken.name for broken in BROKEN}) == len(BROKEN)
    assert all(broken.must_fail for broken in BROKEN)


@pytest.mark.long
@pytest.mark.parametrize("broken", MEETS, ids=lambda broken: broken.name)
async def test_a_broken_driver_passes_every_check_that_it_does_not_name(
    broken: Broken, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole matrix; each row is printed."""
    bounds = {"limit_memory", "limit_workspace"}
    names = [it.name for it in CHECKS if (it.feature in bounds) == (broken.base == "bounded")]
    verdict = await conform(broken.over(base(broken.base)), only=names, patience=PATIENCE)
    with capsys.disabled():
        print(f"\n{broken.name}: fails {len(failed(verdict))} of {len(names)} in {verdict.seconds:.1f} s")
        print("".join(f"    {name}\n" for name in sorted(failed(verdict))), end="")
    assert failed(verdict) == broken.must_fail - out_of_reach(broken)
