"""Change a file by exact text, all edits or none, and help when the text is not there."""

from collections import Counter
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools._diff import difference
from handrail.tools._paths import changed_since_seen, explained, only_a_file, place, remember

LARGEST: Final = 64 << 20
MOST_SHOWN: Final = 10
MOST_LINES: Final = 50_000
MOST_SOUGHT: Final = 200
"""Lines of the text and of the passage that are looked at."""
LONGEST_LINE: Final = 500
"""Characters of a line that are compared."""
MOST_PLACES: Final = 8
"""Places of one line of the passage that are followed up."""
TRIED: Final = 8
SHOWN: Final = 12
ENOUGH: Final = 0.5


class Edit(BaseModel):
    """One replacement."""

    old: Annotated[
        str,
        Field(
            description="The text to replace, exactly as it stands in the file, and only once there.",
            json_schema_extra={"blank": "keep"},
        ),
    ]
    new: Annotated[str, Field(description="What to put in its place.", json_schema_extra={"blank": "keep"})]
    replace_all: Annotated[bool, Field(description="Replace every occurrence.")] = False


@tool(risk="high", effects=["reads", "writes"], needs=["files", "atomic_write", "range_read"])
async def edit(path: str, edits: Annotated[list[Edit], Field(min_length=1, max_length=100)], context: Context) -> Any:
    """Replace exact pieces of text in a file. Either all edits are made, one after the other, or none.

    Args:
        path: The file, absolute or relative to the workspace.
        edits: What to replace with what.
    """
    sandbox = context.sandbox
    stat = await place(sandbox, path)
    only_a_file(path, stat, "edit changes files")
    if stat.size > LARGEST:
        raise ToolFailed(Failure("invalid_args", f"{path} is larger than 64 MiB; change it with bash.", field="path"))
    with explained(sandbox, path):
        data = await sandbox.read_bytes(path)
    if b"\0" in data[:8192]:
        raise ToolFailed(Failure("invalid_args", f"{path} is a binary file; edit changes text.", field="path"))
    before = data.decode("utf-8", "surrogateescape")  # what is not UTF-8 comes out as it went in
    after, count = before, 0
    for number, each in enumerate(edits):
        after, made = _apply(after, each, number, path)
        count += made
    changed = after.encode("utf-8", "surrogateescape")
    with explained(sandbox, path):
        await sandbox.write_bytes(path, changed)
    if not changed_since_seen(context, stat):  # else there is something in it that this session has not seen
        remember(context, await sandbox.stat(path))
    shown = difference(_printable(before), _printable(after), path)
    return {"path": path, "replacements": count, "bytes_written": len(changed), "diff": shown}


def _printable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _apply(text: str, edit: Edit, number: int, path: str) -> tuple[str, int]:
    field = f"edits[{number}].old"
    if not edit.old:
        raise ToolFailed(Failure("invalid_args", "The old text is empty; to make a new file use write.", field=field))
    if edit.old == edit.new:
        raise ToolFailed(
            Failure("invalid_args", "The old and the new text are the same.", field=f"edits[{number}].new")
        )
    old, new = edit.old, edit.new
    if old not in text and "\n" in old and "\r\n" in text:  # a file with other line ends than the model writes
        old, new = _crlf(old), _crlf(new)
    elif "\n" not in old and "\n" in new and 2 * text.count("\r\n") > text.count("\n"):
        new = _crlf(new)
    lines = _places(text, old)
    if not lines:
        raise ToolFailed(Failure("invalid_args", f"The old text is not in {path}. {closest(text, old)}", field=field))
    if len(lines) > 1 and not edit.replace_all:
        raise ToolFailed(Failure("invalid_args", _several(lines, path), field=field))
    return text.replace(old, new), text.count(old)


def _places(text: str, old: str) -> list[int]:
    """The lines on which it begins, the first few of them; places may overlap."""
    lines: list[int] = []
    line, before = 1, 0
    at = text.find(old)
    while at >= 0 and len(lines) <= MOST_SHOWN:
        line += text.count("\n", before, at)
        lines.append(line)
        before, at = at, text.find(old, at + 1)
    return lines


def _crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _several(lines: list[int], path: str) -> str:
    count = f"{len(lines)} times" if len(lines) <= MOST_SHOWN else f"more than {MOST_SHOWN} times"
    return (
        f"The old text is in {path} {count}, on lines {', '.join(map(str, lines[:MOST_SHOWN]))}. Take more of the text "
        "around the one you mean, or send replace_all=true."
    )


def closest(text: str, wanted: str) -> str:
    """A sentence and the passage with its line numbers, or that nothing comes close."""
    lines = [line.removesuffix("\r") for line in text.split("\n", MOST_LINES)[:MOST_LINES]]
    sought = [line.removesuffix("\r") for line in wanted.removesuffix("\n").split("\n")[:MOST_SOUGHT]]
    grams = _grams(sought)
    scored = [(_alike(_grams(lines[at : at + len(sought)]), grams), -at) for at in _candidates(lines, sought)]
    score, place = max(scored, default=(0.0, 0))
    if score < ENOUGH:
        return "Nothing in it comes close; read the file again."
    passage = lines[-place : -place + len(sought)]
    shown = "\n".join(f"{n - place + 1}: {line[:300]}" for n, line in enumerate(passage[:SHOWN]))
    return f"Closest, at line {1 - place} ({_differs(passage, sought)}):\n{shown}"


def _candidates(lines: list[str], sought: list[str]) -> list[int]:
    """Where a window may stand: where most lines are shared, spaces apart, or else where a line is most alike."""
    offsets: dict[str, list[int]] = {}
    for offset, line in enumerate(sought):
        if bare := _bare(line):
            offsets.setdefault(bare, []).append(offset)
    places: Counter[int] = Counter()
    for number, line in enumerate(lines):
        for offset in offsets.get(_bare(line), ())[:MOST_PLACES]:
            if number >= offset:
                places[number - offset] += 1
    if places:
        return sorted(places, key=lambda at: (-places[at], at))[:TRIED]
    skip = next((offset for offset, line in enumerate(sought) if _bare(line)), 0)
    first = _grams(sought[skip : skip + 1])
    ranked = sorted(range(len(lines)), key=lambda number: -_alike(_grams(lines[number : number + 1]), first))
    return [max(0, number - skip) for number in ranked[:TRIED]]


def _grams(lines: list[str]) -> Counter[str]:
    """The three-letter pieces of some lines; spaces count as one."""
    text = " ".join(" ".join(line[:LONGEST_LINE].split()) for line in lines)
    return Counter(text[at : at + 3] for at in range(max(1, len(text) - 2)))


def _alike(one: Counter[str], other: Counter[str]) -> float:
    """The share of the pieces that both have: 1 for the same text, 0 for strangers."""
    return 2 * (one & other).total() / max(1, one.total() + other.total())


def _bare(line: str, longest: int = LONGEST_LINE) -> str:
    return "".join(line[:longest].split())


def _differs(passage: list[str], sought: list[str]) -> str:
    if [_bare(line, 1 << 20) for line in passage] == [_bare(line, 1 << 20) for line in sought]:
        return "only the spaces differ"
    for number, (here, there) in enumerate(zip(passage, sought, strict=False)):
        if here != there:
            shown = f"there it is {_from_difference(here, there)!r}, you sent {_from_difference(there, here)!r}"
            return f"line {number + 1} of your text differs: {shown}"
    return "it is shorter than your text"


def _from_difference(line: str, other: str) -> str:
    """A piece of the line that shows where it leaves the other."""
    same = next((at for at, (one, two) in enumerate(zip(line, other, strict=False)) if one != two), len(other))
    return line[max(0, min(same, len(line)) - 60) :][:120].strip()
