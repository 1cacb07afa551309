"""Look up the path a model named; where it cannot be used, say why, and what to do instead."""

import errno
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Final

from handrail.contract.driver import FileStat
from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure
from handrail.sandbox.asked import tidy
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context

NO_PATH: Final = {
    errno.ENOTDIR: "it is no directory, or a part of it is none; look with read what is there",
    errno.EISDIR: "it is a directory; name a file in it",
    errno.ELOOP: "its links lead in a circle; name the file itself",
    errno.ENAMETOOLONG: "it is too long; use shorter names",
}
SHOWN: Final = 20
"""Names that are listed."""
COMPARED: Final = 5_000
"""Names that are held against the one that is missing."""
Version = tuple[float, int]
_TOOL = "files"
REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


async def place(sandbox: Sandbox, path: str, field: str = "path") -> FileStat:
    """What stands there: a file, a directory or something that is neither. Raises ToolFailed for everything else."""
    stat = await place_or_none(sandbox, path, field)
    if stat is None:
        raise await missing(sandbox, path, field)
    return stat


async def place_or_none(sandbox: Sandbox, path: str, field: str = "path") -> FileStat | None:
    """The same; None where nothing is, and for a link that leads nowhere."""
    with explained(sandbox, path, field):
        try:
            stat = await sandbox.stat(path)
            if stat.type == "symlink":  # it leads nowhere, or in a circle: reading tells which
                await sandbox.read_bytes(path, length=1)
        except ValueError as error:
            raise ToolFailed(Failure("invalid_args", str(error), field=field)) from None
        except FileNotFoundError:
            return None
    return stat


@contextmanager
def explained(sandbox: Sandbox, path: str, field: str = "path") -> Iterator[None]:
    """What the system refuses inside this block becomes a Failure that says what to do."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        if number in NO_PATH:
            message = f"{path} cannot be used: {NO_PATH[number]}."
            raise ToolFailed(Failure("invalid_args", message, field=field)) from None
        if number in REFUSED:
            message = f"{path} is refused: {error.strerror}. Work in {sandbox.workspace}, or ask the user for access."
            raise ToolFailed(Failure("rejected", message, field=field)) from None
        raise


def only_a_file(path: str, stat: FileStat, otherwise: str) -> None:
    """Refuse a directory, a pipe, a socket or a device."""
    if stat.type != "file":
        what = "a directory" if stat.type == "directory" else "a pipe, socket or device"
        raise ToolFailed(Failure("invalid_args", f"{path} is {what}; {otherwise}.", field="path"))


async def missing(sandbox: Sandbox, path: str, field: str = "path") -> ToolFailed:
    """A not_found that names the nearest directory that exists, and what in it comes closest."""
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
        message = f"{path} is a link that leads nowhere; look with bash (ls -l) where it should lead."
        return ToolFailed(Failure("not_found", message, field=field))
    near = get_close_matches(wanted, names[:COMPARED], n=3, cutoff=0.6)
    shown = near or names[:SHOWN]
    where = parent or "."
    there = f"In {where} there is: {', '.join(shown)}" if shown else f"{where} is empty"
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    hint = f"Did you mean {posixpath.join(parent, near[0])}? " if near else ""
    message = f"{path} does not exist. {hint}{there}{more}."
    return ToolFailed(Failure("not_found", message, field=field, data={"directory": where, "entries": shown}))


def remember(context: Context, stat: FileStat) -> None:
    """This session has seen this version."""
    context.memory(_TOOL)[stat.real_path] = (stat.mtime, stat.size)


def changed_since_seen(context: Context, stat: FileStat) -> bool:
    """Whether the file is another than the one this session last saw; False for one it never saw."""
    seen: Version | None = context.memory(_TOOL).get(stat.real_path)
    return seen is not None and seen != (stat.mtime, stat.size)
