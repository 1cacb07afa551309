"""Write a whole file atomically, and return a diff."""

from typing import Annotated, Any

from pydantic import Field

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Success
from handrail.sandbox.diff import MAX_TEXT_BYTES, difference
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools._paths import (
    FilePath,
    changed_since_read,
    check_place,
    explain_errors,
    lookup_or_none,
    lost_with_sandbox,
    path_not_found,
    remember_version,
    require_file,
)


@tool(risk="high", effects=["writes"], needs=["files", "atomic_write"])
async def write(
    path: FilePath,
    content: Annotated[str, Field(json_schema_extra={"blank": "keep"})],
    context: Context,
    overwrite: bool = False,
) -> Any:
    """Write a text file, creating its directories. Returns a diff.

    A file that changed since you last read it is only overwritten if `overwrite` is true.

    Args:
        path: The file, absolute or relative to the workspace.
        content: The whole new content.
        overwrite: Replace the file even if it changed since you read it.
    """
    sandbox = context.sandbox
    await check_place(sandbox, path)
    old: bytes | None = None
    stat = await lookup_or_none(sandbox, path)
    if stat is not None:
        require_file(path, stat, "write needs the path of a file")
        if changed_since_read(context, stat) and not overwrite:
            raise _changed(path)
        with explain_errors(sandbox, path):
            old = await sandbox.read_bytes(path, length=MAX_TEXT_BYTES + 1)
    data = content.encode()
    try:
        with explain_errors(sandbox, path):
            await sandbox.write_bytes(path, data)
    except FileNotFoundError:  # directories are created, but a `..` after a missing one leads nowhere
        raise await path_not_found(sandbox, path) from None
    written = await sandbox.stat(path)
    remember_version(context, written)
    diff = _diff(path, old, content, context.caps.diff)
    value = {"path": path, "bytes_written": len(data), "created": stat is None, "diff": diff}
    return Success(value, lost_with_sandbox(sandbox, written, path))


def _changed(path: str) -> ToolFailed:
    message = (
        f"{path} changed since you read it, by a command or by somebody else, and was not overwritten. "
        "Read it again, or send overwrite=true to replace it anyway."
    )
    return ToolFailed(Failure("rejected", message, field="overwrite"))


def _diff(path: str, old: bytes | None, content: str, cap: int) -> str:
    if old is None:
        return difference("", content, path, cap)
    if b"\0" in old[:8192]:
        return f"[{path} was a binary file and is text now]"
    return difference(old.decode("utf-8", "replace"), content, path, cap)
