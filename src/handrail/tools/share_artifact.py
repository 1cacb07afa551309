"""Hand a file over to the person: copied out of the sandbox as it is now, under a name that is safe anywhere."""

import posixpath
from collections.abc import AsyncIterator
from dataclasses import replace
from mimetypes import MimeTypes
from typing import Any, Final

from handrail.artifacts.store import BINARY
from handrail.contract.driver import FileStat
from handrail.contract.errors import ToolFailed
from handrail.contract.result import ArtifactRef, Failure, Success
from handrail.sandbox.asked import tidy
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool

LARGEST: Final = 1 << 30
"""Bytes of a file that can be shared."""
LONGEST_NAME: Final = 255
FOLDERS: Final = ("media", "output", "dist", "build")
"""Where files that were made for the user usually are."""
CHUNK: Final = 1 << 20
TYPES: Final = MimeTypes(filenames=())  # the built-in table, the same on every machine


@tool(risk="high", effects=["reads"], needs=["files"])
async def share_artifact(
    context: Context, path: str | None = None, filename: str | None = None, content: str | None = None
) -> Any:
    """Share a file with the user, who gets it as a download. Say what it is in your answer.

    Args:
        path: The file, absolute or relative to the workspace, in which it must lie.
        filename: The name the user sees; by default the file's own.
        content: Share this text, under `filename` or the path's name, instead of a file; nothing is written.
    """
    if path is not None and (not path.strip() or "\0" in path):
        raise _refused("path", "The path is empty or holds a NUL character", "the path of a file")
    if filename is not None:
        _checked_name(filename)
    if content is not None:
        name = _name_in(path) if filename is None else filename
        kept = await context.artifacts.put(content, media_type=_text_type(_type_of(name)), name=name)
        return _answer(kept, path)
    if path is None:
        message = "There is nothing to share: send the path of a file, or content with a filename"
        raise _refused("path", message, "the path of a file")
    found = await _find(context.sandbox, path)
    name = _checked_name(posixpath.basename(found.path)) if filename is None else filename
    kept = await _copy(context, found, _type_of(name), name)
    notes = () if found.path == _asked(context.sandbox, path) else (f"{path} is not there; shared {found.path}.",)
    return _answer(kept, found.path, notes)


def _answer(kept: ArtifactRef, path: str | None, notes: tuple[str, ...] = ()) -> Success:
    where = {} if path is None else {"path": path}
    return Success({"kind": "shared", "artifact": kept, **where, "name": kept.name, "size": kept.size}, notes)


def _name_in(path: str | None) -> str:
    """The name that content gets where no other is given."""
    if path is None:
        raise _refused("filename", "Content without a path needs a name", "a plain name such as report.md")
    name = posixpath.basename(path.rstrip("/"))
    if name in ("", ".", ".."):
        raise _refused("path", f"{path} names a directory", "the path of a file")
    return _checked_name(name)


def _checked_name(name: str) -> str:
    """A plain file name. Raises ToolFailed on `filename` for anything else."""
    bad = not name.strip() or name in (".", "..") or "/" in name or "\\" in name or not name.isprintable()
    if bad or len(name.encode("utf-8", "replace")) > LONGEST_NAME:
        shown = name[:80].encode("unicode_escape").decode()
        raise _refused("filename", f"{shown!r} cannot be a file's name", "a plain name such as report.pdf")
    return name


def _type_of(name: str) -> str:
    return TYPES.guess_type(name)[0] or BINARY


async def _find(sandbox: Sandbox, path: str) -> FileStat:
    """The file at the path or, where nothing is there, at a place that was probably meant. Never outside."""
    asked, tried = _asked(sandbox, path), _candidates(sandbox, path)
    for place in dict.fromkeys((asked, *tried)):
        try:
            stat = await sandbox.stat(place)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            if place not in tried:
                raise _outside(sandbox, path) from None
            reason = getattr(error, "strerror", None) or str(error)
            advice = f"Look with glob which files are in {sandbox.workspace}"
            raise _refused("path", f"{path} cannot be shared: {reason}. {advice}", "a file that can be read") from None
        if stat.type == "symlink":  # it leads nowhere
            continue
        if not _is_below(stat.real_path, (await sandbox.stat(sandbox.workspace)).real_path):
            raise _outside(sandbox, path)
        return _shareable(path, place, stat)
    if asked not in tried:
        raise _outside(sandbox, path)
    listed = ", ".join(tried)
    message = f"There is no file {path}. Tried: {listed}. Look with glob where the file is, or make it first."
    raise ToolFailed(Failure("execution_error", message, field="path", data={"tried": tried}))


def _outside(sandbox: Sandbox, path: str) -> ToolFailed:
    message = (
        f"{path} lies outside the workspace {sandbox.workspace}, and only files in it can be shared. "
        "Look with glob where the file is, or copy it into the workspace first."
    )
    return ToolFailed(Failure("invalid_args", message, field="path", expected=f"a file in {sandbox.workspace}"))


def _shareable(path: str, place: str, stat: FileStat) -> FileStat:
    if stat.type != "file":
        what = "a directory; pack it into one file first" if stat.type == "directory" else "a pipe, socket or device"
        raise _refused("path", f"{path} is {what}", "the path of a file")
    if stat.size > LARGEST:
        raise _refused("path", f"{path} has {stat.size:,} bytes, more than can be shared", f"at most {LARGEST:,} bytes")
    return replace(stat, path=place)


def _candidates(sandbox: Sandbox, path: str) -> list[str]:
    """The places in the workspace where the file may be, the one that was asked for first."""
    inside = path.strip("/")
    usual = [posixpath.join(folder, part) for part in (inside, posixpath.basename(inside)) for folder in FOLDERS]
    guessed = [tidy(posixpath.join(sandbox.workspace, each)) for each in (inside, *usual)]
    places = [
        place for place in (_asked(sandbox, path), *guessed) if _is_below(posixpath.normpath(place), sandbox.workspace)
    ]
    return list(dict.fromkeys(places))


def _asked(sandbox: Sandbox, path: str) -> str:
    return tidy(posixpath.join(sandbox.cwd, path))


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")


async def _copy(context: Context, found: FileStat, media_type: str, name: str) -> ArtifactRef:
    try:
        return await context.artifacts.put_stream(_chunks(context.sandbox, found), media_type=media_type, name=name)
    except PermissionError as error:
        raise _refused("path", f"{found.path} may not be read: {error.strerror}", "a file that can be read") from None
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"{found.path} could not be copied: {reason}. Nothing was shared; try again."
        raise ToolFailed(Failure("execution_error", message)) from None


async def _chunks(sandbox: Sandbox, found: FileStat) -> AsyncIterator[bytes]:
    at = 0
    while at < found.size:
        data = await sandbox.read_bytes(found.path, start=at, length=min(CHUNK, found.size - at))
        if not data:
            raise OSError(f"it became shorter while it was read, at byte {at:,} of {found.size:,}")
        yield data
        at += len(data)


def _text_type(media_type: str) -> str:
    return "text/plain; charset=utf-8" if media_type == BINARY else media_type


def _refused(field: str, message: str, expected: str) -> ToolFailed:
    return ToolFailed(Failure("invalid_args", f"{message}.", field=field, expected=expected))
