"""Look up the paths that a model sends: explain those that cannot be used, and remember the versions it has read."""

import errno
import posixpath
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final

from pydantic import Field

from handrail.contract.driver import FileStat
from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure
from handrail.misuse import close_names
from handrail.sandbox.checks import tidy
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context

UNUSABLE_PATH: Final = {
    errno.ENOTDIR: "it, or a part of it, is not a directory; list the directory above it with read",
    errno.EISDIR: "it is a directory; name a file in it",
    errno.ELOOP: "its links lead in a circle; name the file itself",
    errno.ENAMETOOLONG: "it is too long; use shorter names",
}
REFUSED_ERRNOS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
NAMES_LISTED: Final = 20
"""Number of names that a message lists."""
NAMES_COMPARED: Final = 5_000
"""Number of names that are compared with the missing one."""
_VERSIONS: Final = "files"
"""Key of the memory in which a session keeps the versions of files."""
FilePath = Annotated[str, Field(json_schema_extra={"aliases": ["file_path"]})]
"""A parameter that names one file, with the other names for it that some models were trained on."""
Version = list[float]
"""Time of change, and size, of a file."""


async def lookup(sandbox: Sandbox, path: str, field: str = "path") -> FileStat:
    """The stat of an existing path. Raises ToolFailed for any other."""
    stat = await lookup_or_none(sandbox, path, field)
    if stat is None:
        raise await path_not_found(sandbox, path, field)
    return stat


async def lookup_or_none(sandbox: Sandbox, path: str, field: str = "path") -> FileStat | None:
    """The stat of a path; None if nothing is there, or a dangling link."""
    with explain_errors(sandbox, path, field):
        try:
            stat = await sandbox.stat(path)
            if stat.type == "symlink":  # it dangles, or is part of a loop: reading tells which
                await sandbox.read_bytes(path, length=1)
        except ValueError as error:
            raise ToolFailed(Failure("invalid_args", str(error), field=field)) from None
        except FileNotFoundError:
            return None
    return stat


@contextmanager
def explain_errors(sandbox: Sandbox, path: str, field: str = "path") -> Iterator[None]:
    """Turn an error of the system inside this block into a Failure that says what to do."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        if number in UNUSABLE_PATH:
            message = f"{path} cannot be used: {UNUSABLE_PATH[number]}."
            raise ToolFailed(Failure("invalid_args", message, field=field)) from None
        if number in REFUSED_ERRNOS:
            message = f"{path} is refused: {error.strerror}. Work in {sandbox.workspace}, or ask the user for access."
            raise ToolFailed(Failure("rejected", message, field=field)) from None
        raise


def require_file(path: str, stat: FileStat, advice: str) -> None:
    """Raise ToolFailed for a directory, pipe, socket or device."""
    if stat.type != "file":
        what = "a directory" if stat.type == "directory" else "a pipe, socket or device"
        raise ToolFailed(Failure("invalid_args", f"{path} is {what}; {advice}.", field="path"))


async def path_not_found(sandbox: Sandbox, path: str, field: str = "path") -> ToolFailed:
    """A not_found failure that names the nearest existing directory, and the entries most like the missing one."""
    parent, wanted = posixpath.split(tidy(path))
    names: list[str] = []
    while True:
        try:
            names = [posixpath.basename(entry.path) for entry in await sandbox.list(parent or ".")]
            break
        except OSError:
            if parent in ("", "/"):
                break
            parent, wanted = posixpath.split(parent)
    if wanted in names:
        message = f"{path} is a link to a path that does not exist; see where it leads with bash (ls -l)."
        return ToolFailed(Failure("not_found", message, field=field))
    near = close_names(wanted, names[:NAMES_COMPARED], count=3)
    listed = near or names[:NAMES_LISTED]
    directory = parent or "."
    where = f"The directory {parent}" if parent else "The workspace"
    entries = f"{where} contains: {', '.join(listed)}" if listed else f"{where} is empty"
    more = f" and {len(names) - len(listed)} more" if len(names) > len(listed) else ""
    hint = f"Did you mean {posixpath.join(parent, near[0])}? " if near else ""
    message = f"{path} does not exist. {hint}{entries}{more}."
    return ToolFailed(Failure("not_found", message, field=field, data={"directory": directory, "entries": listed}))


async def check_place(sandbox: Sandbox, path: str) -> None:
    """Raise ToolFailed for a path that climbs out of the workspace and the mounts: what is written there is lost."""
    roots, parts = sandbox.report.lasting, path.split("/")
    if parts[0] == "~":
        message = f"{path} begins with ~, which only a shell expands. Give a path below {sandbox.workspace}."
        raise ToolFailed(Failure("invalid_args", message, field="path", expected=f"a path below {sandbox.workspace}"))
    if not roots or ".." not in parts:
        return
    above = await _real_directory(sandbox, posixpath.join(sandbox.cwd, posixpath.dirname(path)))
    if not is_in(above, roots):
        message = (
            f"{path} leads out of the workspace, to {above}, where a file would go with the sandbox. "
            f"Give a path below {sandbox.workspace}."
        )
        raise ToolFailed(Failure("invalid_args", message, field="path", expected=f"a path below {sandbox.workspace}"))


async def _real_directory(sandbox: Sandbox, path: str) -> str:
    """The directory that a path leads to, as the kernel follows links; one that is missing lies below its nearest."""
    missing: list[str] = []
    while True:
        try:
            return posixpath.normpath(posixpath.join((await sandbox.stat(path)).real_path, *reversed(missing)))
        except (OSError, ValueError):
            if path in ("", "/"):
                return "/"
            path, name = posixpath.split(path.rstrip("/"))
            missing.append(name)


def lost_with_sandbox(sandbox: Sandbox, stat: FileStat, path: str) -> tuple[str, ...]:
    """A warning for a file that lies where nothing outlives the sandbox."""
    roots = sandbox.report.lasting
    if not roots or is_in(stat.real_path, roots):
        return ()
    return (
        f"{path} is outside the workspace, so it goes with the sandbox; write below {sandbox.workspace} to keep it.",
    )


def is_in(path: str, roots: Iterable[str]) -> bool:
    """Whether a path is one of these directories, or below one."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def remember_version(context: Context, stat: FileStat) -> None:
    """Note that this session has read or written this version of the file."""
    context.memory(_VERSIONS, lasts=True)[stat.real_path] = [stat.mtime, stat.size]


def changed_since_read(context: Context, stat: FileStat) -> bool:
    """Whether the file has changed since this session last read or wrote it; False if it never did."""
    known: Version | None = context.memory(_VERSIONS, lasts=True).get(stat.real_path)
    return known is not None and known != [stat.mtime, stat.size]


def path_for_model(sandbox: Sandbox, path: str) -> str:
    """The path as the next call can take it: relative to the working directory if it lies below."""
    base = sandbox.cwd.rstrip("/") + "/"
    return path.removeprefix(base) if path.startswith(base) else path
