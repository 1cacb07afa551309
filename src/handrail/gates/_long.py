"""Read a long value while others on the event loop get their turns, and store what will be cut as it is read.

The value belongs to the tool that returned it and may change meanwhile. A batch of it is read at once, so what is
stored is always whole JSON, in which each batch is as it was when it was reached.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from time import monotonic
from typing import Any, Final

from anyio.lowlevel import checkpoint

from handrail.artifacts.store import TEXT
from handrail.contract.limits import Caps
from handrail.contract.result import ArtifactRef
from handrail.contract.truncated import Truncated, joined
from handrail.gates._json_texts import Check, Ends, JsonTexts, Texts
from handrail.gates._overflow import JSON, OverflowStore
from handrail.gates._plain import MAX_TEXT_CHARS, Odd, key_text, notes_of, opened, plain
from handrail.gates._shorten import (
    LISTS,
    SMALL_FIELD,
    first_entries,
    note_entries,
    own_caps,
    settle_excerpts,
    shares_of,
)

MAX_TURN_SECONDS: Final = 0.002
"""Seconds of reading after which others get a turn."""
MAX_FIELDS_COUNT: Final = 100
"""Fields of a long object that stays an object; one with more fields is cut as text."""
CUT_LINE_CHARS: Final = 120
"""Characters of the line that says what was left out of a text."""


class LongValue:
    """Reads one value. Notes on it are in `odd`, in `warnings` and with the overflow."""

    def __init__(
        self, overflow: OverflowStore, caps: Caps, check: Check | None = None, *, refuses_pictures: bool = False
    ) -> None:
        self._overflow, self._caps = overflow, caps
        self._texts = JsonTexts(overflow, check, refuses_pictures=refuses_pictures)
        self._most = sum((caps.value, caps.stdout, caps.stderr, caps.file, caps.diff, caps.other))
        """Characters above which every answer is cut."""
        self._turn_ends = monotonic() + MAX_TURN_SECONDS
        self._fault: Exception | None = None
        """Error that reading the value raised."""

    @property
    def odd(self) -> Odd:
        return self._texts.odd

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._texts.warnings

    async def shortened(self, value: Any) -> Any:
        """JSON data in which everything that is longer than any answer was cut, and is stored.

        Raises NotPlain, ArtifactTooLarge, and what its check raises.
        """
        if type(value) is not list and type(value) is not tuple:  # a list's notes are found on the way
            self._texts.warnings += notes_of(value)
        value = opened(value)
        if isinstance(value, Mapping) and len(value) <= MAX_FIELDS_COUNT:
            return await self._object({key_text(key, self.odd): opened(held) for key, held in list(value.items())})
        return await self._part("", value)

    async def by_reference(self, value: Any, name: str) -> ArtifactRef:
        """All of it as one artifact. Raises as `shortened` does, HasPicture, and OSError."""
        value, overflow = opened(value), self._overflow
        is_text = isinstance(value, str)
        walk = self._texts.slices(value, ()) if is_text else self._texts.value(value)
        async with aclosing(self._read(walk)) as texts:
            return await overflow.artifacts.put_stream(
                _chunks(texts, []), media_type=TEXT if is_text else JSON, name=name,
                incomplete=lambda: overflow.cut_inside,
            )  # fmt: skip

    async def _part(self, name: str, value: Any) -> Any:
        """A copy of the whole answer or of a field; a Truncated if it is longer than any answer."""
        is_text, path = isinstance(value, str), (name,) if name else ()
        walk = self._texts.slices(value, path) if is_text else self._texts.value(value, path)
        ends = Ends(max(self._caps.value, self._caps.stdout))
        name = name or ("answer.txt" if is_text else "answer.json")
        text, kept = await self._stored(walk, ends, name, TEXT if is_text else JSON)
        if text is None:
            return joined(ends.head, ends.tail, ends.total, ends.room, kept)
        return self._copy(text, value)

    async def _object(self, value: dict[str, Any]) -> Any:
        """An object: first what has a cap of its own, then the entries of a listing, then the rest, which share one."""
        settled = set(own := own_caps(value, self._caps))
        for name in own:
            if not isinstance(value[name], Truncated):
                value[name] = await self._part(name, value[name])
        listed = LISTS.get(kind) if isinstance(kind := value.get("kind"), str) else None
        if listed is not None and isinstance(entries := value.get(listed), list):
            changed = self._first_entries(listed, entries, await self._part(listed, entries))
            value |= changed
            settled |= changed.keys()
        cap = self._caps.other if own or listed else self._caps.value
        parts, whole = {name: Ends(cap) for name in value}, Ends(0)
        text, kept = await self._stored(self._texts.fields(value, parts), whole, "answer.json", JSON)
        if text is not None:
            return self._copy(text, value)
        self._overflow.note_cut("The answer", whole.total, cap, kept)
        shares = _shares({name: part.total + len(name) + 6 for name, part in parts.items() if name not in own}, cap)
        made: dict[str, Any] = {}
        for name, part in parts.items():
            share = max(1, shares.get(name, part.total) - CUT_LINE_CHARS)
            if name in settled:
                made[name] = value[name]
            elif name not in shares or part.total <= share:
                made[name] = self._copy(part.head, value[name])
            else:  # the cut may go through a secret: as a Truncated it is known where
                shorter = joined(part.head, part.tail, part.total, share, kept)
                made[name] = str(self._overflow.artifacts.clean(shorter))
        return made

    def _first_entries(self, key: str, entries: list[Any], made: Any) -> dict[str, Any]:
        """A long listing shows its first entries, not the two ends of their text."""
        if not isinstance(made, Truncated):
            return {key: made}
        kept = made.whole if isinstance(made.whole, ArtifactRef) else None
        shown = first_entries(plain(entries[: getattr(self._caps, key)]), key, made.total, self._caps)
        note_entries(self._overflow, key, len(shown), len(entries), kept)
        return {key: shown, "truncated": True, **({"full": kept} if kept else {})}

    def _copy(self, text: str, value: Any) -> Any:
        """A copy of the value that was written as this text."""
        if isinstance(value, str):
            return value if isinstance(value, Truncated) else text
        if not self._texts.holds_others:
            return json.loads(text)
        unlimited = Odd()
        unlimited.left = len(text)
        return plain(value, odd=unlimited)

    async def _stored(
        self, walk: Texts, ends: Ends, name: str, media_type: str
    ) -> tuple[str | None, ArtifactRef | None]:
        """The whole text, if it is not longer than any answer; otherwise the artifact that has it, or None."""
        overflow, first = self._overflow, list[str]()
        noted, overflow.cut_inside = len(overflow.notes), False
        async with aclosing(self._read(walk)) as texts:
            async for text in texts:
                first.append(text)
                ends.add(text)
                if ends.total > self._most:
                    break
            else:
                del overflow.notes[noted:]  # the copy is shaped by others, who will say so again
                return "".join(first), None
            storing = overflow.artifacts.put_stream(
                _chunks(texts, first, ends), media_type=media_type, name=name, incomplete=lambda: overflow.cut_inside
            )
            kept = await overflow.stored(storing)
            if self._fault is not None:  # not the disk's
                raise self._fault
            async for text in texts:  # the disk did not take it: its size and its end are shown nevertheless
                ends.add(text)
        return None, kept

    async def _read(self, walk: Texts) -> AsyncGenerator[str, None]:
        """The texts, with turns for others between them."""
        reply: Any = None
        while True:
            try:
                given = walk.send(reply)
            except StopIteration:
                return
            except Exception as error:
                self._fault = error
                raise
            reply = None
            if isinstance(given, str):
                yield given
            else:
                reply = await settle_excerpts(given, self._caps, self._overflow)
                self._texts.holds_others |= reply is not given
            if monotonic() > self._turn_ends:
                await checkpoint()
                self._turn_ends = monotonic() + MAX_TURN_SECONDS


async def _chunks(texts: AsyncIterator[str], first: list[str], ends: Ends | None = None) -> AsyncIterator[bytes]:
    """The texts as bytes, as many at once as are worth a thread."""
    waiting, size = first, sum(map(len, first))
    async for text in texts:
        if ends is not None:
            ends.add(text)
        waiting.append(text)
        size += len(text)
        if size >= MAX_TEXT_CHARS:
            yield "".join(waiting).encode()
            waiting, size = [], 0
    yield "".join(waiting).encode()


def _shares(sizes: Mapping[str, int], cap: int) -> dict[str, int]:
    """The characters of each field that needs more than its share of the cap; small fields are not cut."""
    small = sum(size for size in sizes.values() if size <= SMALL_FIELD)
    large = {name: size for name, size in sizes.items() if size > SMALL_FIELD}
    return shares_of(large, max(cap // 2, cap - small))
