"""Tell whether a rule applies to a call: by its tool, and by its arguments, with paths followed through links."""

import json
import os
import posixpath
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from handrail.contract.errors import Unavailable
from handrail.contract.wire import SCALARS
from handrail.policy._shell import shell_covers, shell_forbids, shell_matches
from handrail.policy.rule import COMMAND_NAMES, FIELD, SHELL_TOOLS, Rule, ToolTraits, is_path_name, looks_like_path
from handrail.schema.artifact_refs import references
from handrail.schema.globs import SPECIAL, absolute, absolute_glob, escape, glob_matches, literal, path_matches
from handrail.threads import in_thread

if TYPE_CHECKING:
    from handrail.sandbox.sandbox import Sandbox

MAX_PATH_CHARS: Final = 4_096
MAX_FILE_NAME_CHARS: Final = 255
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class PathRoot:
    """A directory that relative paths start from, and how to follow a path through links."""

    directory: str
    real_path: Callable[[str], Awaitable[str]]
    """Follow a path through links. Raises OSError for a path that cannot be followed."""


class PathRoots:
    """Every PathRoot of a call: the sandbox's workspace, this process's working directory, or both.

    A tool without `needs` runs outside the sandbox even where there is one. Nothing is looked up until a rule asks.
    """

    __slots__ = ("_sandbox", "_tool")

    def __init__(self, tool: ToolTraits, sandbox: "Sandbox | None") -> None:
        self._tool, self._sandbox = tool, sandbox

    def __iter__(self) -> Iterator[PathRoot]:
        if self._sandbox is not None:
            yield _in_sandbox(self._sandbox)
        if self._sandbox is None or not self._tool.needs:
            yield PathRoot(os.getcwd(), _real_path_on_host)


def _in_sandbox(sandbox: "Sandbox") -> PathRoot:
    async def real_path(path: str) -> str:
        stat = await sandbox.stat(path)
        if stat.type == "symlink":
            raise OSError(f"{path} is a link whose target does not exist yet")
        return stat.real_path

    return PathRoot(sandbox.workspace, real_path)


async def _real_path_on_host(path: str) -> str:
    return await in_thread(os.path.realpath, path)


async def matches(
    rule: Rule,
    tool: ToolTraits,
    arguments: Mapping[str, Any],
    roots: Iterable[PathRoot],
    *,
    forbids: bool = False,
    exact: bool = False,
) -> bool | None:
    """Whether the rule applies; None if unclear. A rule that forbids needs one match, one that allows needs all.

    `exact`: a person made the rule from one value that was shown, and it covers that value to the letter.
    """
    if not rule.is_about(tool):
        return False
    if rule.inner is None:
        return True
    name, glob = named_property(rule.inner, tool)
    if name is None:
        return False
    value = arguments[name] if name in arguments else _default(tool, name)
    if value is _MISSING:
        return False
    if exact and literal(glob) not in (None, text_of(value)):
        return False
    if not isinstance(value, list):
        return await _matches_item(glob, name, value, tool, roots, forbids)
    if not forbids and not is_path_name(name) and literal(glob) == text_of(value):
        return True  # the whole list, to the letter
    return _combine([await _matches_item(glob, name, item, tool, roots, forbids) for item in value], forbids)


def cover_together(rules: Iterable[Rule], tool: ToolTraits, arguments: Mapping[str, Any]) -> bool:
    """Whether rules that allow cover a command line between them: each of its commands by one of them."""
    globs: dict[str, list[str]] = {}
    for rule in rules:
        if rule.inner is not None and rule.is_about(tool):
            name, glob = named_property(rule.inner, tool)
            if name is not None and _is_command(tool, name) and isinstance(arguments.get(name), str):
                globs.setdefault(name, []).append(glob)
    return any(len(each) > 1 and shell_covers(each, arguments[name]) is True for name, each in globs.items())


def _is_command(tool: ToolTraits, name: str) -> bool:
    """Whether a property holds a command line."""
    return name in COMMAND_NAMES or (name == first_property(tool) and tool.name in SHELL_TOOLS)


def named_property(inner: str, tool: ToolTraits) -> tuple[str | None, str]:
    """The property that a rule is about, and the glob: `field=glob`, or a glob on the first required property."""
    named = FIELD.fullmatch(inner)
    if named and named["field"] in (tool.parameters.get("properties") or {}):
        return named["field"], named["glob"]
    return first_property(tool), inner


def first_property(tool: ToolTraits) -> str | None:
    """The first required property, or the first of all where none is required."""
    names = tool.parameters.get("required") or list(tool.parameters.get("properties") or ())
    return names[0] if names else None


def _default(tool: ToolTraits, name: str) -> Any:
    """The value that the body sees when a property is left out, as far as the schema says."""
    schema = (tool.parameters.get("properties") or {}).get(name)
    return schema.get("default", _MISSING) if isinstance(schema, Mapping) else _MISSING


def text_of(value: Any) -> str:
    """The text that a glob is compared with."""
    if isinstance(value, str):
        return value
    return str(value) if type(value) is int else json.dumps(value, ensure_ascii=False, default=str)


def is_path(tool: ToolTraits, name: str) -> bool:
    """Whether a property holds a path, by its name or its format."""
    schema = (tool.parameters.get("properties") or {}).get(name)
    return is_path_name(name) or (isinstance(schema, Mapping) and "path" in str(schema.get("format", "")))


async def _matches_item(
    glob: str, name: str, value: Any, tool: ToolTraits, roots: Iterable[PathRoot], forbids: bool
) -> bool | None:
    if type(value) not in SCALARS and isinstance(value, Mapping | list) and any(True for _ in references([value])):
        return None  # the value is filled in later
    text = text_of(value)
    if _is_command(tool, name):
        return shell_forbids(glob, text) if forbids else shell_matches(glob, text)
    if not is_path(tool, name):
        if glob_matches(glob, text):
            return True
        if not forbids or not looks_like_path(glob):
            return False
    return _combine([await _matches_path(glob, text, root, forbids) for root in roots], forbids)


async def _matches_path(glob: str, path: str, root: PathRoot, forbids: bool) -> bool | None:
    """Compare both the path as written and the file it leads to."""
    if len(path) > MAX_PATH_CHARS or any(len(name) > MAX_FILE_NAME_CHARS for name in path.split("/")):
        return None
    as_written = path_matches(glob, path, root.directory)
    if as_written is forbids:
        return as_written
    try:
        real = await _follow(posixpath.join(root.directory, path), root)
        globs = await _real_globs(absolute_glob(glob, root.directory), root, forbids)
    except (OSError, ValueError, Unavailable):
        return None
    return any(path_matches(each, real, "/") for each in globs)


async def _real_globs(glob: str, root: PathRoot, forbids: bool) -> list[str]:
    """The glob as written, from its root's real location and, if it forbids, from its own directory's real location."""
    globs = [glob]
    directory = absolute(root.directory, "/")
    if glob.startswith(f"{escape(directory)}/"):
        globs.append(escape(await _follow(directory, root)).rstrip("/") + glob[len(escape(directory)) :])
    if forbids:
        special = next((at for at, char in enumerate(glob) if char in SPECIAL), len(glob))
        head = glob if special == len(glob) else glob[: glob.rfind("/", 0, special) + 1].rstrip("/")
        try:
            globs.append(escape(await _follow(head or "/", root)).rstrip("/") + glob[len(head) :])
        except OSError:
            pass  # what cannot be seen from here cannot be reached from here
    return globs


async def _follow(path: str, root: PathRoot) -> str:
    """The target of a path; one that does not exist yet lies below the target of its nearest parent."""
    missing: list[str] = []
    while True:
        try:
            return posixpath.join(await root.real_path(path), *reversed(missing))
        except FileNotFoundError:
            if path == "/":
                raise
            path, name = posixpath.split(path)
            missing.append(name)


def _combine(answers: list[bool | None], forbids: bool) -> bool | None:
    if forbids:
        return True if True in answers else None if None in answers else False
    return False if False in answers or not answers else None if None in answers else True
