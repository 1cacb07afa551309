"""Find files by a glob, the newest first."""

from typing import Annotated, Any

from pydantic import Field

from handrail.contract.driver import FileStat
from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Success
from handrail.sandbox.sandbox import Sandbox
from handrail.schema.globs import file_glob
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools._paths import lookup, path_for_model
from handrail.tools._walk import relative_to, walk


@tool(effects=["reads"], needs=["files"])
async def glob(
    pattern: str,
    context: Context,
    path: Annotated[str, Field(json_schema_extra={"blank": "absent"})] = ".",
    no_ignore: bool = False,
) -> Any:
    """Find files by a glob such as `**/*.py` or `src/{a,b}*.ts`; the newest come first.

    Args:
        pattern: The glob. Without a slash it matches file names at any depth.
        path: The directory to search, absolute or relative to the workspace.
        no_ignore: Include files that .gitignore excludes.
    """
    sandbox = context.sandbox
    files = file_glob(pattern, "pattern")
    top = await _directory(sandbox, path)
    matches: list[FileStat] = []
    async for entry in walk(sandbox, top, no_ignore=no_ignore):
        if files.matches(relative_to(entry.path, top)):
            matches.append(entry)
    matches.sort(key=lambda entry: (-entry.mtime, entry.path))
    most = context.caps.paths
    paths = [path_for_model(sandbox, entry.path) for entry in matches[:most]]
    more = len(matches) > most
    value = {"kind": "paths", "pattern": pattern, "paths": paths, "count": len(matches), "truncated": more}
    note = f"{len(matches) - most} older files are not shown; search a smaller directory."
    return Success(value, (note,) if more else ())


async def _directory(sandbox: Sandbox, path: str) -> str:
    """The real path of an existing directory."""
    stat = await lookup(sandbox, path)
    if stat.type != "directory":
        raise ToolFailed(Failure("invalid_args", f"{path} is not a directory; name one to search.", field="path"))
    return stat.real_path
