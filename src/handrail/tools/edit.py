"""Change a file by exact text, all edits or none, and help when the text is not there."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools.change import difference
from handrail.tools.closest import closest
from handrail.tools.place import explained, only_a_file, place
from handrail.tools.seen import changed_since_seen, remember

LARGEST = 64 << 20
SHOWN = 10


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
    while at >= 0 and len(lines) <= SHOWN:
        line += text.count("\n", before, at)
        lines.append(line)
        before, at = at, text.find(old, at + 1)
    return lines


def _crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _several(lines: list[int], path: str) -> str:
    count = f"{len(lines)} times" if len(lines) <= SHOWN else f"more than {SHOWN} times"
    return (
        f"The old text is in {path} {count}, on lines {', '.join(map(str, lines[:SHOWN]))}. Take more of the text "
        "around the one you mean, or send replace_all=true."
    )
