"""Search the contents of files: with ripgrep where the sandbox has it, and with the same answers without."""

import posixpath
from typing import Annotated, Any, Final

from pydantic import Field

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Success
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools.braces import FileGlob
from handrail.tools.glob import file_glob, shown_path
from handrail.tools.matching import Found, Regex, search, search_with_ripgrep
from handrail.tools.missing import missing
from handrail.tools.walk import walk

MATCHES: Final = 100
LONGEST: Final = 500
"""Characters of a line that are shown."""
LARGEST: Final = 32 << 20
"""Bytes of a file that is searched; larger ones are passed over, and that is said."""


@tool(effects=["reads"], needs=["files"])
async def grep(
    pattern: Annotated[str, Field(min_length=1)],
    call: Context,
    path: str = ".",
    glob: str | None = None,
    context: Annotated[int, Field(ge=0, le=20)] = 0,
    ignore_case: bool = False,
    no_ignore: bool = False,
) -> Any:
    """Search the contents of files, line by line, by a regular expression (no look-around).

    Args:
        pattern: The regular expression.
        path: The directory or file to search, absolute or relative to the workspace.
        glob: Only files that match this glob, such as `*.py` or `src/**`.
        context: Lines to show before and after each match.
        ignore_case: Take upper and lower case for the same.
        no_ignore: Also search what .gitignore leaves out.
    """
    sandbox = call.sandbox
    try:
        regex = Regex(pattern, ignore_case=ignore_case)
    except ValueError as error:
        raise ToolFailed(Failure("invalid_args", str(error), field="pattern")) from None
    files = None if glob is None else file_glob(glob, "glob")
    paths, too_large = await _files(sandbox, path, files, no_ignore)
    look = search_with_ripgrep if await _has_ripgrep(call) else search
    found = await look(sandbox, regex, paths, MATCHES + 1)
    shown = [await _shown(sandbox, each, context) for each in found[:MATCHES]]
    truncated = len(found) > MATCHES
    value = {
        "kind": "matches", "pattern": pattern, "matches": shown, "match_count": len(shown),
        "files_searched": len(paths), "truncated": truncated,
    }  # fmt: skip
    notes = (
        [f"Only the first {MATCHES} matches are shown; search a smaller directory, or use glob."] if truncated else []
    )
    if too_large:
        notes.append(f"{too_large} files larger than {LARGEST >> 20} MiB were not searched.")
    return Success(value, tuple(notes))


async def _files(sandbox: Sandbox, path: str, files: FileGlob | None, no_ignore: bool) -> tuple[list[str], int]:
    """The files to search, sorted, and how many were too large."""
    try:
        stat = await sandbox.stat(path)
    except FileNotFoundError:
        raise await missing(sandbox, path) from None
    if stat.type == "file":
        return ([stat.real_path], 0) if stat.size <= LARGEST else ([], 1)
    if stat.type != "directory":
        raise ToolFailed(
            Failure("invalid_args", f"{path} is a pipe, socket or device; it cannot be searched.", field="path")
        )
    paths, too_large = [], 0
    async for entry in walk(sandbox, stat.real_path, no_ignore=no_ignore):
        if files is not None and not files.matches(posixpath.relpath(entry.path, stat.real_path)):
            continue
        if entry.size > LARGEST:
            too_large += 1
        else:
            paths.append(entry.path)
    return sorted(paths), too_large


async def _has_ripgrep(call: Context) -> bool:
    """Asked once per session."""
    known = call.memory("grep")
    if "ripgrep" not in known:
        known["ripgrep"] = await _answers(call.sandbox, ["rg", "--version"]) and await _answers(
            call.sandbox, ["xargs", "-0", "true"]
        )
    return bool(known["ripgrep"])


async def _answers(sandbox: Sandbox, argv: list[str]) -> bool:
    if "exec" not in sandbox.features:
        return False
    try:
        return (await sandbox.run(argv, stdin=b"", timeout=10)).exit_code == 0
    except OSError:
        return False


async def _shown(sandbox: Sandbox, found: Found, context: int) -> dict[str, Any]:
    match: dict[str, Any] = {"path": shown_path(sandbox, found.path), "line": found.line, "text": _cut(found.text)}
    if context:
        lines = (await sandbox.read_bytes(found.path)).decode("utf-8", "replace").split("\n")
        at = found.line - 1
        match["before"] = [_cut(line) for line in lines[max(0, at - context) : at]]
        match["after"] = [_cut(line) for line in lines[at + 1 : at + 1 + context]]
    return match


def _cut(line: str) -> str:
    line = line.removesuffix("\r")
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} [… {len(line) - LONGEST:,} more characters]"
