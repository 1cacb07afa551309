"""Files under media/ that a script made or changed: pictures are shown, other files are named."""

import posixpath
from collections.abc import Mapping
from typing import Any, Final

from handrail.contract.driver import FileStat
from handrail.contract.errors import Unavailable
from handrail.contract.result import Image
from handrail.sandbox.sandbox import Sandbox
from handrail.script._values import MEDIA
from handrail.toolkit.images import MAX_IMAGE_BYTES, image_type

MAX_FILES_COUNT: Final = 50
"""Files that one script brings back."""


async def media_of(sandbox: Sandbox, ended: Mapping[str, Any]) -> dict[str, Any]:
    """The files that the interpreter names in `ended`, as `media`; nothing if there is none.

    The script could forge these names, so each file is looked up here.
    """
    told, left_out = ended.get("media"), ended.get("media_left_out")
    top = sandbox.at(sandbox.workspace)
    files = await _files(top, told[:MAX_FILES_COUNT] if isinstance(told, list) else [])
    more = {"media_left_out": left_out} if isinstance(left_out, int) and left_out > 0 else {}
    return {"media": [await _one(top, path, stat) for path, stat in files.items()], **more} if files else {}


async def _files(sandbox: Sandbox, paths: list[Any]) -> dict[str, FileStat]:
    """The paths that are files under media/, and no links."""
    files: dict[str, FileStat] = {}
    for path in paths:
        if isinstance(path, str) and path.startswith(f"{MEDIA}/") and posixpath.normpath(path) == path:
            try:
                top, stat = await sandbox.stat(MEDIA), await sandbox.stat(path)
            except (OSError, ValueError, Unavailable):
                continue
            if stat.type == "file" and stat.real_path == top.real_path + path[len(MEDIA) :]:
                files[path] = stat
    return files


async def _one(sandbox: Sandbox, path: str, stat: FileStat) -> dict[str, Any]:
    told: dict[str, Any] = {"path": path, "size": stat.size}
    if stat.size <= MAX_IMAGE_BYTES:
        try:
            data = await sandbox.read_bytes(path)
        except (OSError, Unavailable) as error:
            return {**told, "unreadable": str(error)}
        if media_type := image_type(data[:64]):
            told["image"] = Image(data, media_type)
    return told
