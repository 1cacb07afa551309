"""Describe a call to the person who is asked about it: a command is highlighted, and a change is a difference."""

from collections.abc import Iterator, Mapping
from difflib import unified_diff
from typing import Any, Final

from rich.syntax import Syntax
from rich.text import Text

from handrail.contract.approval import ApprovalRequest
from handrail.contract.errors import HandrailError, ToolFailed, Unavailable
from handrail.policy.approval import FEWEST_LINES, MAX_TEXT_LINES, excerpt, look_alikes, render
from handrail.sandbox.diff import MAX_TEXT_BYTES, difference
from handrail.sandbox.sandbox import Sandbox

LANGUAGES: Final = {"bash": "bash", "run_code": "python", "script": "python"}
"""By tool: the language of the text that it runs."""
MAX_COMPARED_COUNT: Final = 500
"""Lines of a replaced or a new text that are compared with each other; longer ones are shown one after the other."""
MAX_KEPT_LINES: Final = 15
"""Lines of the arguments beside a difference."""
LONGEST: Final = 1 << 20
"""Characters of a difference, before it is shortened."""
STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


async def described_call(request: ApprovalRequest, sandbox: Sandbox | None) -> Text:
    """The call as the request tells it, with what it would change in place of the texts that say so."""
    match request.tool, request.arguments:
        case "edit", {"old": str(old), "new": str(new)}:
            return _changed(request, ("old", "new"), _replaced(old, new))
        case "edit", {"edits": list(edits)} if all(map(_is_edit, edits)):
            return _changed(request, ("edits",), [line for lines in _several(edits) for line in lines])
        case "write", {"path": str(path), "content": str(content)}:
            before = await _content(sandbox, path)
            if before is not None:
                return _changed(request, ("content",), _written(before, content))
    lexer = LANGUAGES.get(request.tool)
    text = Text(request.text) if lexer is None else Syntax("", lexer, word_wrap=True).highlight(request.text)
    text.rstrip()
    return text


def _changed(request: ApprovalRequest, told: tuple[str, ...], lines: list[str]) -> Text:
    """The call without these arguments, then the lines."""
    kept = {key: value for key, value in request.arguments.items() if key not in told}
    told_first = render(request.tool, kept, MAX_KEPT_LINES)
    body, text = Text(told_first), "\n".join(lines)
    strange = look_alikes(text)
    room = max(FEWEST_LINES, MAX_TEXT_LINES - told_first.count("\n") - 1 - bool(strange))
    for line in excerpt(text, room):
        body.append(f"\n{line}", style=STYLES.get(line[:1], ""))
    if strange:
        body.append(f"\n! letters that look like others: {', '.join(strange)}", style="yellow")
    return body


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
    return difference(before, after, "", LONGEST).split("\n")[2:-1] or [f"({len(after):,} characters)"]


async def _content(sandbox: Sandbox | None, path: str) -> str | None:
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
