"""Files under media/ that a script made or changed: pictures are shown, other files are named."""

import posixpath
from typing import Any, Final

from handrail.contract.driver import FileStat
from handrail.contract.errors import Unavailable
from handrail.contract.result import Image
from handrail.sandbox.sandbox import Sandbox
from handrail.tools._script_values import MEDIA
from handrail.tools.read import LARGEST_IMAGE, image_type

MOST_FILES: Final = 50
DEEPEST: Final = 3


class Media:
    """What was under media/ before."""

    def __init__(self, sandbox: Sandbox, known: dict[str, tuple[int, float]]) -> None:
        self._sandbox = sandbox
        self._known = known

    @classmethod
    async def before(cls, sandbox: Sandbox) -> "Media":
        """Note what is there now."""
        view = sandbox.at(sandbox.workspace)
        return cls(view, {path: _version(stat) for path, stat in (await _files(view, MEDIA)).items()})

    async def made(self) -> dict[str, Any]:
        """What was made or changed since, in the order of the names, as `media`; nothing if there is none."""
        files = await _files(self._sandbox, MEDIA)
        new = [path for path, stat in sorted(files.items()) if self._known.get(path) != _version(stat)]
        told: dict[str, Any] = {"media": [await self._one(path, files[path]) for path in new[:MOST_FILES]]}
        more = {"media_left_out": len(new) - MOST_FILES} if len(new) > MOST_FILES else {}
        return {**told, **more} if new else {}

    async def _one(self, path: str, stat: FileStat) -> dict[str, Any]:
        told: dict[str, Any] = {"path": path, "size": stat.size}
        if stat.size <= LARGEST_IMAGE:
            try:
                data = await self._sandbox.read_bytes(path)
            except OSError as error:
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
