"""Files under media/ that a script made or changed: pictures are shown, other files are named."""

import posixpath
from collections.abc import Mapping
from typing import Any, Final

from handrail.contract.driver import FileStat
from handrail.contract.errors import Unavailable
from handrail.contract.result import Image
from handrail.sandbox.sandbox import Sandbox
from handrail.tools._script_values import MEDIA
from handrail.tools.read import MAX_IMAGE_BYTES, image_type

MAX_FILES_COUNT: Final = 50
DEEPEST: Final = 3


class Media:
    """What was under media/ before; nothing for an engine that tells what it changed."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox.at(sandbox.workspace)
        self._known: dict[str, tuple[int, float]] | None = None

    @classmethod
    async def before(cls, sandbox: Sandbox) -> "Media":
        """Note what is there now."""
        media = cls(sandbox)
        media._known = {path: _version(stat) for path, stat in (await _files(media._sandbox, MEDIA)).items()}
        return media

    async def made(self, ended: Mapping[str, Any]) -> dict[str, Any]:
        """What was made or changed since, in the order of the names, as `media`; nothing if there is none.

        An engine that has looked itself says so in `ended`. That is not trusted: the files are looked up here.
        """
        if isinstance(told := ended.get("media"), list):
            files = await self._named(told[:MAX_FILES_COUNT])
            left_out = ended.get("media_left_out")
        elif (known := self._known) is None:
            return {}
        else:
            found = await _files(self._sandbox, MEDIA)
            new = [path for path, stat in sorted(found.items()) if known.get(path) != _version(stat)]
            files, left_out = {path: found[path] for path in new[:MAX_FILES_COUNT]}, len(new) - MAX_FILES_COUNT
        more = {"media_left_out": left_out} if isinstance(left_out, int) and left_out > 0 else {}
        return {"media": [await self._one(path, stat) for path, stat in files.items()], **more} if files else {}

    async def _named(self, paths: list[Any]) -> dict[str, FileStat]:
        """Those of these paths that are files under media/, and no links."""
        files: dict[str, FileStat] = {}
        for path in paths:
            if isinstance(path, str) and path.startswith(f"{MEDIA}/") and posixpath.normpath(path) == path:
                try:
                    top, stat = await self._sandbox.stat(MEDIA), await self._sandbox.stat(path)
                except (OSError, ValueError, Unavailable):
                    continue
                if stat.type == "file" and stat.real_path == top.real_path + path[len(MEDIA) :]:
                    files[path] = stat
        return files

    async def _one(self, path: str, stat: FileStat) -> dict[str, Any]:
        told: dict[str, Any] = {"path": path, "size": stat.size}
        if stat.size <= MAX_IMAGE_BYTES:
            try:
                data = await self._sandbox.read_bytes(path)
            except (OSError, Unavailable) as error:
                return {**told, "unreadable": str(error)}
            if media_type := image_type(data[:64]):
                told["image"] = Image(data, media_type)
        return told


async def _files(sandbox: Sandbox, directory: str, depth: int = 0) -> dict[str, FileStat]:
    try:
        entries = await sandbox.list(directory)
    except (OSError, Unavailable):
        return {}
    found: dict[str, FileStat] = {}
    for entry in entries:
        path = posixpath.join(directory, entry.name)
        if entry.type == "file":
            found[path] = entry
        elif entry.type == "directory" and depth < DEEPEST:
            found |= await _files(sandbox, path, depth + 1)
    return found


def _version(stat: FileStat) -> tuple[int, float]:
    return stat.size, stat.mtime
