"""Read text that is nearly JSON, where it can mean one thing only. Nothing is ever closed that was left open."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from handrail.schema.parse import DEEPEST, NotJson, parse, plain

MOST_STEPS: Final = 200_000
"""Values and keys that are read; more is refused."""
MOST_NOTES: Final = 20
"""Changes of spelling that are written down."""
MOST_CHANGES: Final = 500
"""Values that are read other than as written; each is written down."""
DEEPEST_SPAN: Final = 4
_SPACE: Final = re.compile(r"[ \t\r\n]*+")
_FENCE: Final = re.compile(r"```[A-Za-z0-9_+-]*[ \t]*\r?\n?")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][+-]?[0-9]++)?(?![A-Za-z0-9_.+-])")
_WORD: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*+")
_DOUBLE: Final = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_SINGLE: Final = re.compile(r"'((?:[^'\\]++|\\.)*+)'", re.DOTALL)
_RAW: Final = re.compile(r"[\x00-\x1f]")
_REQUOTE: Final = re.compile(r"\\'|\"|\\.", re.DOTALL)
_WORDS: Final = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that was read other than as it was written."""

    rule: str
    path: tuple[str | int, ...]
    before: Any
    after: Any
    changed_value: bool = False


@dataclass(slots=True)
class _Reader:
    text: str
    at: int = 0
    steps: int = 0
    notes: list[Note] = field(default_factory=list)
    spans: dict[tuple[str | int, ...], tuple[int, int]] | None = None

    def note(self, rule: str, path: tuple[str | int, ...], before: Any, after: Any, *, changed: bool = False) -> None:
        if len(self.notes) >= MOST_CHANGES:
            raise NotJson("there is too much in it to be repaired", self.at)
        if changed or len(self.notes) < MOST_NOTES:
            self.notes.append(Note(rule, path, before, after, changed))

    def peek(self) -> str:
        """The next character that is not a space; empty at the end."""
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
        return self.text[self.at : self.at + 1]

    def value(self, path: tuple[str | int, ...]) -> Any:
        self.steps += 1
        if self.steps > MOST_STEPS or len(path) > DEEPEST:
            raise NotJson("it is too long or too deep to be repaired", self.at)
        first = self.peek()
        if first == "{":
            return self.object(path)
        if first == "[":
            return self.list(path)
        if first in ('"', "'"):
            return self.string(path, key=False)
        return self.number() if first and first in "-0123456789" else self.word(path)

    def kept(self, path: tuple[str | int, ...]) -> Any:
        """A value, and where it is written if that is wanted."""
        if self.spans is None or len(path) > DEEPEST_SPAN:
            return self.value(path)
        self.peek()
        start = self.at
        value = self.value(path)
        self.spans[path] = (start, self.at)
        return value

    def object(self, path: tuple[str | int, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def entry() -> None:
            key = self.key(path)
            if self.peek() != ":":
                raise NotJson("a key has no colon after it", self.at)
            self.at += 1
            if key in found:
                raise NotJson(f"the key {key[:80]!r} is there twice", self.at)
            found[key] = self.kept((*path, key))

        self.entries("}", path, entry)
        return found

    def list(self, path: tuple[str | int, ...]) -> list[Any]:
        found: list[Any] = []
        self.entries("]", path, lambda: found.append(self.kept((*path, len(found)))))
        return found

    def entries(self, end: str, path: tuple[str | int, ...], entry: Callable[[], None]) -> None:
        """Entries with commas between them, up to the end that is really there."""
        self.at += 1
        if self.peek() == end:
            self.at += 1
            return
        while True:
            entry()
            if self.peek() == ",":
                self.at += 1
                if self.peek() != end:
                    continue
                self.note("trailing comma", path, f",{end}", end)
            if self.peek() != end:
                raise NotJson(f"there should be a comma or {end} here", self.at)
            self.at += 1
            return

    def key(self, path: tuple[str | int, ...]) -> str:
        if self.peek() in ('"', "'"):
            return self.string(path, key=True)
        word = _WORD.match(self.text, self.at)
        if word is None:
            raise NotJson("there should be a key here", self.at)
        self.at = word.end()
        self.note("unquoted key", path, word[0], json.dumps(word[0]))
        return word[0]

    def string(self, path: tuple[str | int, ...], *, key: bool) -> str:
        single = self.text[self.at] == "'"
        match = (_SINGLE if single else _DOUBLE).match(self.text, self.at)
        if match is None:
            raise NotJson("a string is not closed", self.at)
        body = match[1]
        try:
            read: str = json.loads(f'"{_REQUOTE.sub(_requote, body) if single else body}"', strict=False)
        except ValueError:
            raise NotJson("a string has an escape that JSON does not know", self.at) from None
        self.at = match.end()
        if single:
            self.note("single quotes", path, match[0][:200], read[:200], changed=not key)
        if _RAW.search(body):
            self.note("raw line break", path, match[0][:200], json.dumps(read[:200], ensure_ascii=False))
        return read

    def number(self) -> int | float:
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            raise NotJson("a number is not written as JSON has it", self.at)
        self.at = match.end()
        number: int | float = parse(match[0])
        return number

    def word(self, path: tuple[str | int, ...]) -> Any:
        match = _WORD.match(self.text, self.at)
        if match is None or match[0] not in _WORDS:
            raise NotJson("there should be a value here", self.at)
        self.at = match.end()
        value = _WORDS[match[0]]
        if match[0][0].isupper():
            self.note("Python literal", path, match[0], value, changed=True)
        return value


def read_nearly(text: str) -> tuple[Any, list[Note]]:
    """The one object or list that a text holds, and what was read other than as written. Raises NotJson."""
    reader = _Reader(text.strip())
    fence = _FENCE.match(reader.text)
    if fence:
        reader.at = fence.end()
        reader.note("fence", (), fence[0], "")
    if reader.peek() not in ("{", "["):
        raise NotJson("there should be an object here", reader.at)
    value = reader.value(())
    _end(reader, fenced=fence is not None)
    if (reason := plain(value)) is not None:
        raise NotJson(reason)
    return value, reader.notes


@dataclass(frozen=True, slots=True)
class One:
    """An object found in a text."""

    value: Any
    start: int
    end: int
    spans: dict[tuple[str | int, ...], tuple[int, int]]
    """Where each of the outer values inside it is written."""


def read_one(text: str, at: int) -> One | None:
    """The object that begins at a place in a text; None where the brace there begins no object at all.

    Raises NotJson for an object that is begun and is not readable to its end.
    """
    reader = _Reader(text, at, spans={})
    try:
        value = reader.value(())
    except NotJson:
        if reader.steps > 1:
            raise
        return None
    if (reason := plain(value)) is not None:
        raise NotJson(reason, at)
    return One(value, at, reader.at, reader.spans or {})


def _end(reader: _Reader, *, fenced: bool) -> None:
    rest = reader.text[reader.at :].strip()
    if fenced and rest.startswith("```"):
        rest = rest[3:].strip()
    if not rest:
        return
    if "{" in rest or "[" in rest:
        raise NotJson("there is more than one object, and which is meant is not clear", reader.at)
    reader.note("trailing text", (), rest[:200], "")


def _requote(match: re.Match[str]) -> str:
    found = match[0]
    return {"\\'": "'", '"': '\\"'}.get(found, found)
