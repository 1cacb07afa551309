"""Hand a file over to the person: copied out of the sandbox as it is now, under a name that is safe anywhere."""

import posixpath
from collections.abc import AsyncIterator
from dataclasses import replace
from mimetypes import MimeTypes
from typing import Any, Final

from handrail.artifacts.scope import BINARY
from handrail.contract.driver import FileStat
from handrail.contract.errors import ToolFailed
from handrail.contract.result import ArtifactRef, Failure, Success
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool

LARGEST: Final = 1 << 30
"""Bytes of a file that can be shared."""
LONGEST_NAME: Final = 255
CHUNK: Final = 1 << 20
TYPES: Final = MimeTypes(filenames=())  # the built-in table, the same on every machine


@tool(risk="high", effects=["reads"], needs=["files"])
async def share_artifact(path: str, context: Context, filename: str | None = None, content: str | None = None) -> Any:
    """Share a file with the user, who gets it as a download. Say what it is in your answer.

    Args:
        path: The file, absolute or relative to the workspace.
        filename: The name the user sees; by default the file's own.
        content: Share this text under the path's name instead of a file's content; nothing is written to the path.
    """
    if not path.strip() or "\0" in path:
        raise _refused("path", "The path is empty or holds a NUL character", "the path of a file")
    name = _checked_name(posixpath.basename(path.rstrip("/")) if filename is None else filename)
    media_type = TYPES.guess_type(name)[0] or BINARY
    if content is not None:
        kept = await context.artifacts.put(content, media_type=_text_type(media_type), name=name)
        return _answer(kept, path)
    found = await _find(context.sandbox, path)
    kept = await _copy(context, found, media_type, name)
    notes = () if found.path == _absolute(context.sandbox, path) else (f"{path} is not there; shared {found.path}.",)
    return _answer(kept, found.path, notes)


def _answer(kept: ArtifactRef, path: str, notes: tuple[str, ...] = ()) -> Success:
    return Success({"kind": "shared", "artifact": kept, "path": path, "name": kept.name, "size": kept.size}, notes)


def _checked_name(name: str) -> str:
    """A plain file name. Raises ToolFailed on `filename` for anything else."""
    bad = not name.strip() or name in (".", "..") or "/" in name or "\\" in name or not name.isprintable()
    if bad or len(name.encode("utf-8", "replace")) > LONGEST_NAME:
        shown = name[:80].encode("unicode_escape").decode()
        raise _refused("filename", f"{shown!r} cannot be a file's name", "a plain name such as report.pdf")
    return name


async def _find(sandbox: Sandbox, path: str) -> FileStat:
    """The file at the path or, where nothing is there, at a place that was probably meant."""
    tried = _candidates(sandbox, path)
    for place in tried:
        try:
            stat = await sandbox.stat(place)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise _refused("path", f"{path} cannot be shared: {reason}", "a file that can be read") from None
        if stat.type == "symlink":  # it leads nowhere
            continue
        return _shareable(path, place, stat)
    listed = ", ".join(tried)
    message = f"There is no file {path}. Tried: {listed}. Look where the file is, or make it first."
    raise ToolFailed(Failure("execution_error", message, field="path", data={"tried": tried}))


def _shareable(path: str, place: str, stat: FileStat) -> FileStat:
    if stat.type != "file":
        what = "a directory; pack it into one file first" if stat.type == "directory" else "a pipe, socket or device"
        raise _refused("path", f"{path} is {what}", "the path of a file")
    if stat.size > LARGEST:
        raise _refused("path", f"{path} has {stat.size:,} bytes, more than can be shared", f"at most {LARGEST:,} bytes")
    return replace(stat, path=place)


def _candidates(sandbox: Sandbox, path: str) -> list[str]:
    inside = posixpath.normpath(posixpath.join(sandbox.workspace, path.lstrip("/")))
    media = posixpath.join(sandbox.workspace, "media", posixpath.basename(path.rstrip("/")))
    return list(dict.fromkeys([_absolute(sandbox, path), inside, media]))


def _absolute(sandbox: Sandbox, path: str) -> str:
    return posixpath.normpath(posixpath.join(sandbox.cwd, path))


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
