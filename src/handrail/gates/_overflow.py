"""Keep what an answer leaves out where it can be read; where that fails, say so and go on."""

from collections.abc import Awaitable
from typing import Final

from handrail.artifacts.store import ArtifactTooLarge, Scope, keep_stream
from handrail.contract.limits import MAX_ARTIFACT_BYTES
from handrail.contract.result import ArtifactRef
from handrail.contract.truncated import Truncated

JSON: Final = "application/json"
TOO_LARGE: Final = (
    f"The tool's answer has more than {MAX_ARTIFACT_BYTES:,} bytes, which is more than is kept: it is lost. "
    "Ask for less at once."
)
"""The message in place of an answer that is larger than an artifact may be."""


class OverflowStore:
    """Keeps texts whole, and collects what the model should be told about it."""

    __slots__ = ("artifacts", "cut_inside", "notes")

    def __init__(self, artifacts: Scope) -> None:
        self.artifacts = artifacts
        self.notes: list[str] = []
        self.cut_inside = False
        """Whether the value has texts inside that lack their middle, so that its JSON is incomplete."""

    async def keep(self, text: str, name: str) -> ArtifactRef | None:
        """Store a whole text. None when the disk does not take it. Raises ArtifactTooLarge."""
        return await self.stored(self.artifacts.put(text, name=name))

    async def keep_json(self, text: str, name: str) -> ArtifactRef | None:
        """Store the value, or a part of it, as JSON. None when the disk does not take it. Raises ArtifactTooLarge."""
        lacks = self.cut_inside
        return await self.stored(self.artifacts.put(text, media_type=JSON, name=name, incomplete=lacks))

    async def whole(self, part: Truncated, name: str) -> ArtifactRef | None:
        """Store the whole of a truncated text, and return its reference; None if the whole is nowhere."""
        whole = part.whole
        if isinstance(whole, ArtifactRef):
            return whole if self.artifacts.show(whole) else None
        if whole is None:
            return None
        name = name or "answer.txt"
        return await self.stored(keep_stream(self.artifacts, whole, name, incomplete=lambda: whole.incomplete))

    async def stored(self, storing: Awaitable[ArtifactRef]) -> ArtifactRef | None:
        """The artifact, which stays. None when the disk does not take it. Raises ArtifactTooLarge."""
        try:
            kept = await storing
            self.artifacts.show(kept)
            return kept
        except ArtifactTooLarge:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the disk does, the tool has answered
            self.notes.append(f"What was left out could not be kept ({type(error).__name__}: {error}); it is lost.")
            return None

    def note_cut(self, what: str, was: int, now: int, kept: ArtifactRef | None) -> None:
        """Tell the model that a text was cut, and how to read the rest."""
        rest = f'read the rest with read_artifact(ref="{kept.ref}")' if kept else "ask for a smaller part"
        if kept and kept.incomplete:
            rest = f'a part of the rest was discarded; read what is left with read_artifact(ref="{kept.ref}")'
        self.notes.append(f"{what} was cut from {was:,} to {now:,} characters; {rest}.")
