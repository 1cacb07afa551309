"""Write a whole file at once or not at all, and show what changed."""

from typing import Annotated, Any

from pydantic import Field

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools._diff import LARGEST, difference
from handrail.tools._paths import changed_since_seen, explained, missing, only_a_file, place_or_none, remember


@tool(risk="high", effects=["writes"], needs=["files", "atomic_write"])
async def write(
    path: str,
    content: Annotated[str, Field(json_schema_extra={"blank": "keep"})],
    context: Context,
    overwrite: bool = False,
) -> Any:
    """Write a text file, making its directories. Returns what changed as a diff.

    A file that was changed since it was last read here is not overwritten unless `overwrite` is true.

    Args:
        path: The file, absolute or relative to the workspace.
        content: The whole new content, exactly as it shall be.
        overwrite: Replace the file even if somebody changed it after you read it.
    """
    sandbox = context.sandbox
    old: bytes | None = None
    stat = await place_or_none(sandbox, path)
    if stat is not None:
        only_a_file(path, stat, "write makes files")
        if changed_since_seen(context, stat) and not overwrite:
            raise ToolFailed(
                Failure(
                    "rejected",
                    f"{path} was changed since you read it, by a command or by somebody else, and was not overwritten. "
                    "Read it again, or send overwrite=true to replace it as it is.",
                    field="overwrite",
                )
            )
        with explained(sandbox, path):
            old = await sandbox.read_bytes(path, length=LARGEST + 1)
    data = content.encode()
    try:
        with explained(sandbox, path):
            await sandbox.write_bytes(path, data)
    except FileNotFoundError:  # directories are made, but a `..` after one that is not there leads nowhere
        raise await missing(sandbox, path) from None
    remember(context, await sandbox.stat(path))
    return {"path": path, "bytes_written": len(data), "created": stat is None, "diff": _diff(path, old, content)}


def _diff(path: str, old: bytes | None, content: str) -> str:
    if old is None:
        return difference("", content, path)
    if b"\0" in old[:8192]:
        return f"[{path} was a binary file and is text now]"
    return difference(old.decode("utf-8", "replace"), content, path)
