"""Keep what an answer leaves out where it can be read; where that fails, say so and go on."""

from collections.abc import Awaitable, Iterator
from typing import Final

from handrail.artifacts.store import Scope, keep_stream
from handrail.contract.excerpt import Excerpt
from handrail.contract.result import ArtifactRef

JSON: Final = "application/json"
_STEP: Final = 1 << 20


class Keeper:
    """Keeps up to `most` bytes of each text, and collects what the model should be told about it."""

    __slots__ = ("_most", "artifacts", "notes")

    def __init__(self, artifacts: Scope, most: int) -> None:
        self.artifacts = artifacts
        self.notes: list[str] = []
        self._most = most

    async def keep(self, text: str, name: str, media_type: str | None = None) -> ArtifactRef | None:
        """Store a whole text. None when the disk does not take it."""
        return await self._stored(self.artifacts.put(_within(text, self._most), media_type=media_type, name=name))

    async def whole(self, part: Excerpt, name: str) -> ArtifactRef | None:
        """Where the whole of an excerpt can be read from now on. None when that is nowhere."""
        if isinstance(part.whole, ArtifactRef):
            return part.whole if self.artifacts.show(part.whole) else None
        if part.whole is None:
            return None
        return await self._stored(keep_stream(self.artifacts, part.whole, name or "answer.txt"))

    async def _stored(self, storing: Awaitable[ArtifactRef]) -> ArtifactRef | None:
        try:
            kept = await storing
            self.artifacts.show(kept)
            return kept
        except Exception as error:  # noqa: BLE001 - whatever the disk does, the tool has answered
            self.notes.append(f"What was left out could not be kept ({type(error).__name__}: {error}); it is lost.")
            return None

    def note_cut(self, what: str, was: int, now: int, kept: ArtifactRef | None) -> None:
        """Tell the model that a text was cut, and how to read the rest."""
        rest = f'read the rest with read_artifact(ref="{kept.ref}")' if kept else "ask for a smaller part"
        self.notes.append(f"{what} was cut from {was:,} to {now:,} characters; {rest}.")


def _within(text: str, most: int) -> str:
    """The text, or its first and last parts where it has more than `most` bytes."""
    if len(text) * 4 <= most or (len(text) <= most and (text.isascii() or sum(_sizes(text)) <= most)):
        return text
    half = most // (2 if text.isascii() else 8)
    gone = len(text) - 2 * half
    return f"{text[:half]}\n[… {gone:,} characters were discarded here]\n{text[-half:]}"


def _sizes(text: str) -> Iterator[int]:
    for begin in range(0, len(text), _STEP):
        yield len(text[begin : begin + _STEP].encode("utf-8", "replace"))
