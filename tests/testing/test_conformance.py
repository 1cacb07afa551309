"""The kit tries every promise of every driver that is shipped, and finds no claim that is broken."""

import threading
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import get_args

import anyio
import anyio.to_thread
import pytest

from handrail.contract.driver import Chunk, Driver, Feature, Mount
from handrail.contract.errors import HandrailError, Unavailable
from handrail.drivers import selftest
from handrail.drivers.attempts import ATTEMPTS
from handrail.drivers.jail import open_jail
from handrail.drivers.memory import MemoryDriver
from handrail.drivers.open import known_drivers
from handrail.drivers.posix import open_posix
from handrail.testing.conformance import CHECKS, CheckVerdict, Opener, conform
from tests.broken import Altered, AlteredProcess

pytestmark = pytest.mark.anyio

SHIPPED = ("jail", "host", "memory")
MOST = 120
"""Seconds that the kit may take; a quiet machine needs five."""
SLOW = {"a command that computes for longer than the limit is ended", "a command cannot use more memory than the limit"}
"""Checks that take seconds, of promises that other checks try too or that no shipped driver claims."""


def opener(name: str) -> Opener:
    found = known_drivers()[name]
    assert not isinstance(found, str), found
    return found


@pytest.mark.parametrize("name", SHIPPED)
async def test_no_claimed_promise_is_broken_and_each_is_tried(name: str) -> None:
    told: list[CheckVerdict] = []
    verdict = await conform(opener(name), only=[it.name for it in CHECKS if it.name not in SLOW], on_check=told.append)
    broken = {it.check.name: it.problem for feature in verdict.broken for it in verdict.guarantees[feature].failed}
    assert broken == {}
    assert not [feature for feature, guarantee in verdict.guarantees.items() if guarantee.standing == "untried"]
    assert len(told) == len(CHECKS) - len(SLOW), "each was told"
    assert 0 < verdict.seconds < MOST
    tried = Counter(it.check.feature for it in told if it.kept)
    assert tried["files"] > 50
    if name == "jail":
        untried = [it.check.name for it in told if not it.tried and it.check.feature in verdict.guarantees]
        assert untried == [], "everything can be tried in the jail"


async def test_without_a_guard_the_host_keeps_what_it_claims(tmp_path: Path) -> None:
    driver = await open_posix(workspace=str(tmp_path))
    await driver.close()
    verdict = await conform(open_posix, only=driver.features)
    assert {it.check.name: it.problem for feature in verdict.broken for it in verdict.guarantees[feature].failed} == {}
    assert set(verdict.guarantees) == driver.features


@pytest.mark.parametrize("name", ["jail", "host"])
async def test_the_self_test_and_the_kit_agree(name: str) -> None:
    """What the kit finds kept and the self-test does not, or the other way round, is a fault in one of them."""
    tried = {"env_isolation", *(attempt.feature for attempt in ATTEMPTS)}
    async with selftest.tested_alone(name, opener(name)) as driver:
        enforced = frozenset(driver.features)
    verdict = await conform(opener(name), only=tried)
    kept = {feature for feature in tried if verdict.guarantees[feature].standing in ("kept", "unclaimed_but_kept")}
    assert kept == enforced & tried
    assert name == "host" or len(kept) > 8, "the control"


async def test_a_jail_without_bash_keeps_what_it_claims(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.touch()
    hidden = [
        Mount(str(nothing), target) for target in ("/usr/bin/bash", "/usr/local/bin/bash") if Path(target).exists()
    ]
    without = partial(open_jail, mounts=hidden)
    driver = await without(workspace=str(tmp_path))
    try:
        assert driver.guard.shell == "sh", "the control"
    finally:
        await driver.close()
    verdict = await conform(without, only=["exec", "stdin", "tree_kill", "live_output", "files"])
    assert {it.check.name: it.problem for feature in verdict.broken for it in verdict.guarantees[feature].failed} == {}
    assert all(guarantee.standing == "kept" for guarantee in verdict.guarantees.values())


async def test_every_check_is_a_sentence_of_its_own_and_every_promise_has_some() -> None:
    assert len(CHECKS) >= 120
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert {check.feature for check in CHECKS} == set(get_args(Feature))
    assert all(len(check.name.split()) >= 3 for check in CHECKS)


async def test_what_is_neither_a_promise_nor_a_check_is_refused() -> None:
    with pytest.raises(HandrailError, match="no promise and no check called 'tree_kil'"):
        await conform(opener("memory"), only=["tree_kil"])


class Stalled(MemoryDriver):
    """Never answers one method."""

    def __init__(self, method: str, workspace: str) -> None:
        super().__init__(workspace=workspace)
        self.method = method

    async def remove(self, path: str) -> None:
        if self.method == "remove":
            await anyio.sleep_forever()
        await super().remove(path)

    async def close(self) -> None:
        if self.method == "close":
            await anyio.sleep_forever()
        await super().close()


async def open_stalled(method: str, *, workspace: str) -> Driver:
    if method == "open":
        await anyio.sleep_forever()
    return Stalled(method, workspace)


@pytest.mark.parametrize("method", ["remove", "close"])
async def test_a_driver_that_never_answers_one_method_breaks_what_needs_it_and_the_kit_ends(method: str) -> None:
    with anyio.fail_after(60):
        verdict = await conform(partial(open_stalled, method), only=["files"], patience=0.05)
    (guarantee,) = verdict.guarantees.values()
    assert guarantee.standing == "broken"
    assert any("no answer within" in check.problem for check in guarantee.failed)
    assert sum(check.kept for check in guarantee.checks) > 10, "the control: the others were tried"


async def test_a_driver_that_waits_in_a_thread_which_nothing_can_end_is_left_to_itself() -> None:
    released = threading.Event()

    class Waits(MemoryDriver):
        async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
            await anyio.to_thread.run_sync(released.wait, 50)
            return b""

    async def opened(*, workspace: str) -> Driver:
        return Waits(workspace=workspace)

    try:
        verdict = await conform(opened, only=["an empty file is read as empty"], patience=0.05)
        (guarantee,) = verdict.guarantees.values()
        assert guarantee.failed[0].problem == "TimeoutError: no answer within 0.5 s"
        assert not released.is_set()
        assert verdict.seconds < 50
    finally:
        released.set()


async def test_a_driver_that_cancels_its_caller_is_told_so() -> None:
    class Cancels(MemoryDriver):
        async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
            raise anyio.get_cancelled_exc_class()

    async def opened(*, workspace: str) -> Driver:
        return Cancels(workspace=workspace)

    verdict = await conform(opened, only=["an empty file is read as empty"])
    (guarantee,) = verdict.guarantees.values()
    assert guarantee.failed[0].problem == "RuntimeError: the driver cancelled the task that called it"


class Lost(AlteredProcess):
    async def output(self) -> AsyncIterator[Chunk]:
        async for chunk in self.process.output():
            yield chunk
            raise Unavailable("the connection was lost")


class Loses(Altered):
    process = Lost


async def test_a_driver_that_dies_in_a_check_of_two_tasks_is_told_by_its_own_words() -> None:
    async def opened(*, workspace: str) -> Driver:
        return Loses(await open_posix(workspace=workspace), {})

    verdict = await conform(opened, only=["megabytes go through both ways at once"])
    (guarantee,) = verdict.guarantees.values()
    assert guarantee.failed[0].problem == "Unavailable: the connection was lost"


async def test_a_driver_that_never_opens_is_given_up() -> None:
    with anyio.fail_after(60), pytest.raises(Unavailable, match=r"did not open and make a directory within 0\.5 s"):
        await conform(partial(open_stalled, "open"), only=["files"], patience=0.05)
