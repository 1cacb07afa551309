"""Describe a call to the person who is asked about it, as data: terminals, pages and MCP clients draw it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING, Any, Final, Literal

from handrail.contract.errors import HandrailError, ToolFailed, Unavailable
from handrail.policy.approval import FEWEST_LINES, MAX_TEXT_LINES, excerpt, look_alikes, render, visible
from handrail.sandbox.diff import MAX_TEXT_BYTES, difference

if TYPE_CHECKING:
    from handrail.contract.approval import ApprovalRequest
    from handrail.sandbox.sandbox import Sandbox

Kind = Literal["text", "bash", "python", "place", "added", "removed", "same", "warning"]
"""The kind of a line: plain text, code in a language, or a part of a difference."""
LANGUAGES: Final[Mapping[str, Kind]] = {"bash": "bash", "run_code": "python", "script": "python"}
"""The language of the text that a tool runs, by tool."""
SIGNS: Final[Mapping[str, Kind]] = {"+": "added", "-": "removed", "@": "place"}
"""The kind of a difference's line, by its first character."""
MAX_COMPARED_COUNT: Final = 500
"""Lines of a replaced or a new text that are compared with each other; longer ones are shown one after the other."""
MAX_KEPT_LINES: Final = 15
"""Lines of the arguments beside a difference."""
MAX_DIFFERENCE_CHARS: Final = 1 << 20
"""Characters of a difference, before it is shortened."""


@dataclass(frozen=True, slots=True)
class Described:
    """A request as a person reads it. Every text is Handrail's own, with odd characters written out."""

    head: str
    """The question, in one line."""
    lines: tuple[tuple[Kind, str], ...]
    """The call, with what it would change in place of the arguments that say so."""
    notes: tuple[str, ...]
    """Repairs of the arguments, one each."""

    @property
    def text(self) -> str:
        """The lines without their kinds."""
        return "\n".join(text for _, text in self.lines)

    def as_data(self) -> dict[str, Any]:
        """The description as the transcript keeps it, for readers in other processes."""
        return {"head": self.head, "lines": [list(line) for line in self.lines], "notes": list(self.notes)}


async def described(request: "ApprovalRequest", sandbox: "Sandbox | None") -> Described:
    """Describe a request; files that the call would change are read from the sandbox, if there is one."""
    return Described(
        f"May {visible(request.tool, lines=False)} run?", tuple(await _lines(request, sandbox)), request.repairs
    )


async def _lines(request: "ApprovalRequest", sandbox: "Sandbox | None") -> list[tuple[Kind, str]]:
    match request.tool, request.arguments:
        case "edit", {"old": str(old), "new": str(new)}:
            return _changed(request, ("old", "new"), _replaced(old, new))
        case "edit", {"edits": list(edits)} if all(map(_is_edit, edits)):
            return _changed(request, ("edits",), [line for lines in _several(edits) for line in lines])
        case "write", {"path": str(path), "content": str(content)}:
            before = await _content(sandbox, path)
            if before is not None:
                return _changed(request, ("content",), _written(before, content))
    kind = LANGUAGES.get(request.tool, "text")
    return [(kind, line) for line in request.text.rstrip().split("\n")]


def _changed(request: "ApprovalRequest", told: tuple[str, ...], lines: list[str]) -> list[tuple[Kind, str]]:
    """The call without these arguments, then the lines of a difference."""
    kept = {key: value for key, value in request.arguments.items() if key not in told}
    first: list[tuple[Kind, str]] = [("text", line) for line in render(request.tool, kept, MAX_KEPT_LINES).split("\n")]
    text = "\n".join(lines)
    strange = look_alikes(text)
    room = max(FEWEST_LINES, MAX_TEXT_LINES - len(first) - bool(strange))
    body = [(SIGNS.get(line[:1], "same"), line) for line in excerpt(text, room)]
    warning: list[tuple[Kind, str]] = (
        [("warning", f"! letters that look like others: {', '.join(strange)}")] if strange else []
    )
    return [*first, *body, *warning]


def _is_edit(edit: Any) -> bool:
    return isinstance(edit, Mapping) and isinstance(edit.get("old"), str) and isinstance(edit.get("new"), str)


def _several(edits: list[Mapping[str, Any]]) -> Iterator[list[str]]:
    for number, edit in enumerate(edits, 1):
        everywhere = ", every occurrence" if edit.get("replace_all") else ""
        yield [f"@ {number} of {len(edits)}{everywhere}", *_replaced(edit["old"], edit["new"])]


def _replaced(old: str, new: str) -> list[str]:
    """The lines that are taken out and put in, with all that are around them in the two texts."""
    left, right = old.splitlines(), new.splitlines()
    if max(len(left), len(right)) > MAX_COMPARED_COUNT:
        return [*(f"-{line}" for line in left), *(f"+{line}" for line in right)]
    return list(unified_diff(left, right, n=MAX_COMPARED_COUNT, lineterm=""))[3:]


def _written(before: str, after: str) -> list[str]:
    if before == after:
        return ["(the file has this content already)"]
    return difference(before, after, "", MAX_DIFFERENCE_CHARS).split("\n")[2:-1] or [f"({len(after):,} characters)"]


async def _content(sandbox: "Sandbox | None", path: str) -> str | None:
    """The text of the file now, empty if there is no file; None if it cannot be read as text."""
    if sandbox is None:
        return None
    try:
        data = await sandbox.read_bytes(path, length=MAX_TEXT_BYTES + 1)
    except FileNotFoundError:
        return ""
    except (HandrailError, OSError, ToolFailed, Unavailable, ValueError):
        return None
    return None if b"\0" in data[:8192] or len(data) > MAX_TEXT_BYTES else data.decode("utf-8", "replace")
