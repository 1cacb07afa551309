"""Find out by trying what a driver really enforces here, once per process and configuration."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any, Final

import anyio
from anyio.lowlevel import RunVar

from handrail.contract.driver import Command, Driver, Feature, Mount, Promise, Standing
from handrail.contract.errors import Unavailable
from handrail.contract.limits import Limits
from handrail.drivers._attempts import (
    ATTEMPTS,
    VARIABLE,
    Attempt,
    NotTried,
    Tried,
    read_tried,
    things_outside,
    try_outside,
    words,
)
from handrail.drivers._guarded import GuardedDriver, GuardedProcess
from handrail.drivers.jail._view import DEFAULT_TMP

PATIENCE: Final = 30.0
"""Seconds for a whole self-test; it takes a small part of one."""
ENDING: Final = 7
"""The code with which the guard's program ends after its attempts."""
PRIVATE: Final = ("/tmp", "/var/tmp", "/dev/shm")
NOTE: Final = "What is called enforced was attacked from inside, once in this process, before it was called so."
FOUND: Final = "found by self-test:"
UNPROVED: Final = "the self-test proves nothing here, because this fails outside the sandbox too"
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """Where a promise does not stand as claimed."""

    feature: Feature
    standing: Standing
    reason: str


_found: dict[Key, tuple[Finding, ...]] = {}
_busy: RunVar[dict[Key, anyio.Lock]] = RunVar("handrail_self_tests")


async def tested(name: str, opener: Callable[..., Awaitable[Driver]], options: Mapping[str, Any]) -> Driver:
    """Open the driver; its report says what was found. Raises Unavailable where it does not work at all.

    A driver that is not kept by our guard is given back as it is: its report is its own word.
    """
    driver = await opener(**options)
    if not isinstance(driver, GuardedDriver):
        return driver
    try:
        findings = await _findings(_key(name, options), driver, options)
    except BaseException:
        await driver.close()
        raise
    _apply(driver, findings)
    return driver


def _key(name: str, options: Mapping[str, Any]) -> Key:
    """What can make a difference: not which workspace it is, nor which mounts, but whether they can be written."""
    kinds = tuple(sorted({mount.writable for mount in options.get("mounts", ())}))
    rest = sorted((word, repr(value)) for word, value in options.items() if word not in ("workspace", "env", "mounts"))
    return (name, os.geteuid(), kinds, tuple(_covered(options)), *rest)


async def _findings(key: Key, driver: GuardedDriver, options: Mapping[str, Any]) -> tuple[Finding, ...]:
    busy = _busy.get({})
    _busy.set(busy)
    async with busy.setdefault(key, anyio.Lock()):
        if key not in _found:
            _found[key] = await _examine(driver, options)
        return _found[key]


def _apply(driver: GuardedDriver, findings: tuple[Finding, ...]) -> None:
    by_feature = {finding.feature: finding for finding in findings}
    promises = []
    for promise in driver.report.promises:
        found = by_feature.get(promise.feature)
        promises.append(Promise(found.feature, found.standing, found.reason) if found else promise)
    driver.report = replace(driver.report, promises=tuple(promises), notes=(*driver.report.notes, NOTE))
    driver.features = driver.report.features
    driver.lost = tuple(promise for promise in promises if promise.feature in by_feature)


async def _examine(driver: GuardedDriver, options: Mapping[str, Any]) -> tuple[Finding, ...]:
    name = driver.name
    try:
        with anyio.fail_after(PATIENCE):
            place = _place(driver, options)
            tree = await _tree(driver, place)
            atomic = await _files_and_streams(driver, place)
            isolation = await _attempts(driver, place, options)
    except TimeoutError:
        raise Unavailable(f"the {name} driver does not work here: it stopped answering in its self-test") from None
    except (OSError, NotTried) as error:
        raise Unavailable(f"the {name} driver does not work here: {error}", retryable=False) from error
    claimed = driver.report.features
    return tuple(finding for finding in (*tree, *atomic, *isolation) if finding.feature in claimed)


async def _attempts(driver: GuardedDriver, place: str, options: Mapping[str, Any]) -> list[Finding]:
    """Everything that one command can try, inside; then what needs a control, outside."""
    attempts = [attempt for attempt in ATTEMPTS if attempt.feature in driver.report.features]
    controls = [attempt for attempt in attempts if attempt.control]
    with things_outside(_shown(driver, options)) as values:
        inside = {**values, **_limits(options), "inside": place}
        beside = {**inside, "inside": os.path.dirname(values["secret"])}
        tried = read_tried(await _run(driver, words(attempts, inside)), attempts)
        outside = await anyio.to_thread.run_sync(try_outside, controls, beside)
    reached = dict(zip(attempts, tried.reached, strict=False))
    return [
        *judge(reached, dict(zip(controls, outside.reached, strict=False))),
        *_environment(driver, tried, outside),
    ]


def _place(driver: GuardedDriver, options: Mapping[str, Any]) -> str:
    """A private directory inside, to make files in: not one of the machine's that covers it."""
    return PRIVATE[-1] if driver.tmp in _covered(options) else driver.tmp


def _covered(options: Mapping[str, Any]) -> list[str]:
    """The private places over which the workspace or a mount lies."""
    mounts: Sequence[Mount] = options.get("mounts", ())
    targets = [os.path.realpath(options["workspace"]), *(mount.target or mount.source for mount in mounts)]
    return [place for place in PRIVATE if any(f"{place}/".startswith(f"{target.rstrip('/')}/") for target in targets)]


def _shown(driver: GuardedDriver, options: Mapping[str, Any]) -> list[str]:
    """What of the machine is inside because it was asked for."""
    mounts: Sequence[Mount] = options.get("mounts", ())
    places = [place for mount in mounts for place in (mount.source, mount.target or mount.source)]
    return [driver.workspace, *map(os.path.realpath, places)]


def _limits(options: Mapping[str, Any]) -> dict[str, str]:
    limits: Limits = options.get("limits") or Limits()
    numbers = {"processes": limits.processes, "open_files": limits.open_files, "file_size": limits.file_size}
    numbers |= {"cpu": None if limits.cpu is None else int(limits.cpu) + 1, "tmp": limits.tmp or DEFAULT_TMP}
    return {name: str(number or 0) for name, number in numbers.items()}


def judge(inside: Mapping[Attempt, bool], outside: Mapping[Attempt, bool]) -> list[Finding]:
    """What the attempts say of each promise, from which got through inside, and outside, where they must.

    An attempt that fails outside too proves nothing: then the promise is not called enforced. Of privileges a machine
    may refuse some to everybody, so there one that gets through outside is enough.
    """
    findings = []
    for feature in dict.fromkeys(attempt.feature for attempt in inside):
        through = [attempt.meaning for attempt, reached in inside.items() if reached and attempt.feature == feature]
        controls = {attempt: reached for attempt, reached in outside.items() if attempt.feature == feature}
        vain = [attempt.meaning for attempt, reached in controls.items() if not reached]
        if through:
            findings.append(Finding(feature, "absent", f"{FOUND} a command inside could {', '.join(through)}"))
        elif vain and (feature != "no_privileges" or len(vain) == len(controls)):
            findings.append(Finding(feature, "advisory", f"{UNPROVED}: {', '.join(vain)}"))
    return findings


def _environment(driver: GuardedDriver, tried: Tried, outside: Tried) -> list[Finding]:
    if VARIABLE not in outside.shown:
        raise NotTried("the control did not show its environment")
    strange = sorted(set(tried.shown) - set(driver.env or ()))
    if not strange:
        return []
    return [Finding("env_isolation", "absent", f"{FOUND} variables that nobody gave: {', '.join(strange[:5])}")]


async def _files_and_streams(driver: GuardedDriver, place: str) -> list[Finding]:
    """A file is replaced while a command holds the old one open, and says so as it goes."""
    path = f"{place}/handrail-self-test-{token_hex(8)}"
    await driver.write(path, b"old")
    try:
        process = await _start(driver, ["--attempt", "hold", path], feed=True)
        await _until(process, b"held\tshown\told")
        await driver.write(path, b"newer")
        await process.send(b"x")
        await process.send(None)
        held = await _rest(process)
        whole, part = await driver.read(path), await driver.read(path, start=1, length=3)
    finally:
        await driver.remove(path)
    if (whole, part) != (b"newer", b"ewe"):
        raise NotTried("a file does not hold what was written into it")
    if b"hold\trefused" in held:
        return []
    return [Finding("atomic_write", "absent", f"{FOUND} a file changed under a command that was reading it")]


async def _tree(driver: GuardedDriver, place: str) -> list[Finding]:
    """A tree that does not want to end is killed; a lock tells whether anything of it lives."""
    path, word = f"{place}/handrail-self-test-{token_hex(8)}", token_hex(16)
    process = await _start(driver, ["--attempt", "linger", path, "stay", word])
    await _until(process, b"lingers")
    held = await _run(driver, ["--attempt", "lock", path, "see", word[::-1]])
    await process.signal("KILL")
    await process.wait()
    free = await _run(driver, ["--attempt", "lock", path])
    await driver.remove(path)
    if b"lock\trefused" not in held:
        raise NotTried("a process that should have been running was not")
    findings = []
    if b"lock\treached" not in free:
        findings.append(Finding("tree_kill", "absent", f"{FOUND} a process survived the killing of its tree"))
    if b"see\treached" in held:
        findings.append(Finding("process_isolation", "absent", f"{FOUND} one command could see another's processes"))
    return findings


async def _start(driver: GuardedDriver, arguments: list[str], *, feed: bool = False) -> GuardedProcess:
    return await driver.start(Command(argv=(driver.program, *arguments), cwd="/", input=feed))


async def _run(driver: GuardedDriver, arguments: list[str]) -> bytes:
    return await _rest(await _start(driver, arguments))


async def _rest(process: GuardedProcess) -> bytes:
    said = b"".join([chunk.data async for chunk in process.output()])
    if await process.wait() != ENDING:
        raise NotTried(f"a command did not end as it should; it said {said[-200:]!r}")
    return said


async def _until(process: GuardedProcess, word: bytes) -> None:
    said = b""
    async for chunk in process.output():
        said += chunk.data
        if word in said:
            return
    raise NotTried(f"a command did not say what it should; it said {said[-200:]!r}")
