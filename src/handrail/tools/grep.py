"""Search the contents of files by a regular expression; the answers are those of `rg --crlf`, also without ripgrep."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import Field

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Success
from handrail.sandbox.sandbox import Sandbox
from handrail.schema.globs import FileGlob, file_glob
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools._paths import explain_errors, lookup, path_for_model, require_file
from handrail.tools._regex import Regex
from handrail.tools._search import MAX_SEARCHED_LINE_CHARS, Match, Search, files_worth_reading
from handrail.tools._walk import relative_to, walk

MAX_FILE_BYTES: Final = 32 << 20
"""Size of the largest file that is searched, in bytes; the result says how many were skipped."""
FILES_NAMED: Final = 20
"""Number of binary files that a result names."""
PYTHON_CACHE: Final = "__pycache__"
"""Directory of compiled files, which nobody means to search: its binary files are not named."""


@tool(effects=["reads"], needs=["files"])
async def grep(
    pattern: Annotated[str, Field(min_length=1)],
    call: Context,
    path: Annotated[str, Field(json_schema_extra={"blank": "absent"})] = ".",
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
        ignore_case: Match upper and lower case alike.
        no_ignore: Include files that .gitignore excludes.
    """
    sandbox = call.sandbox
    try:
        regex = Regex(pattern, ignore_case=ignore_case)
    except ValueError as error:
        raise ToolFailed(Failure("invalid_args", str(error), field="pattern")) from None
    files = None if glob is None else file_glob(glob, "glob")
    paths, too_large = await _files(sandbox, path, files, no_ignore)
    caps = call.caps
    search = Search(sandbox, regex, most=caps.matches + 1, context=context)
    await search.search_files(await files_worth_reading(sandbox, regex, paths) if await _has_ripgrep(call) else paths)
    matches = [_for_model(sandbox, each, context, caps.match) for each in search.matches[: caps.matches]]
    meant = PYTHON_CACHE in path.split("/")
    binary = [each for each in search.binary if meant or PYTHON_CACHE not in each.split("/")]
    reached = len(paths) if search.last is None else paths.index(search.last) + 1
    value = {
        "kind": "matches", "pattern": pattern, "matches": matches, "match_count": len(matches),
        "files_searched": reached - len(search.binary) - len(search.unreadable),
        "binary_files": [path_for_model(sandbox, each) for each in binary[:FILES_NAMED]],
        "truncated": len(search.matches) > caps.matches,
    }  # fmt: skip
    return Success(value, tuple(_notes(sandbox, search, binary, caps.matches, too_large)))


def _notes(sandbox: Sandbox, search: Search, binary: list[str], most: int, too_large: int) -> Iterator[str]:
    if len(search.matches) > most:
        yield f"Only the first {most} matches are shown; search a smaller directory, or use glob."
    if binary:
        yield f"Binary files were not searched: {_names(sandbox, binary)}; search them with bash (grep -a)."
    if search.unreadable:
        yield f"Files that cannot be read were not searched: {_names(sandbox, search.unreadable)}."
    if too_large:
        yield f"Files larger than {MAX_FILE_BYTES >> 20} MiB were not searched ({too_large}); search them with bash."
    if search.shortened:
        kibibytes = MAX_SEARCHED_LINE_CHARS >> 10
        yield f"Only the beginning of lines longer than {kibibytes} KiB was searched ({search.shortened})."


def _names(sandbox: Sandbox, paths: list[str]) -> str:
    more = f" and {len(paths) - FILES_NAMED} more" if len(paths) > FILES_NAMED else ""
    return ", ".join(path_for_model(sandbox, each) for each in paths[:FILES_NAMED]) + more


async def _files(sandbox: Sandbox, path: str, files: FileGlob | None, no_ignore: bool) -> tuple[list[str], int]:
    """The paths of the files to search, sorted, and how many files were too large."""
    stat = await lookup(sandbox, path)
    if stat.type == "file" and stat.size > MAX_FILE_BYTES:
        message = f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB; search it with bash (grep -n)."
        raise ToolFailed(Failure("invalid_args", message, field="path"))
    if stat.type != "directory":
        require_file(path, stat, "it cannot be searched")
        with explain_errors(sandbox, path):
            await sandbox.read_bytes(path, length=1)  # an unreadable file must not look like one without a match
        return [stat.real_path], 0
    paths, too_large = [], 0
    async for entry in walk(sandbox, stat.real_path, no_ignore=no_ignore):
        if files is not None and not files.matches(relative_to(entry.path, stat.real_path)):
            continue
        if entry.size > MAX_FILE_BYTES:
            too_large += 1
        else:
            paths.append(entry.path)
    return sorted(paths), too_large


async def _has_ripgrep(call: Context) -> bool:
    """Whether the sandbox can run ripgrep; tried once per session."""
    known = call.memory("grep")
    if "ripgrep" not in known:
        known["ripgrep"] = await _runs(call.sandbox, ["rg", "--version"]) and await _runs(
            call.sandbox, ["xargs", "-0", "true"]
        )
    return bool(known["ripgrep"])


async def _runs(sandbox: Sandbox, argv: list[str]) -> bool:
    if "exec" not in sandbox.features:
        return False
    try:
        return (await sandbox.run(argv, stdin=b"", timeout=10)).exit_code == 0
    except OSError:
        return False


def _for_model(sandbox: Sandbox, match: Match, context: int, cap: int) -> dict[str, Any]:
    path = path_for_model(sandbox, match.path)
    value: dict[str, Any] = {"path": path, "line": match.line, "text": _cut(match.text, cap)}
    if context:
        before, after = ([_cut(line, cap) for line in lines] for lines in (match.before, match.after))
        value |= {"before": before, "after": after}
    return value


def _cut(line: str, cap: int) -> str:
    line = line.removesuffix("\r")
    return line if len(line) <= cap else f"{line[:cap]} [… {len(line) - cap:,} more characters]"
