"""Write any value as JSON in pieces, each of which takes at most a few milliseconds."""

import json
from collections.abc import Callable, Generator, Mapping
from math import inf, isfinite
from typing import Any, Final, Literal

from handrail.contract.result import ArtifactRef, Image
from handrail.contract.truncated import Truncated
from handrail.contract.wire import sendable, to_wire
from handrail.gates._overflow import OverflowStore
from handrail.gates._plain import (
    LONE_SURROGATE,
    MAX_DEPTH,
    MAX_TEXT_CHARS,
    SAME_KEYS,
    NotPlain,
    Odd,
    Path,
    TooLong,
    key_text,
    notes_of,
    opened,
    plain,
)

MAX_BATCH_COUNT: Final = 256
"""Items of a list or fields of an object that are written at once."""
MAX_BATCH_VALUES_COUNT: Final = 4_000
"""Values in a batch, at any depth."""
MAX_BATCH_CHARS: Final = 256 << 10
"""Characters of the texts in a batch."""
MAX_LEVELS_COUNT: Final = 8
"""Levels of a batch that are looked at; one that is nested more deeply is converted value by value."""
JSON_TYPES: Final = frozenset({bool, int, float, str, type(None), list, tuple, dict})
CONTAINERS: Final = frozenset({list, tuple, dict})
Check = Callable[[list[Any], int], None]
"""Checks a batch of a list, and is told the number of its first item. It may raise."""
Texts = Generator[Any, Any, None]
"""Pieces of text. A list among them is for the one who reads them, to be sent back with its Truncated texts settled."""
_encode: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode  # what was looked at is finite


class HasPicture(Exception):
    """A picture is in a value of which nothing but the JSON is kept."""


class JsonTexts:
    """Writes one value as pieces of JSON. `odd` and `warnings` have the notes about values that JSON lacks."""

    def __init__(self, overflow: OverflowStore, check: Check | None, *, refuses_pictures: bool = False) -> None:
        self.odd = Odd()
        self.warnings: tuple[str, ...] = ()
        self.holds_others = False
        """Whether there were pictures, artifacts or Truncated texts, of which the JSON is not all."""
        self._overflow, self._check, self._refuses_pictures = overflow, check, refuses_pictures
        self._encode_odd = json.JSONEncoder(ensure_ascii=False, default=self._wire).encode

    def value(self, value: Any, path: Path = (), depth: int = 0) -> Texts:
        """Any value that `opened` gives. Raises NotPlain, HasPicture, and what the check raises."""
        if depth > MAX_DEPTH:
            raise NotPlain(f"it is nested deeper than {MAX_DEPTH} levels, or contains itself")
        if isinstance(value, Mapping):
            named = yield from self._named(value, path)
            yield from self._items(list(named.items()), path, depth, is_object=True)
        elif isinstance(value, list | tuple):
            yield from self._items(list(value), path, depth, is_object=False)
        elif isinstance(value, str) and not isinstance(value, Truncated):
            yield '"'
            for text in self.slices(value, path):
                yield _encode(text)[1:-1]
            yield '"'
        else:
            (settled,) = yield [plain(value)]
            yield self._encode_odd(settled)

    def fields(self, value: dict[str, Any], parts: Mapping[str, "Ends"]) -> Texts:
        """An object, and beside it the two ends of each of its fields. A Truncated among them stays as it is."""
        before = "{"
        for name, held in value.items():
            yield f"{before}{_encode(name)}: "
            if isinstance(held, Truncated):
                self.holds_others = self._overflow.cut_inside = True
                parts[name].add(text := _encode(str(held)))
                yield text
            elif isinstance(held, str):  # shown as it is, and not as JSON
                parts[name].add_ends_of(held)
                yield from self.value(held, (name,), 1)
            else:
                yield from parts[name].of(self.value(held, (name,), 1))
            before = ", "
        yield "}" if value else "{}"

    def slices(self, text: str, path: Path) -> Texts:
        """A long text, not as JSON but as it is."""
        is_noted = False
        for begin in range(0, len(text), MAX_BATCH_CHARS):
            part = text[begin : begin + MAX_BATCH_CHARS]
            made = sendable(part)
            if made is not part and not is_noted:
                self.odd.append((path, LONE_SURROGATE))
                is_noted = True
            yield made

    def _items(self, items: list[Any], path: Path, depth: int, *, is_object: bool) -> Texts:
        before, end = "{}" if is_object else "[]"
        at, count = 0, MAX_BATCH_COUNT
        while at < len(items):
            some = items[at : at + count]
            text = yield from self._batch(dict(some) if is_object else some, path, depth, at)
            if text is None and len(some) > 1:
                count = len(some) // 8 or 1
                continue
            if text is None:
                key, item = some[0] if is_object else (at, some[0])
                yield f"{before}{_encode(key)}: " if is_object else before
                yield from self.value(opened(item), (*path, key), depth + 1)
            else:
                yield before + text[1:-1]
            before = ", "
            at, count = at + len(some), min(MAX_BATCH_COUNT, 2 * count)
        yield end if items else before + end

    def _batch(self, batch: Any, path: Path, depth: int, at: int) -> Generator[Any, Any, str | None]:
        """A batch of items, or an object of some fields; None if it is too long to be written at once."""
        made, look = batch, look_at([batch])
        if look == "long":
            return None
        text = _written(batch) if look == "clean" else None
        if text is None:
            odd = Odd()
            try:
                made = plain(batch, depth, odd)
            except TooLong:
                return None
            self._note(odd, path, 0 if isinstance(batch, dict) else at)
            (made,) = yield [made]
            text = self._encode_odd(made)
        if not depth and isinstance(batch, list):
            self.warnings += notes_of(batch)
            if self._check is not None:
                self._check(batch if made is batch else to_wire(made), at)
        return text

    def _named(self, value: Mapping[Any, Any], path: Path) -> Generator[Any, Any, dict[str, Any]]:
        """The object as it is now, with keys that are texts."""
        held = dict(value)
        if set(map(type, held)) <= {str} and _is_sendable("".join(held)):
            return held
        made: dict[str, Any] = {}
        for number, (key, item) in enumerate(held.items()):
            odd = Odd()
            name = key_text(key, odd)
            if name in made:
                odd.append(((name,), SAME_KEYS))
            self._note(odd, path, 0)
            made[name] = item
            if number % MAX_BATCH_COUNT == 0:
                yield ""
        return made

    def _note(self, odd: Odd, path: Path, at: int) -> None:
        """Take over notes on a batch whose first item has the number `at`."""
        for inside, what in odd:
            first = [inside[0] + at] if inside and isinstance(inside[0], int) else inside[:1]
            self.odd.append(((*path, *first, *inside[1:]), what))

    def _wire(self, held: Any) -> Any:
        self.holds_others = True
        if isinstance(held, Image) and self._refuses_pictures:
            raise HasPicture
        if isinstance(held, ArtifactRef) and not self._overflow.artifacts.show(held):
            self._overflow.notes.append("An artifact that this answer names is gone; it is shown as null.")
            return None
        return to_wire(held)


class Ends:
    """The first and the last `room` characters of a text that comes in pieces, and its size."""

    __slots__ = ("head", "room", "tail", "total")

    def __init__(self, room: int) -> None:
        self.head = self.tail = ""
        self.room, self.total = room, 0

    def add(self, text: str) -> None:
        self.total += len(text)
        if len(self.head) < self.room:
            self.head += text[: self.room - len(self.head)]
        if self.room:
            self.tail = (self.tail + text)[-self.room :]

    def add_ends_of(self, text: str) -> None:
        """Add a whole text, which may be very long."""
        self.total = len(text)
        self.head, self.tail = sendable(text[: self.room]), sendable(text[-self.room :])

    def of(self, texts: Texts) -> Texts:
        """The same texts, which are added on the way."""
        reply: Any = None
        while True:
            try:
                given = texts.send(reply)
            except StopIteration:
                return
            if isinstance(given, str):
                self.add(given)
            reply = yield given


def is_heavy(value: Any) -> bool:
    """Whether its texts have so many characters that it is better written in pieces."""
    return look_at([value], values=inf, chars=MAX_TEXT_CHARS) == "long"


def look_at(
    level: list[Any], *, values: float = MAX_BATCH_VALUES_COUNT, chars: float = MAX_BATCH_CHARS
) -> Literal["clean", "odd", "long"]:
    """Whether values are JSON as they are, and not too many. All of one level are looked at together: that is fast."""
    clean = True
    for _ in range(MAX_LEVELS_COUNT):
        values -= len(level)
        kinds = set(map(type, level))
        if str in kinds:
            texts = [value for value in level if type(value) is str]
            chars -= sum(map(len, texts))
            clean = clean and chars >= 0 and _is_sendable("".join(texts))
        if chars < 0 or values < 0:
            return "long"
        finite = float not in kinds or all(isfinite(value) for value in level if type(value) is float)
        clean = clean and finite and kinds <= JSON_TYPES
        if kinds.isdisjoint(CONTAINERS):
            return "clean" if clean else "odd"
        names: set[Any] = set()
        inner = _below(level, values, names)
        if inner is None:
            return "long"
        clean = clean and all(type(name) is str for name in names) and _is_sendable("".join(names))
        level = inner
    return "odd"


def _below(level: list[Any], most: float, names: set[Any]) -> list[Any] | None:
    """The contents of the lists and objects of a level, and the names in them; None if there are more than `most`."""
    inner: list[Any] = []
    for value in level:
        kind = type(value)
        if kind in CONTAINERS:
            if len(inner) + len(value) > most:
                return None
            if kind is dict:
                names.update(value)
                inner += value.values()
            else:
                inner += value
    return inner


def _is_sendable(text: str) -> bool:
    return sendable(text) is text


def _written(batch: Any) -> str | None:
    try:
        return _encode(batch)
    except ValueError:  # an integer that is too long to be written
        return None
