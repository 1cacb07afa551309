"""Tell whether a rule means a call: by its tool, or by its arguments, paths followed to where they really lead."""

import json
import posixpath
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from handrail.toolkit.glob import absolute, glob_matches, path_matches
from handrail.toolkit.rule import FIELD, Rule
from handrail.toolkit.shell import shell_matches, shell_matches_any_name
from handrail.toolkit.tool import Tool

PATH_NAMES: Final = re.compile(
    r"(.*_)?(path|file|filename|filepath|dir|directory|folder|cwd|root|source|src|destination|dest|dst|target)s?",
    re.ASCII,
)
COMMAND_NAMES: Final = frozenset({"command", "cmd", "line"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where relative paths begin, and how a path is followed through links. Real paths raise OSError."""

    base: str
    real_path: Callable[[str], Awaitable[str]]


async def matches(rule: Rule, tool: Tool, arguments: Mapping[str, Any], place: Place, *, forbids: bool) -> bool | None:
    """None when that cannot be told. A rule that forbids means a call if any part fits; one that allows, if all do."""
    if rule.kind == "risk":
        return tool.risk == rule.subject
    if rule.kind == "effect":
        return rule.subject in tool.effects
    if not glob_matches(rule.subject, tool.name):
        return False
    if rule.inner is None:
        return True
    name, glob = _property(rule.inner, tool)
    if name is None or name not in arguments:
        return False
    value = arguments[name]
    values = value if isinstance(value, list) else [value]
    found = [await _one(glob, name, item, tool, place, forbids) for item in values]
    return _together(found, forbids)


def _property(inner: str, tool: Tool) -> tuple[str | None, str]:
    """The property a rule speaks of, and the glob: `field=glob`, or a glob on the first required property."""
    properties = tool.parameters.get("properties") or {}
    named = FIELD.fullmatch(inner)
    if named and named["field"] in properties:
        return named["field"], named["glob"]
    required = tool.parameters.get("required") or list(properties)
    return (required[0] if required else None), inner


async def _one(glob: str, name: str, value: Any, tool: Tool, place: Place, forbids: bool) -> bool | None:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if name in COMMAND_NAMES and "executes" in tool.effects:
        return shell_matches_any_name(glob, text) if forbids else shell_matches(glob, text)
    if PATH_NAMES.fullmatch(name):
        return await _path(glob, text, place, forbids)
    return glob_matches(glob, text)


async def _path(glob: str, path: str, place: Place, forbids: bool) -> bool | None:
    """Both the path as it is written and the file it leads to."""
    written = path_matches(glob, path, place.base)
    if written is forbids:
        return written
    try:
        real = await _follow(absolute(path, place.base), place)
    except OSError:
        return None
    return path_matches(glob, real, place.base)


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
