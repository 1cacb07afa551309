"""Tell whether a rule means a call: by its tool, or by its arguments, paths followed to where they really lead."""

import json
import posixpath
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from handrail.contract.errors import Unavailable
from handrail.policy._shell import shell_forbids, shell_matches
from handrail.policy.glob import SPECIAL, absolute, absolute_glob, escape, glob_matches, literal, path_matches
from handrail.policy.rule import COMMAND_NAMES, FIELD, SHELL_TOOLS, Rule, ToolTraits, is_path_name, looks_like_path
from handrail.schema.references import references

LONGEST_PATH: Final = 4_096
LONGEST_NAME: Final = 255
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Place:
    """Where relative paths begin, and how a path is followed through links. Real paths raise OSError."""

    base: str
    real_path: Callable[[str], Awaitable[str]]


async def matches(
    rule: Rule,
    tool: ToolTraits,
    arguments: Mapping[str, Any],
    places: Iterable[Place],
    *,
    forbids: bool = False,
    exact: bool = False,
) -> bool | None:
    """None when that cannot be told. A rule that forbids means a call if any part fits; one that allows, if all do.

    `exact`: a rule that a person made by looking at one value means that value to the letter.
    """
    if not rule.is_about(tool.name, tool.risk, tool.effects):
        return False
    if rule.inner is None:
        return True
    name, glob = named_property(rule.inner, tool)
    value = _MISSING if name is None else arguments.get(name, _default(tool, name))
    if name is None or value is _MISSING:
        return False
    if exact and literal(glob) not in (None, text_of(value)):
        return False
    if isinstance(value, list) and not forbids and not is_path_name(name) and literal(glob) == text_of(value):
        return True  # the whole list, to the letter
    values = value if isinstance(value, list) else [value]
    found = [await _one(glob, name, item, tool, places, forbids) for item in values]
    return _together(found, forbids)


def named_property(inner: str, tool: ToolTraits) -> tuple[str | None, str]:
    """The property a rule speaks of, and the glob: `field=glob`, or a glob on the first required property."""
    named = FIELD.fullmatch(inner)
    if named and named["field"] in (tool.parameters.get("properties") or {}):
        return named["field"], named["glob"]
    return first_property(tool), inner


def first_property(tool: ToolTraits) -> str | None:
    """The first that is required, else the first."""
    names = tool.parameters.get("required") or list(tool.parameters.get("properties") or ())
    return names[0] if names else None


def _default(tool: ToolTraits, name: str) -> Any:
    """What the body will see when a property is left out, as far as the schema says it."""
    schema = (tool.parameters.get("properties") or {}).get(name)
    return schema.get("default", _MISSING) if isinstance(schema, Mapping) else _MISSING


def text_of(value: Any) -> str:
    """The text that a glob stands against."""
    if isinstance(value, str):
        return value
    return str(value) if type(value) is int else json.dumps(value, ensure_ascii=False, default=str)


async def _one(
    glob: str, name: str, value: Any, tool: ToolTraits, places: Iterable[Place], forbids: bool
) -> bool | None:
    if isinstance(value, Mapping | list) and any(True for _ in references([value])):
        return None  # what stands there is filled in later
    text = text_of(value)
    if name in COMMAND_NAMES or (name == first_property(tool) and tool.name in SHELL_TOOLS):
        return shell_forbids(glob, text) if forbids else shell_matches(glob, text)
    if is_path(tool, name):
        return _together([await _path(glob, text, place, forbids) for place in places], forbids)
    found: bool | None = glob_matches(glob, text)
    if not found and forbids and looks_like_path(glob):
        found = _together([await _path(glob, text, place, forbids) for place in places], forbids)
    return found


def is_path(tool: ToolTraits, name: str) -> bool:
    """Whether a property holds a path, by its name or its format."""
    schema = (tool.parameters.get("properties") or {}).get(name)
    return is_path_name(name) or (isinstance(schema, Mapping) and "path" in str(schema.get("format", "")))


async def _path(glob: str, path: str, place: Place, forbids: bool) -> bool | None:
    """Both the path as it is written and the file it leads to."""
    if len(path) > LONGEST_PATH or any(len(name) > LONGEST_NAME for name in path.split("/")):
        return None
    written = path_matches(glob, path, place.base)
    if written is forbids:
        return written
    try:
        real = await _follow(posixpath.join(place.base, path), place)
        globs = await _where(absolute_glob(glob, place.base), place, forbids)
    except (OSError, ValueError, Unavailable):
        return None
    return any(path_matches(each, real, "/") for each in globs)


async def _where(glob: str, place: Place, forbids: bool) -> list[str]:
    """The places a glob means: as it is written, from where its base really is and, if it forbids, where it leads."""
    found = [glob]
    base = absolute(place.base, "/")
    if glob.startswith(f"{escape(base)}/"):
        found.append(escape(await _follow(base, place)).rstrip("/") + glob[len(escape(base)) :])
    if forbids:
        special = next((at for at, char in enumerate(glob) if char in SPECIAL), len(glob))
        head = glob if special == len(glob) else glob[: glob.rfind("/", 0, special) + 1].rstrip("/")
        try:
            found.append(escape(await _follow(head or "/", place)).rstrip("/") + glob[len(head) :])
        except OSError:
            pass  # what cannot be seen from here cannot be reached from here
    return found


async def _follow(path: str, place: Place) -> str:
    """Where a path leads; what does not exist yet lies where its nearest parent leads."""
    missing: list[str] = []
    while True:
        try:
            return posixpath.join(await place.real_path(path), *reversed(missing))
        except FileNotFoundError:
            if path == "/":
                raise
            path, name = posixpath.split(path)
            missing.append(name)


def _together(found: list[bool | None], forbids: bool) -> bool | None:
    if forbids:
        return True if True in found else None if None in found else False
    return False if False in found or not found else None if None in found else True
