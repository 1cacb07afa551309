"""Values between tools and a script: small ones as they are, large ones by reference, pictures as files."""

import json
import posixpath
import re
from typing import Any, Final

from handrail.contract.errors import ToolFailed
from handrail.contract.result import ArtifactRef, Failure, Image
from handrail.contract.wire import SCALARS
from handrail.sandbox.sandbox import Sandbox
from handrail.threads import in_thread
from handrail.toolkit.context import Context, session_of

JSON: Final = "application/json"
PREVIEW_CHARS: Final = 200
"""Characters of a value that a Ref shows."""
MEDIA: Final = "media"
"""The directory in the workspace whose files are media."""
MAX_NAME_CHARS: Final = 40
"""Characters of a call's id in the name of a file."""
MAX_READ_BYTES: Final = 1 << 19
"""Bytes of one piece of a reference; escaped as JSON they are at most six times as many, which fits into a frame."""
MAX_DEPTH: Final = 200
"""Levels of a result."""
MAX_JSON_BYTES: Final = 64 << 20
"""Bytes of the largest object or list whose parts can be asked for."""
_ENDINGS: Final = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"}


class Values:
    """The references that one script was given. A script can read these and no others; they are kept until it ends."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._given: dict[str, ArtifactRef] = {}
        self._parsed: tuple[str, Any] = ("", None)
        self._pictures = 0

    def release(self) -> None:
        """Unpin the references: when the script has ended, those that no result names may go."""
        for ref in self._given:
            try:
                self._context.artifacts.unpin(ref)
            except ToolFailed:
                pass  # it is gone already

    async def wire(self, value: Any) -> Any:
        """A tool's value in the form that is sent to the script."""
        if type(value) in SCALARS:
            return value
        if isinstance(value, ArtifactRef):
            return {"$ref": await self._grant(value)}
        if isinstance(value, Image):
            return await self._as_file(value)
        if isinstance(value, dict):
            made = [(str(key), await self.wire(held)) for key, held in value.items()]
            looks_special = len(made) == 1 and made[0][0] in ("$ref", "$plain")
            return {"$plain": made} if looks_special else dict(made)
        if isinstance(value, list | tuple):
            return [await self.wire(held) for held in value]
        return str(value)

    def returned(self, value: Any, depth: int = 0) -> Any:
        """The script's result as a tool's value: its references are artifacts again, which the model may read.

        Raises ToolFailed for what is nested more deeply than an interpreter sends it.
        """
        if depth > MAX_DEPTH:
            raise ToolFailed(Failure("execution_error", "The script's result is nested too deeply."))
        if isinstance(value, dict):
            if value.keys() == {"$artifact"} and (known := self._given.get(str(value["$artifact"]))):
                self._context.artifacts.show(known)
                return known
            return {key: self.returned(held, depth + 1) for key, held in value.items()}
        return [self.returned(held, depth + 1) for held in value] if isinstance(value, list) else value

    async def read(self, ref: object, start: object, end: object) -> Any:
        """A piece of a reference. The ends of a text are moved back to where a character begins. Raises ToolFailed."""
        known = self._known(ref)
        if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start <= end:
            raise ToolFailed(Failure("invalid_args", f"start and end are {start!r} and {end!r}.", field="start"))
        end = min(end, start + MAX_READ_BYTES)
        if _kind(known) == "bytes":
            return (await self._context.artifacts.read(known, start, end - start)).hex()
        first = max(0, start - 3)
        data = await self._context.artifacts.read(known, first, end + 1 - first)
        return data[_whole(data, start - first) : _whole(data, end - first)].decode("utf-8", "replace")

    async def part(self, frame: dict[str, Any]) -> Any:
        """A part of an object or a list, its size, or its keys. Raises ToolFailed."""
        known = self._known(frame.get("part"))
        value = await self._json(known)
        if frame.get("count"):
            return len(value) if isinstance(value, dict | list) else known.size
        if frame.get("keys"):
            keys = await self._large(list(value), incomplete=False) if isinstance(value, dict) else None
            return await self.wire(keys)
        key = frame.get("key")
        try:
            found = value[key]
        except (LookupError, TypeError):
            raise ToolFailed(Failure("not_found", f"The value has no part {key!r}.", field="key")) from None
        return await self.wire(await self._large(found, incomplete=known.incomplete))

    async def _large(self, value: Any, *, incomplete: bool) -> Any:
        """The value, or a reference to a large one. A part of an incomplete value may be incomplete too."""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if session_of(self._context).budget.inlines(text):
            return value
        media_type = None if isinstance(value, str) else JSON
        artifacts = self._context.artifacts
        return await artifacts.put(text, media_type=media_type, name="value", incomplete=incomplete)

    async def _grant(self, ref: ArtifactRef) -> dict[str, Any]:
        if ref.ref not in self._given:
            self._context.artifacts.pin(ref)
            self._given[ref.ref] = ref
        kind = _kind(ref)
        data = await self._context.artifacts.read(ref, 0, PREVIEW_CHARS * 4)
        preview = data[:16].hex(" ") if kind == "bytes" else data.decode("utf-8", "ignore")[:PREVIEW_CHARS]
        return {"ref": ref.ref, "preview": preview, "size": ref.size, "kind": kind, "incomplete": ref.incomplete}

    def _known(self, ref: object) -> ArtifactRef:
        known = self._given.get(ref) if isinstance(ref, str) else None
        if known is None:
            raise ToolFailed(Failure("invalid_args", "This script was not given that reference.", field="ref"))
        return known

    async def _json(self, ref: ArtifactRef) -> Any:
        if _kind(ref) != "json":
            raise ToolFailed(
                Failure("invalid_args", f"It is {_kind(ref)}, which has no parts: use .read() or .lines().")
            )
        if ref.size > MAX_JSON_BYTES:
            raise ToolFailed(
                Failure(
                    "invalid_args", f"Its {ref.size:,} bytes are too many to take parts of: use .read() or .lines()."
                )
            )
        if self._parsed[0] != ref.ref:
            data = await self._context.artifacts.read(ref)
            self._parsed = (ref.ref, await in_thread(json.loads, data))
        return self._parsed[1]

    async def _as_file(self, image: Image) -> dict[str, Any]:
        """Write a picture that a tool answered with to a file, which the script can open."""
        sandbox = self._context.sandbox.at(self._context.sandbox.workspace)
        path = await self._free_path(sandbox, _ENDINGS.get(image.media_type, ".bin"))
        await sandbox.write_bytes(path, image.data)
        return {"kind": "image", "media_type": image.media_type, "size": len(image.data), "path": path}

    async def _free_path(self, sandbox: Sandbox, ending: str) -> str:
        """A path that does not exist yet: an earlier session in this workspace may have used the same ids."""
        name = re.sub(r"[^A-Za-z0-9_]+", "-", self._context.call.id)[:MAX_NAME_CHARS]
        while True:
            self._pictures += 1
            path = posixpath.join(MEDIA, f"{name}-{self._pictures}{ending}")
            try:
                await sandbox.stat(path)
            except FileNotFoundError:
                return path


def _kind(ref: ArtifactRef) -> str:
    if "json" in ref.media_type:
        return "json"
    return "text" if ref.media_type.startswith("text/") else "bytes"


def _whole(data: bytes, at: int) -> int:
    """The index of the first byte of the character at this byte."""
    if at >= len(data):
        return len(data)
    for back in range(4):
        if at - back >= 0 and data[at - back] & 0xC0 != 0x80:
            return at - back
    return at
