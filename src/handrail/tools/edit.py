"""Replace exact text in a file, all edits or none; if the text is not there, show the passage closest to it."""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Success
from handrail.sandbox.diff import difference
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools._paths import (
    FilePath,
    changed_since_read,
    check_place,
    explain_errors,
    lookup,
    lost_with_sandbox,
    remember_version,
    require_file,
)

MAX_FILE_BYTES: Final = 64 << 20
LINES_NAMED: Final = 10
"""Number of line numbers that a message lists."""
MAX_FILE_LINES_COUNT: Final = 50_000
MAX_OLD_LINES_COUNT: Final = 200
"""Number of lines of the file, and of the old text, that are compared."""
MAX_COMPARED_LINE_CHARS: Final = 500
"""Length of a line that is compared, in characters."""
MAX_OFFSETS_COUNT: Final = 8
"""Number of repetitions of a line of the old text that are considered."""
CANDIDATES: Final = 8
"""Number of passages that are scored."""
PASSAGE_LINES: Final = 12
"""Number of lines of the closest passage that are shown."""
ALIKE_ENOUGH: Final = 0.5
"""Score, from 0 to 1, from which a passage is shown."""


OLD: Final = Field(json_schema_extra={"blank": "keep", "consequential": True, "aliases": ["old_string"]})
NEW: Final = Field(json_schema_extra={"blank": "keep", "consequential": True, "aliases": ["new_string"]})


class Edit(BaseModel):
    """One replacement."""

    old: Annotated[
        str, OLD, Field(description="The text to replace, exactly as in the file, where it must occur once.")
    ]
    new: Annotated[str, NEW, Field(description="The text that replaces it.")]
    replace_all: Annotated[bool, Field(description="Replace every occurrence.")] = False


# One edit without its list is not in doubt, only what it replaces is.
Edits = Annotated[list[Edit] | None, Field(min_length=1, max_length=100, json_schema_extra={"consequential": False})]


def _check(arguments: Mapping[str, Any]) -> None:
    """Raise ToolFailed for arguments that are not a list of edits, or for an edit that changes nothing."""
    given = [arguments.get(name) for name in ("old", "new", "replace_all", "edits")]
    for number, each in enumerate(_asked(given[0], given[1], bool(given[2]), given[3])):
        _check_edit(each, "" if given[3] is None else f"edits[{number}].")


@tool(risk="high", effects=["reads", "writes"], needs=["files", "atomic_write", "range_read"], validate=_check)
async def edit(
    path: FilePath,
    context: Context,
    old: Annotated[str | None, OLD] = None,
    new: Annotated[str | None, NEW] = None,
    replace_all: bool = False,
    edits: Edits = None,
) -> Any:
    """Replace exact text in a file: one piece (`old`, `new`), or several (`edits`), all of them, in order, or none.

    Args:
        path: The file, absolute or relative to the workspace.
        old: The text to replace, exactly as in the file, where it must occur once.
        new: The text that replaces it.
        replace_all: Replace every occurrence of `old`.
        edits: Several replacements, instead of `old` and `new`.
    """
    sandbox = context.sandbox
    asked = _asked(old, new, replace_all, edits)
    await check_place(sandbox, path)
    stat = await lookup(sandbox, path)
    require_file(path, stat, "edit needs the path of a file")
    if stat.size > MAX_FILE_BYTES:
        message = f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB; change it with bash."
        raise ToolFailed(Failure("invalid_args", message, field="path"))
    with explain_errors(sandbox, path):
        data = await sandbox.read_bytes(path)
    if b"\0" in data[:8192]:
        raise ToolFailed(Failure("invalid_args", f"{path} is a binary file; edit changes text.", field="path"))
    before = data.decode("utf-8", "surrogateescape")  # bytes that are not UTF-8 stay as they are
    after, count = _apply_all(before, asked, path, listed=edits is not None)
    changed = after.encode("utf-8", "surrogateescape")
    with explain_errors(sandbox, path):
        await sandbox.write_bytes(path, changed)
    if not changed_since_read(context, stat):  # otherwise it holds changes that this session has not read
        remember_version(context, await sandbox.stat(path))
    diff = difference(_printable(before), _printable(after), path, context.caps.diff)
    value = {"path": path, "replacements": count, "bytes_written": len(changed), "diff": diff}
    return Success(value, lost_with_sandbox(sandbox, stat, path))


def _apply_all(text: str, asked: list[Edit], path: str, *, listed: bool) -> tuple[str, int]:
    """The text after all edits, and how many replacements they made."""
    count = 0
    for number, each in enumerate(asked):
        text, made = _apply(text, each, f"edits[{number}]." if listed else "", path)
        count += made
    return text, count


def _printable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _asked(old: str | None, new: str | None, replace_all: bool, edits: list[Edit] | None) -> list[Edit]:
    """The replacements, from one of the two forms. Raises ToolFailed for both, none, or a part of one."""
    flat = [
        name for name, value in (("old", old), ("new", new), ("replace_all", replace_all or None)) if value is not None
    ]
    if edits is not None:
        if flat:
            message = (
                f"{' and '.join(flat)} came together with edits; send one edit as old and new, or a list as edits."
            )
            raise ToolFailed(Failure("invalid_args", message, field=flat[0], expected="old and new, or edits alone"))
        return edits
    if old is not None and new is not None:
        return [Edit(old=old, new=new, replace_all=replace_all)]
    missing = "old" if old is None else "new"
    message = f"{missing} is missing; send old and new, or a list of them as edits."
    raise ToolFailed(Failure("invalid_args", message, field=missing, expected="the text to replace, and the new text"))


def _check_edit(edit: Edit, prefix: str) -> None:
    if not edit.old:
        message = "The old text is empty; to create a file use write."
        raise ToolFailed(Failure("invalid_args", message, field=f"{prefix}old", expected="the text to replace"))
    if edit.old == edit.new:
        message = "The old and the new text are the same."
        raise ToolFailed(Failure("invalid_args", message, field=f"{prefix}new", expected="another text"))


def _apply(text: str, edit: Edit, prefix: str, path: str) -> tuple[str, int]:
    field = f"{prefix}old"
    old, new = _with_line_ends_of(text, edit.old, edit.new)
    if old == new:
        message = "The old and the new text are the same apart from line ends, and edit keeps those of the file."
        raise ToolFailed(Failure("invalid_args", message, field=f"{prefix}new"))
    lines = _lines_of(text, old)
    if not lines:
        raise ToolFailed(Failure("invalid_args", f"The old text is not in {path}. {_closest(text, old)}", field=field))
    if len(lines) > 1 and not edit.replace_all:
        raise ToolFailed(Failure("invalid_args", _several(lines, path), field=field))
    return text.replace(old, new), text.count(old)


def _lines_of(text: str, old: str) -> list[int]:
    """The numbers of the first lines on which the text begins; occurrences may overlap."""
    lines: list[int] = []
    line, before = 1, 0
    at = text.find(old)
    while at >= 0 and len(lines) <= LINES_NAMED:
        line += text.count("\n", before, at)
        lines.append(line)
        before, at = at, text.find(old, at + 1)
    return lines


def _with_line_ends_of(text: str, old: str, new: str) -> tuple[str, str]:
    """The edit with the line ends of the file, or, where those are mixed, of the passage it changes."""
    crlf = text.count("\r\n")
    bare = text.count("\n") - crlf
    if not crlf:
        return old, new
    if not bare:
        return _crlf(old), _crlf(new)
    if "\n" not in old:
        return old, _crlf(new) if crlf > bare else new
    count = text.count(_crlf(old))
    if count and text.count(old) in (0, count):
        return _crlf(old), _crlf(new)
    return old, new


def _crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _several(lines: list[int], path: str) -> str:
    count = f"{len(lines)} times" if len(lines) <= LINES_NAMED else f"more than {LINES_NAMED} times"
    return (
        f"The old text occurs {count} in {path}, on lines {', '.join(map(str, lines[:LINES_NAMED]))}. "
        "Include more of the surrounding text to select one, or send replace_all=true."
    )


def _closest(text: str, wanted: str) -> str:
    """The passage of the text that is most like the wanted one, with line numbers and the difference; or a hint."""
    lines = [line.removesuffix("\r") for line in text.split("\n", MAX_FILE_LINES_COUNT)[:MAX_FILE_LINES_COUNT]]
    sought = [line.removesuffix("\r") for line in wanted.removesuffix("\n").split("\n")[:MAX_OLD_LINES_COUNT]]
    grams = _grams(sought)
    scored = [(_alike(_grams(lines[at : at + len(sought)]), grams), -at) for at in _candidates(lines, sought)]
    score, negated = max(scored, default=(0.0, 0))  # of equal scores, the earliest
    if score < ALIKE_ENOUGH:
        return "Nothing in it is similar; read the file again."
    first = -negated
    passage = lines[first : first + len(sought)]
    numbered = "\n".join(f"{first + n}: {line[:300]}" for n, line in enumerate(passage[:PASSAGE_LINES], 1))
    return f"The closest passage is at line {first + 1} ({_differs(passage, sought)}):\n{numbered}"


def _candidates(lines: list[str], sought: list[str]) -> list[int]:
    """Possible first lines of the passage: where most lines agree, apart from spaces; else similar lines."""
    offsets: dict[str, list[int]] = {}
    for offset, line in enumerate(sought):
        if bare := _bare(line):
            offsets.setdefault(bare, []).append(offset)
    starts: Counter[int] = Counter()
    for number, line in enumerate(lines):
        for offset in offsets.get(_bare(line), ())[:MAX_OFFSETS_COUNT]:
            if number >= offset:
                starts[number - offset] += 1
    if starts:
        return sorted(starts, key=lambda at: (-starts[at], at))[:CANDIDATES]
    skip = next((offset for offset, line in enumerate(sought) if _bare(line)), 0)
    first = _grams(sought[skip : skip + 1])
    ranked = sorted(range(len(lines)), key=lambda number: -_alike(_grams(lines[number : number + 1]), first))
    return [max(0, number - skip) for number in ranked[:CANDIDATES]]


def _grams(lines: list[str]) -> Counter[str]:
    """The three-character pieces of some lines; a run of spaces counts as one."""
    text = " ".join(" ".join(line[:MAX_COMPARED_LINE_CHARS].split()) for line in lines)
    return Counter(text[at : at + 3] for at in range(max(1, len(text) - 2)))


def _alike(one: Counter[str], other: Counter[str]) -> float:
    """The share of common pieces: 1 for equal texts, 0 for unrelated ones."""
    return 2 * (one & other).total() / max(1, one.total() + other.total())


def _bare(line: str, longest: int = MAX_COMPARED_LINE_CHARS) -> str:
    return "".join(line[:longest].split())


def _differs(passage: list[str], sought: list[str]) -> str:
    if [_bare(line, 1 << 20) for line in passage] == [_bare(line, 1 << 20) for line in sought]:
        return "only the spaces differ"
    for number, (here, there) in enumerate(zip(passage, sought, strict=False)):
        if here != there:
            file, sent = _from_difference(here, there), _from_difference(there, here)
            return f"line {number + 1} of your text differs: the file has {file!r}, you sent {sent!r}"
    return "it is shorter than your text"


def _from_difference(line: str, other: str) -> str:
    """A piece of the line around its first difference from the other."""
    same = next((at for at, (one, two) in enumerate(zip(line, other, strict=False)) if one != two), len(other))
    return line[max(0, min(same, len(line)) - 60) :][:120].strip()
