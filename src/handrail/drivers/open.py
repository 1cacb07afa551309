"""Open a sandbox with the strongest driver of this machine, or with the one asked for; never silently a weaker one."""

import importlib.metadata
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import lru_cache, partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from handrail.aio import finish, refuse_other_loops
from handrail.contract.driver import Driver, Mount
from handrail.contract.errors import HandrailError, Unavailable, WeakerThanAsked
from handrail.contract.limits import Limits
from handrail.lazy import Lazy, load_all
from handrail.misuse import AsyncWith, nearest
from handrail.sandbox.report import report_of
from handrail.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from handrail.drivers import _options
    from handrail.drivers import host as _host
    from handrail.drivers import jail as _jail
    from handrail.drivers import memory as _memory
    from handrail.drivers import posix as _posix
    from handrail.drivers import scratch as _scratch
    from handrail.drivers import selftest as _selftest
    from handrail.drivers.guard import build as _build
    from handrail.drivers.guard import sealed as _sealed
else:  # a program without a sandbox needs none of them
    _host = Lazy("handrail.drivers.host")
    _jail = Lazy("handrail.drivers.jail")
    _memory = Lazy("handrail.drivers.memory")
    _options = Lazy("handrail.drivers._options")
    _posix = Lazy("handrail.drivers.posix")
    _scratch = Lazy("handrail.drivers.scratch")
    _selftest = Lazy("handrail.drivers.selftest")
    _build = Lazy("handrail.drivers.guard.build")
    _sealed = Lazy("handrail.drivers.guard.sealed")

Opener = Callable[..., Awaitable[Driver]]
GROUP: Final = "handrail.drivers"
"""The entry point group by which other packages add drivers: each names an async function like `open_jail`."""
WALLS: Final = frozenset(
    {"file_isolation", "env_isolation", "process_isolation", "network_isolation", "no_privileges", "tree_kill"}
)
"""A sandbox that lacks one of these is opened only with allow_weaker=True."""
EXPOSED: Final = (
    "Commands can change directories that this process imports from ({}). All of Handrail was loaded before the first "
    "command; import what your program needs before that too. isolate=True tools import anew in each call."
)
EXPOSED_LISTED: Final = 5
_OWN_SOURCES: Final = str(Path(__file__).parents[2])
NEEDS_LINUX: Final = "it needs Linux"
WEAK: Final = frozenset({"host"})
"""Drivers that isolate nothing: they need allow_weaker=True."""
BUILT_IN: Final = ("jail", "host", "memory")


def known_drivers(system: str = sys.platform) -> dict[str, Opener | str]:
    """Return the opener of each driver by name, or the reason why the driver cannot be used.

    A plugin whose name is taken is not loaded; it is listed as `name=its entry point`.
    """
    known: dict[str, Opener | str] = {
        "jail": _jail.open_jail if system == "linux" else NEEDS_LINUX,
        "host": _host_opener(system),
        "memory": _memory.open_memory,
    }
    for point in _plugins(tuple((entry, _changed(entry)) for entry in sys.path)):
        if point.name in known or point.name == "auto":
            whose = "another plugin's" if point.name not in (*BUILT_IN, "auto") else "a built-in driver's"
            known[f"{point.name}={point.value}"] = f"{point.name} is {whose} name, and the plugin was not loaded"
            continue
        try:
            known[point.name] = point.load()
        except Exception as error:  # noqa: BLE001 - a broken plugin is reported and does not stop the rest
            known[point.name] = f"its package cannot be loaded: {type(error).__name__}: {error}"
    return known


@lru_cache(maxsize=1)
def _plugins(_: tuple[tuple[str, int], ...]) -> tuple[importlib.metadata.EntryPoint, ...]:
    """Return the installed entry points; package files are read again only after a change."""
    return tuple(importlib.metadata.entry_points(group=GROUP))


def _changed(directory: str) -> int:
    try:
        return os.stat(directory or ".").st_mtime_ns
    except OSError:
        return 0


def _has_guard(system: str) -> bool:
    return system == "linux" and _build.PROGRAM.exists()


def _host_opener(system: str) -> Opener:
    """Opens the driver host: with the guard where there is one, elsewhere with process groups."""
    return _host.open_host if _has_guard(system) else _posix.open_posix


async def open_own_guard(env: Mapping[str, str] | None = None, *, privileges: bool = False) -> Driver:
    """Open a driver for this process's own programs, which kills their trees, or without a guard their groups.

    `env` is the programs' whole environment; this process's own if None. Root's programs have no capabilities, unless
    they keep their `privileges`.
    """
    opener = _host.open_own if _has_guard(sys.platform) else _posix.open_own
    return await opener(env, privileges=privileges)


def open_sandbox(
    driver: str | Driver = "auto", *, workspace: str | PathLike[str] | None = None, limits: Limits = Limits(),
    network: str = "none", env: Mapping[str, str] | None = None, mounts: Sequence[Mount] = (),
    git_identity: tuple[str, str] | None = None, virtual_env: str | None = None, allow_weaker: bool = False,
    **driver_options: Any,
) -> AbstractAsyncContextManager[Sandbox]:  # fmt: skip
    """Open a sandbox on `workspace`, or on a directory of its own. Nothing is left running when the block ends.

    Args:
        driver: "auto" takes the jail if its self-test passes. Or "jail", "host", an installed one, or a Driver.
        workspace: a directory of this machine, in which commands start.
        limits: what commands may use.
        network: "none", or "full" for this machine's own network.
        env: variables that commands see, besides the fixed ones.
        mounts: other directories and files of this machine that appear inside.
        git_identity: a name and an email address for commits; the repository's own configuration beats it.
        virtual_env: the virtual environment whose programs come first, instead of the workspace's `.venv`.
        allow_weaker: take what this machine offers, even if it isolates less.
        **driver_options: what this driver takes besides.

    Raises:
        WeakerThanAsked: only weaker isolation is possible here, and `allow_weaker` was not given; says what to do.
        HandrailError: an unknown driver, or options that cannot be used.
        OSError: the workspace or a mount does not exist, or cannot be used.
        Unavailable: the driver does not work here.

    Example:
        ```python
        async with open_sandbox(limits=Limits(processes=64)) as sandbox:
            print((await sandbox.run("echo hello", timeout=10)).stdout)
        #> hello
        ```
    """
    refuse_other_loops("A sandbox")
    options = {"workspace": workspace, "limits": limits, "network": network, "env": env, "mounts": mounts}
    asked = {"git_identity": git_identity, "virtual_env": virtual_env}
    options |= driver_options | {name: value for name, value in asked.items() if value is not None}
    _options.check_given(driver, options, allow_weaker)
    _check_names(driver, options, driver_options)
    return SandboxNotEntered(driver, options, allow_weaker)


class SandboxNotEntered(AbstractAsyncContextManager[Sandbox], AsyncWith):
    """A sandbox that `async with` opens. Using it before raises an AttributeError with advice."""

    def __init__(self, driver: str | Driver, options: dict[str, Any], allow_weaker: bool) -> None:
        self._open = partial(_opened, driver, options, allow_weaker)
        self._named = repr(driver) if isinstance(driver, str) else type(driver).__name__
        self._opening: AbstractAsyncContextManager[Sandbox] | None = None

    def __repr__(self) -> str:
        return f"<open_sandbox({self._named}), {'not ' if self._opening is None else ''}entered>"

    async def __aenter__(self) -> Sandbox:
        if self._opening is not None:
            raise HandrailError(f"{self!r} is entered already; write `as sandbox`, and use that")
        self._opening = self._open()
        return await self._opening.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        opening, self._opening = self._opening, None
        return None if opening is None else await opening.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            write = f"write `async with open_sandbox({self._named}) as sandbox:` and use sandbox.{name}"
            raise AttributeError(f"{self!r} has no {name!r}: {write}", name=name, obj=self)


@asynccontextmanager
async def _opened(driver: str | Driver, options: dict[str, Any], allow_weaker: bool) -> AsyncIterator[Sandbox]:
    workspace, mounts = options["workspace"], options["mounts"]
    own = _scratch.make_scratch() if workspace is None and isinstance(driver, str) and driver != "memory" else None
    options = {**options, "workspace": workspace or own or "/workspace"}
    try:
        opened = await _open(driver, options, allow_weaker) if isinstance(driver, str) else driver
        async with Sandbox(opened) as sandbox:
            if exposed := _exposed(opened, mounts):
                load_all()
                if _has_guard(sys.platform):
                    _sealed.runnable()
                sandbox._report = replace(sandbox.report, notes=(*sandbox.report.notes, _warning(exposed)))
            yield sandbox
    finally:
        if own is not None:
            _scratch.remove_scratch(own)


async def _open(name: str, options: dict[str, Any], allow_weaker: bool) -> Driver:
    if name == "auto":
        return await _strongest(options, allow_weaker)
    known = known_drivers()
    opener = _opener(name, known, options)
    if name in WEAK and not allow_weaker:
        raise WeakerThanAsked(f"the {name} driver isolates nothing; give ", " if you want that, or use auto")
    tested = await _selftest.tested(name, opener, _options.taken(name, opener, options))
    return _with_notes(await _as_strong(tested, allow_weaker), _claims(known, name))


def _check_names(driver: str | Driver, options: Mapping[str, Any], driver_options: Mapping[str, Any]) -> None:
    """Raise HandrailError for an unknown driver or option. Plugins are only looked for where one may be meant."""
    if isinstance(driver, str) and (driver_options or driver not in (*BUILT_IN, "auto")):
        _opener(driver, known_drivers(), options)


def _opener(name: str, known: Mapping[str, Opener | str], options: Mapping[str, Any]) -> Opener:
    """Return the opener of a driver. Raises HandrailError if the driver is unusable here, or has no such option."""
    opener = _jail.open_jail if name == "auto" else known.get(name)
    if opener is None:
        raise HandrailError(f"there is no driver {name!r}; {nearest(name, ['auto', *known])}")
    if isinstance(opener, str):
        raise HandrailError(f"the driver {name!r} cannot be used here: {opener}; there are {_usable(known)}")
    _options.taken("jail" if name == "auto" else name, opener, options)
    return opener


def _claims(known: Mapping[str, Opener | str], name: str) -> list[str]:
    """Notes about plugins that claim the name of this driver."""
    return [f"Ignored {key}: {why}." for key, why in known.items() if key.startswith(f"{name}=")]


def _with_notes(driver: Any, notes: Sequence[str]) -> Driver:
    if notes:
        report = report_of(driver)
        driver.report = replace(report, notes=(*report.notes, *notes))
    noted: Driver = driver
    return noted


async def _as_strong(driver: Driver, allow_weaker: bool) -> Driver:
    """The driver. Raises WeakerThanAsked when its self-test found a wall missing, unless that is allowed."""
    lost = [guarantee for guarantee in getattr(driver, "lost", ()) if guarantee.feature in WALLS]
    if not lost or allow_weaker:
        return driver
    await finish(driver.close)
    raise WeakerThanAsked(
        "; ".join(f"{guarantee.feature} is {guarantee.standing}: {guarantee.reason}" for guarantee in lost)
        + ". `handrail doctor` tells more; ",
        " uses the sandbox as it is",
    )


def _usable(known: Mapping[str, Opener | str]) -> str:
    return ", ".join(sorted(name for name, opener in known.items() if not isinstance(opener, str)))


async def _strongest(options: dict[str, Any], allow_weaker: bool) -> Driver:
    known = known_drivers()
    _opener("auto", known, options)
    try:
        if isinstance(known["jail"], str):
            raise Unavailable(known["jail"], retryable=False)
        jail = await _as_strong(await _selftest.tested("jail", _jail.open_jail, options), allow_weaker)
        return _with_notes(jail, [*_claims(known, "auto"), *_claims(known, "jail")])
    except Unavailable as error:
        if allow_weaker:
            given = {name: value for name, value in options.items() if name in _options.COMMON}
            host = await _selftest.tested("host", _host_opener(sys.platform), given)
            return _with_notes(host, [f"Used because no jail can be made here: {error}", *_claims(known, "auto")])
        raise WeakerThanAsked(
            f"no jail can be made here: {error}. `handrail doctor` tells more; ",
            " runs commands on this machine without isolation",
        ) from error


def _warning(exposed: Sequence[str]) -> str:
    more = f" and {len(exposed) - EXPOSED_LISTED} more" if len(exposed) > EXPOSED_LISTED else ""
    return EXPOSED.format(", ".join(exposed[:EXPOSED_LISTED]) + more)


def _exposed(driver: Driver, mounts: Sequence[Mount]) -> list[str]:
    """The directories that this process imports from and commands can change: they could plant a module there."""
    name, workspace = report_of(driver).driver, getattr(driver, "workspace", None)
    if name == "memory" or not isinstance(workspace, str):
        return []
    paths = list(dict.fromkeys(os.path.realpath(entry) for entry in (*sys.path, _OWN_SOURCES)))
    if name == "host":
        return [path for path in paths if _writable(path)]
    tops = [os.path.realpath(each) for each in (workspace, *(mount.source for mount in mounts if mount.writable))]
    is_below = _options.is_below
    safe = [path for path in _jail.interpreter_dirs() if name == "jail" and _stays(path, tops)]
    return [path for path in paths if is_below(path, tops) and not is_below(path, safe)]


def _stays(path: str, tops: Sequence[str]) -> bool:
    """Whether commands cannot move a read-only directory away by renaming one above it."""
    return path not in tops and (os.path.dirname(path) in tops or not _options.is_below(path, tops))


def _writable(path: str) -> bool:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.access(path, os.W_OK)
