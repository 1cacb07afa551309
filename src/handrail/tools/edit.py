"""Change a file by exact text, all edits or none, and help when the text is not there."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools.change import difference
from handrail.tools.closest import closest
from handrail.tools.missing import missing
from handrail.tools.seen import remember

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
    try:
        stat = await sandbox.stat(path)
    except FileNotFoundError:
        raise await missing(sandbox, path) from None
    if stat.size > LARGEST:
        raise ToolFailed(Failure("invalid_args", f"{path} is larger than 64 MiB; change it with bash.", field="path"))
    data = await sandbox.read_bytes(path)
    if b"\0" in data[:8192]:
        raise ToolFailed(Failure("invalid_args", f"{path} is a binary file; edit changes text.", field="path"))
    before = data.decode("utf-8", "surrogateescape")  # what is not UTF-8 comes out as it went in
    after, count = before, 0
    for number, each in enumerate(edits):
        after, made = _apply(after, each, number, path)
        count += made
    changed = after.encode("utf-8", "surrogateescape")
    await sandbox.write_bytes(path, changed)
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
    elif "\r\n" in text and "\n" in new and "\r\n" not in edit.old and "\n" not in edit.old:
        new = _crlf(new)
    count = text.count(old)
    if count == 0:
        raise ToolFailed(Failure("not_found", f"The old text is not in {path}. {closest(text, old)}", field=field))
    if count > 1 and not edit.replace_all:
        raise ToolFailed(Failure("invalid_args", _several(text, old, count, path), field=field))
    return text.replace(old, new), count


def _crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _several(text: str, old: str, count: int, path: str) -> str:
    lines: list[str] = []
    at = text.find(old)
    while at >= 0 and len(lines) < SHOWN:
        lines.append(str(text.count("\n", 0, at) + 1))
        at = text.find(old, at + len(old))
    more = " and more" if count > len(lines) else ""
    return (
        f"The old text is in {path} {count} times, on lines {', '.join(lines)}{more}. Take more of the text around the "
        "one you mean, or send replace_all=true."
    )
