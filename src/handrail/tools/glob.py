"""Find files by name, the newest first."""

from typing import Annotated, Any, Final

from pydantic import Field

from handrail.contract.driver import FileStat
from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Success
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools._glob_match import FileGlob
from handrail.tools._paths import place
from handrail.tools._walk import below, walk

MOST: Final = 1_000


@tool(effects=["reads"], needs=["files"])
async def glob(
    pattern: str,
    context: Context,
    path: Annotated[str, Field(json_schema_extra={"blank": "absent"})] = ".",
    no_ignore: bool = False,
) -> Any:
    """Find files by a glob such as `**/*.py` or `src/{a,b}*.ts`; the newest come first.

    Args:
        pattern: The glob. Without a slash it means the file's name, at any depth.
        path: The directory to search, absolute or relative to the workspace.
        no_ignore: Also look at what .gitignore leaves out.
    """
    sandbox = context.sandbox
    files = file_glob(pattern, "pattern")
    top = await directory(sandbox, path)
    found: list[FileStat] = []
    async for entry in walk(sandbox, top, no_ignore=no_ignore):
        if files.matches(below(entry.path, top)):
            found.append(entry)
    found.sort(key=lambda entry: (-entry.mtime, entry.path))
    shown = [shown_path(sandbox, entry.path) for entry in found[:MOST]]
    value = {"kind": "paths", "pattern": pattern, "paths": shown, "count": len(found), "truncated": len(found) > MOST}
    note = f"{len(found) - MOST} older files are not shown; search a smaller directory."
    return Success(value, (note,) if len(found) > MOST else ())


def file_glob(pattern: str, field: str) -> FileGlob:
    """The glob, or invalid_args on the field it came from."""
    if not pattern.strip():
        raise ToolFailed(Failure("invalid_args", "The pattern is empty.", field=field, expected="such as **/*.py"))
    try:
        return FileGlob(pattern.removeprefix("./"))
    except ValueError as error:
        raise ToolFailed(Failure("invalid_args", str(error), field=field)) from None


async def directory(sandbox: Sandbox, path: str) -> str:
    """The real path of a directory that is there."""
    stat = await place(sandbox, path)
    if stat.type != "directory":
        raise ToolFailed(Failure("invalid_args", f"{path} is not a directory; name one to search in.", field="path"))
    return stat.real_path


def shown_path(sandbox: Sandbox, path: str) -> str:
    """As it can be passed to the next call: relative to the workspace where it lies there."""
    base = sandbox.cwd.rstrip("/") + "/"
    return path.removeprefix(base) if path.startswith(base) else path
