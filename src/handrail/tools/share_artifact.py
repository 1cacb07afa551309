"""Share a file with the user: copy it out of the sandbox, under a name that is safe on any system."""

import posixpath
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from mimetypes import MimeTypes
from typing import Annotated, Any, Final

from pydantic import Field

from handrail.artifacts.store import BINARY
from handrail.contract.driver import FileStat
from handrail.contract.errors import ToolFailed
from handrail.contract.result import ArtifactRef, Failure, Success
from handrail.sandbox.checks import tidy
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools._paths import FilePath

MAX_FILE_BYTES: Final = 1 << 30
"""Size of the largest file that can be shared, in bytes."""
MAX_NAME_CHARS: Final = 255
OUTPUT_DIRECTORIES: Final = ("media", "output", "dist", "build")
"""Directories of the workspace where files for the user usually are."""
COPY_CHUNK: Final = 1 << 20
MEDIA_TYPES: Final = MimeTypes(filenames=())  # the built-in table, the same on every machine
for _type, _endings in {
    "text/markdown": (".md", ".markdown"), "text/plain": (".log",), "image/webp": (".webp",),
    "application/yaml": (".yaml", ".yml"), "application/toml": (".toml",), "application/jsonl": (".jsonl",),
}.items():  # fmt: skip
    for _ending in _endings:
        MEDIA_TYPES.add_type(_type, _ending)  # which Python knows only in some versions


def _check(arguments: Mapping[str, Any]) -> None:
    """Raise ToolFailed for a path or a name that no file can have, and where there is nothing to share."""
    path, filename, content = (arguments.get(name) for name in ("path", "filename", "content"))
    if path is not None and (not path.strip() or "\0" in path):
        raise _invalid("path", "The path is empty or contains a NUL character", "the path of a file")
    if filename is not None:
        _checked_name(filename)
    if content is not None:
        _named(path, filename)
    elif path is None:
        message = "There is nothing to share: send the path of a file, or content with a filename"
        raise _invalid("path", message, "the path of a file")


@tool(risk="high", effects=["reads"], needs=["files"], validate=_check)
async def share_artifact(
    context: Context,
    path: FilePath | None = None,
    filename: str | None = None,
    content: Annotated[str | None, Field(json_schema_extra={"blank": "keep"})] = None,
) -> Any:
    """Share a file with the user, who gets it as a download. Say what it is in your answer.

    Args:
        path: The file, absolute or relative to the workspace; it must be inside the workspace.
        filename: The name the user sees; by default the file's own.
        content: Share this text, under `filename` or the path's name, instead of a file; nothing is written. Blank
            content beside a path is ignored.
    """
    if content is not None and (content.strip() or path is None):  # models send every field: a blank one is absent
        name = _named(path, filename)
        artifact = await context.artifacts.put(content, media_type=_text_type(_type_of(name)), name=name)
        return _answer(artifact, None)
    assert path is not None, "the arguments were checked"
    file = await _find(context.sandbox, path)
    name = _checked_name(posixpath.basename(file.path)) if filename is None else filename
    artifact = await _copy(context, file, _type_of(name), name)
    notes = () if file.path == _absolute(context.sandbox, path) else (f"{path} is not there; shared {file.path}.",)
    return _answer(artifact, file.path, notes)


def _answer(artifact: ArtifactRef, path: str | None, notes: tuple[str, ...] = ()) -> Success:
    where = {} if path is None else {"path": path}
    return Success(
        {"kind": "shared", "artifact": artifact, **where, "name": artifact.name, "size": artifact.size}, notes
    )


def _named(path: str | None, filename: str | None) -> str:
    """The name for content: the filename, or the path's own."""
    if filename is not None:
        return filename
    if path is None:
        raise _invalid("filename", "Content without a path needs a name", "a plain name such as report.md")
    name = posixpath.basename(path.rstrip("/"))
    if name in ("", ".", ".."):
        raise _invalid("path", f"{path} names a directory", "the path of a file")
    return _checked_name(name)


def _checked_name(name: str) -> str:
    """The name, if it is a plain file name. Raises ToolFailed on `filename` otherwise."""
    bad = not name.strip() or name in (".", "..") or "/" in name or "\\" in name or not name.isprintable()
    if bad or len(name.encode("utf-8", "replace")) > MAX_NAME_CHARS:
        escaped = name[:80].encode("unicode_escape").decode()
        raise _invalid("filename", f"{escaped!r} is not a usable file name", "a plain name such as report.pdf")
    return name


def _type_of(name: str) -> str:
    return MEDIA_TYPES.guess_type(name)[0] or BINARY


async def _find(sandbox: Sandbox, path: str) -> FileStat:
    """The file at the path; failing that, the one that was probably meant. Never one outside the workspace."""
    asked, tried = _absolute(sandbox, path), _candidates(sandbox, path)
    for candidate in dict.fromkeys((asked, *tried)):
        try:
            stat = await sandbox.stat(candidate)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            if candidate not in tried:
                raise _outside(sandbox, path) from None
            reason = getattr(error, "strerror", None) or str(error)
            advice = f"Find the files in {sandbox.workspace} with glob"
            raise _invalid("path", f"{path} cannot be shared: {reason}. {advice}", "a file that can be read") from None
        if stat.type == "symlink":  # it dangles
            continue
        if not _is_below(stat.real_path, (await sandbox.stat(sandbox.workspace)).real_path):
            raise _outside(sandbox, path)
        return _shareable(path, candidate, stat)
    if asked not in tried:
        raise _outside(sandbox, path)
    listed = ", ".join(tried)
    message = f"There is no file {path}. Tried: {listed}. Find the file with glob, or create it first."
    raise ToolFailed(Failure("execution_error", message, field="path", data={"tried": tried}))


def _outside(sandbox: Sandbox, path: str) -> ToolFailed:
    message = (
        f"{path} is outside the workspace {sandbox.workspace}; only files inside can be shared. "
        "Find the file with glob, or copy it into the workspace first."
    )
    return ToolFailed(Failure("invalid_args", message, field="path", expected=f"a file in {sandbox.workspace}"))


def _shareable(path: str, candidate: str, stat: FileStat) -> FileStat:
    if stat.type != "file":
        what = "a directory; pack it into one file first" if stat.type == "directory" else "a pipe, socket or device"
        raise _invalid("path", f"{path} is {what}", "the path of a file")
    if stat.size > MAX_FILE_BYTES:
        raise _invalid(
            "path", f"{path} has {stat.size:,} bytes, more than can be shared", f"at most {MAX_FILE_BYTES:,} bytes"
        )
    return replace(stat, path=candidate)


def _candidates(sandbox: Sandbox, path: str) -> list[str]:
    """The paths in the workspace where the file may be, the requested one first."""
    inside = path.strip("/")
    usual = [
        posixpath.join(folder, part) for part in (inside, posixpath.basename(inside)) for folder in OUTPUT_DIRECTORIES
    ]
    guessed = [tidy(posixpath.join(sandbox.workspace, each)) for each in (inside, *usual)]
    paths = [
        candidate
        for candidate in (_absolute(sandbox, path), *guessed)
        if _is_below(posixpath.normpath(candidate), sandbox.workspace)
    ]
    return list(dict.fromkeys(paths))


def _absolute(sandbox: Sandbox, path: str) -> str:
    return tidy(posixpath.join(sandbox.cwd, path))


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")


async def _copy(context: Context, file: FileStat, media_type: str, name: str) -> ArtifactRef:
    try:
        return await context.artifacts.put_stream(_chunks(context.sandbox, file), media_type=media_type, name=name)
    except PermissionError as error:
        raise _invalid("path", f"{file.path} is not readable: {error.strerror}", "a file that can be read") from None
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"{file.path} could not be copied: {reason}. Nothing was shared; try again."
        raise ToolFailed(Failure("execution_error", message)) from None


async def _chunks(sandbox: Sandbox, file: FileStat) -> AsyncIterator[bytes]:
    at = 0
    while at < file.size:
        data = await sandbox.read_bytes(file.path, start=at, length=min(COPY_CHUNK, file.size - at))
        if not data:
            raise OSError(f"the file became shorter while it was read, at byte {at:,} of {file.size:,}")
        yield data
        at += len(data)


def _text_type(media_type: str) -> str:
    return "text/plain; charset=utf-8" if media_type == BINARY else media_type


def _invalid(field: str, message: str, expected: str) -> ToolFailed:
    return ToolFailed(Failure("invalid_args", f"{message}.", field=field, expected=expected))
