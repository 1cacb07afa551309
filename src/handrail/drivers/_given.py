"""Check what `open_sandbox` is given before anything is opened; each error says what to write."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from handrail.contract.driver import Mount
from handrail.contract.errors import HandrailError
from handrail.contract.limits import Limits
from handrail.misuse import expect, nearest, refuse, shown
from handrail.sandbox.checks import environment

NETWORKS: Final = "network='none', or network='full' for this machine's own network"


def check_given(driver: object, options: dict[str, Any], allow_weaker: object, defaults: Mapping[str, Any]) -> None:
    """Raise HandrailError for a driver or an option of the wrong type; `options` are made plain where they may vary."""
    _check_driver(driver)
    expect("allow_weaker", allow_weaker, bool, "True or False")
    options["workspace"] = _workspace(options["workspace"])
    expect("limits", options["limits"], Limits, "Limits(memory=512 * 1024**2), or leave it out")
    expect("network", options["network"], str, NETWORKS)
    if options["env"] is not None:
        options["env"] = _env(options["env"])
    options["mounts"] = _mounts(options["mounts"])
    if not isinstance(driver, str):
        ignored = [name for name, value in options.items() if name not in defaults or value != defaults[name]]
        if ignored:
            raise HandrailError(
                f"open_sandbox() was given {', '.join(ignored)} together with a driver that is open already: give "
                f"{'it' if len(ignored) == 1 else 'them'} to {type(driver).__name__} itself"
            )


def _check_driver(driver: object) -> None:
    if isinstance(driver, str):
        if "/" in driver or driver.startswith((".", "~")):
            refuse("the driver", driver, f"open_sandbox(workspace={driver!r})")
    elif driver is None or isinstance(driver, type | os.PathLike):
        refuse("the driver", driver, "the name of one, such as 'jail', or an object, or leave it out")


def _workspace(workspace: object) -> str | None:
    if workspace is None:
        return None
    if not isinstance(workspace, str | os.PathLike):
        refuse("workspace", workspace, "the path of a directory, or leave it out for a temporary one")
    path = os.fspath(workspace)
    if not isinstance(path, str) or not path:
        raise HandrailError("the workspace is an empty path: give a directory, or leave it out for a temporary one")
    if path == "~" or path.startswith("~/"):
        refuse("workspace", path, f"os.path.expanduser({path!r}): only a shell expands ~")
    return path


def _env(env: Any) -> dict[str, str]:
    try:
        return environment(env)
    except ValueError as error:
        raise HandrailError(str(error)) from None


def _mounts(mounts: Any) -> list[Mount]:
    if isinstance(mounts, str | os.PathLike | Mount | Mapping) or not isinstance(mounts, Iterable):
        one = f"Mount({os.fspath(mounts)!r})" if isinstance(mounts, str | os.PathLike) else "Mount('/data')"
        refuse("mounts", mounts, f"a list, even of one: [{one}]")
    listed = list(mounts)
    for each in listed:
        if isinstance(each, str | os.PathLike):
            path, _, rest = os.fspath(each).partition(":")
            target = f", {rest.partition(':')[0]!r}" if rest else ""
            refuse("one of the mounts", each, f"Mount({path!r}{target})")
        if isinstance(each, tuple):
            refuse("one of the mounts", each, f"Mount({', '.join(map(shown, each))})")
        expect("one of the mounts", each, Mount, "Mount('/data')")
    return listed


def taken(
    driver: str, opener: Callable[..., Any], options: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """The options that the driver takes; what nobody asked for is left out where it takes no such option.

    Raises HandrailError for one that was asked for, naming the one that is meant.
    """
    known = inspect.signature(opener).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return dict(options)
    for name, value in options.items():
        if name in known or (name in defaults and value == defaults[name]):
            continue
        if name in Limits.__dataclass_fields__:
            advice = f"it is a limit: write limits=Limits({name}=…)"
        else:
            advice = nearest(name, {*known, "allow_weaker"})
        raise HandrailError(f"the {driver} driver has no option {name!r}; {advice}")
    return {name: value for name, value in options.items() if name in known}
