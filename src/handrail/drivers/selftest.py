"""Find the features that a driver really enforces here, by attacking it once per process and configuration."""

import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any, Final

import anyio
from anyio.lowlevel import RunVar

from handrail.contract.driver import Command, Driver, Feature, Guarantee, Mount, Standing
from handrail.contract.errors import Unavailable
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver, GuardedProcess
from handrail.drivers._limit_proof import broken_limits, cannot_be_tried, needs_proof, untried
from handrail.drivers.attempts import (
    ATTEMPTS,
    VARIABLE,
    Attempt,
    NotAttempted,
    Tried,
    arguments,
    read_tried,
    targets_outside,
    try_outside,
)
from handrail.drivers.jail import DEFAULT_TMP
from handrail.drivers.limit_table import LIMIT_TABLE, number_of
from handrail.drivers.scratch import make_scratch, remove_scratch
from handrail.threads import in_thread

PATIENCE: Final = 30.0
"""Seconds for a whole self-test; it takes a small part of one."""
ATTEMPTS_DONE: Final = 7
"""The exit code of the guard's program when it has made all its attempts."""
PRIVATE: Final = ("/tmp", "/var/tmp", "/dev/shm")
NOTE: Final = "Everything reported as enforced was attacked from inside first, once in this process."
FOUND: Final = "found by self-test:"
UNPROVED: Final = "the self-test proves nothing here, because this fails outside the sandbox too"
_SAME: Final = ("workspace", "env", "mounts", "git_identity", "virtual_env")
"""Options that do not change the findings of a self-test."""
Key = tuple[object, ...]
EVERY: Final = Limits(memory=256 << 20, cpu=60.0, file_size=1 << 30, workspace=64 << 20)
"""Limits of which none is None, so that a self-test attacks each."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A promise that is weaker than claimed."""

    feature: Feature
    standing: Standing
    reason: str


_found: dict[Key, tuple[Finding, ...]] = {}
_busy: RunVar[dict[Key, anyio.Lock]] = RunVar("handrail_self_tests")


async def tested(name: str, opener: Callable[..., Awaitable[Driver]], options: Mapping[str, Any]) -> Driver:
    """Open the driver with a report of the findings. Raises Unavailable if the driver does not work at all.

    A driver without our guard is returned as it is, with its own claim as the report.
    """
    driver = await opener(**options)
    if not isinstance(driver, GuardedDriver):
        return driver
    try:
        findings = await _findings(_key(name, options), driver, opener, options)
    except BaseException:
        await driver.close()
        raise
    _apply(driver, findings, untried(driver, options.get("limits") or Limits()))
    return driver


@asynccontextmanager
async def tested_alone(name: str, opener: Callable[..., Awaitable[Driver]]) -> AsyncIterator[Driver]:
    """Open the driver on an empty directory, as `tested` does; close it and remove the directory at the end.

    Every limit is set, so that each is attacked.
    """
    workspace = make_scratch()
    try:
        takes_limits = "limits" in inspect.signature(opener).parameters
        driver = await tested(name, opener, {"workspace": workspace} | ({"limits": EVERY} if takes_limits else {}))
        try:
            yield driver
        finally:
            await driver.close()
    finally:
        remove_scratch(workspace)


def _key(name: str, options: Mapping[str, Any]) -> Key:
    """Return the options that can change the findings; of mounts, only whether they are writable."""
    kinds = tuple(sorted({mount.writable for mount in options.get("mounts", ())}))
    rest = sorted((key, repr(value)) for key, value in options.items() if key not in _SAME)
    return (name, os.geteuid(), kinds, tuple(_covered(options)), *rest)


async def _findings(
    key: Key, driver: GuardedDriver, opener: Callable[..., Awaitable[Driver]], options: Mapping[str, Any]
) -> tuple[Finding, ...]:
    busy = _busy.get({})
    _busy.set(busy)
    async with busy.setdefault(key, anyio.Lock()):
        if key not in _found:
            _found[key] = await _examine(driver, opener, options)
        return _found[key]


def _apply(driver: GuardedDriver, findings: tuple[Finding, ...], facts: tuple[str, ...]) -> None:
    by_feature = {finding.feature: finding for finding in findings}
    guarantees = []
    for guarantee in driver.report.guarantees:
        found = by_feature.get(guarantee.feature)
        guarantees.append(Guarantee(found.feature, found.standing, found.reason) if found else guarantee)
    driver.report = replace(driver.report, guarantees=tuple(guarantees), facts=(*driver.report.facts, NOTE, *facts))
    driver.features = driver.report.features
    driver.lost = tuple(guarantee for guarantee in guarantees if guarantee.feature in by_feature)


async def _examine(
    driver: GuardedDriver, opener: Callable[..., Awaitable[Driver]], options: Mapping[str, Any]
) -> tuple[Finding, ...]:
    name = driver.name
    try:
        with anyio.fail_after(PATIENCE):
            directory = _private_directory(driver, options)
            tree = await _tree(driver, directory)
            atomic = await _files_and_streams(driver, directory)
            isolation = await _attempts(driver, directory, options)
            limits = await broken_limits(driver, opener, options)
    except TimeoutError:
        raise Unavailable(f"the {name} driver does not work here: it stopped answering in its self-test") from None
    except (OSError, NotAttempted) as error:
        raise Unavailable(f"the {name} driver does not work here: {error}", retryable=False) from error
    low = [Finding(row.feature, "absent", f"{FOUND} a command inside could {meaning}") for row, meaning in limits]
    claimed = driver.report.features
    return tuple(finding for finding in (*tree, *atomic, *isolation, *low) if finding.feature in claimed)


async def _attempts(driver: GuardedDriver, directory: str, options: Mapping[str, Any]) -> list[Finding]:
    """Everything that one command can attempt, inside; then the attempts that need a control, outside."""
    limits: Limits = options.get("limits") or Limits()
    elsewhere = {row.feature for row in LIMIT_TABLE if needs_proof(row, limits)}
    claimed = driver.report.features - elsewhere - cannot_be_tried(limits)
    attempts = [attempt for attempt in ATTEMPTS if attempt.feature in claimed]
    controls = [attempt for attempt in attempts if attempt.control]
    with targets_outside(_visible(driver, options)) as values:
        inside = {**values, **_limits(driver, limits), "inside": directory}
        beside = {**inside, "inside": os.path.dirname(values["secret"])}
        tried = read_tried(await _run(driver, arguments(attempts, inside)), attempts)
        outside = await in_thread(try_outside, controls, beside)
    reached = dict(zip(attempts, tried.reached, strict=False))
    return [
        *weigh(reached, dict(zip(controls, outside.reached, strict=False))),
        *_environment(driver, tried, outside),
    ]


def _private_directory(driver: GuardedDriver, options: Mapping[str, Any]) -> str:
    """A directory of the sandbox's own to make files in: not one that the workspace or a mount covers."""
    return PRIVATE[-1] if driver.tmp in _covered(options) else driver.tmp


def _covered(options: Mapping[str, Any]) -> list[str]:
    """The private directories that the workspace or a mount covers."""
    mounts: Sequence[Mount] = options.get("mounts", ())
    targets = [os.path.realpath(options["workspace"]), *(mount.target or mount.source for mount in mounts)]
    return [path for path in PRIVATE if any(f"{path}/".startswith(f"{target.rstrip('/')}/") for target in targets)]


def _visible(driver: GuardedDriver, options: Mapping[str, Any]) -> list[str]:
    """The paths of the machine that are inside because they were asked for."""
    mounts: Sequence[Mount] = options.get("mounts", ())
    paths = [path for mount in mounts for path in (mount.source, mount.target or mount.source)]
    return [driver.workspace, *map(os.path.realpath, paths)]


def _limits(driver: GuardedDriver, limits: Limits) -> dict[str, str]:
    """The limits, as the arguments of attempts, and the directories that have a size."""
    numbers = {row.name: str(number_of(limits, row.name) or 0) for row in LIMIT_TABLE}
    numbers |= {"tmp": str(number_of(limits, "tmp") or DEFAULT_TMP), "workspace_size": numbers["workspace"]}
    return numbers | {"home": PRIVATE[-1]} | dict(driver.spaces)


def weigh(inside: Mapping[Attempt, bool], outside: Mapping[Attempt, bool]) -> list[Finding]:
    """Return the guarantees that are broken or not proved: an attempt succeeded inside, or failed outside.

    An attempt that fails outside too proves nothing: then the promise is not reported as enforced. A machine may
    refuse some privileges to everybody, so there one attempt that succeeds outside is enough.
    """
    findings = []
    for feature in dict.fromkeys(attempt.feature for attempt in inside):
        succeeded = [attempt.meaning for attempt, reached in inside.items() if reached and attempt.feature == feature]
        controls = {attempt: reached for attempt, reached in outside.items() if attempt.feature == feature}
        failed = [attempt.meaning for attempt, reached in controls.items() if not reached]
        if succeeded:
            findings.append(Finding(feature, "absent", f"{FOUND} a command inside could {', '.join(succeeded)}"))
        elif failed and (feature != "no_privileges" or len(failed) == len(controls)):
            findings.append(Finding(feature, "advisory", f"{UNPROVED}: {', '.join(failed)}"))
    return findings


def _environment(driver: GuardedDriver, tried: Tried, outside: Tried) -> list[Finding]:
    if VARIABLE not in outside.variables:
        raise NotAttempted("the control did not print its environment")
    strange = sorted(set(tried.variables) - set(driver.env or ()))
    if not strange:
        return []
    return [Finding("env_isolation", "absent", f"{FOUND} variables that nobody set: {', '.join(strange[:5])}")]


async def _files_and_streams(driver: GuardedDriver, directory: str) -> list[Finding]:
    """Replace a file while a command has the old file open and reports its content."""
    path = f"{directory}/handrail-self-test-{token_hex(8)}"
    await driver.write(path, b"old")
    try:
        process = await _start(driver, ["--attempt", "hold", path], feed=True)
        await _until(process, b"held\tshown\told")
        await driver.write(path, b"newer")
        await process.send(b"x")
        await process.send(None)
        printed = await _rest(process)
        whole, part = await driver.read(path), await driver.read(path, start=1, length=3)
    finally:
        await driver.remove(path)
    if (whole, part) != (b"newer", b"ewe"):
        raise NotAttempted("a file does not contain what was written into it")
    if b"hold\trefused" in printed:
        return []
    return [Finding("atomic_write", "absent", f"{FOUND} a file changed under a command that was reading it")]


async def _tree(driver: GuardedDriver, directory: str) -> list[Finding]:
    """Kill a tree that ignores every signal it can; a lock tells whether one of its processes lives."""
    path, mark = f"{directory}/handrail-self-test-{token_hex(8)}", token_hex(16)
    process = await _start(driver, ["--attempt", "linger", path, "stay", mark])
    await _until(process, b"lingers")
    before = await _run(driver, ["--attempt", "lock", path, "see", mark[::-1]])
    await process.signal("KILL")
    await process.wait()
    after = await _run(driver, ["--attempt", "lock", path])
    await driver.remove(path)
    if b"lock\trefused" not in before:
        raise NotAttempted("a process that should have been running was not")
    findings = []
    if b"lock\treached" not in after:
        findings.append(Finding("tree_kill", "absent", f"{FOUND} a process survived when its tree was killed"))
    if b"see\treached" in before:
        findings.append(Finding("process_isolation", "absent", f"{FOUND} one command could see another's processes"))
    return findings


async def _start(driver: GuardedDriver, arguments: list[str], *, feed: bool = False) -> GuardedProcess:
    return await driver.start(Command(argv=(driver.program, *arguments), cwd="/", input=feed))


async def _run(driver: GuardedDriver, arguments: list[str]) -> bytes:
    return await _rest(await _start(driver, arguments))


async def _rest(process: GuardedProcess) -> bytes:
    printed = b"".join([chunk.data async for chunk in process.output()])
    if await process.wait() != ATTEMPTS_DONE:
        raise NotAttempted(f"a command did not end as it should; it printed {printed[-200:]!r}")
    return printed


async def _until(process: GuardedProcess, text: bytes) -> None:
    printed = b""
    async for chunk in process.output():
        printed += chunk.data
        if text in printed:
            return
    raise NotAttempted(f"a command did not print what it should; it printed {printed[-200:]!r}")
