"""Read text that is nearly JSON if it is unambiguous. An unclosed value is never closed."""

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from handrail.schema._surrounding_text import closing, opening
from handrail.schema.parse import DEEPEST_VALUE, ODD_SPACE, NotJson, parse, plain

MAX_STEPS_COUNT: Final = 200_000
"""Number of values and keys that are read; a longer text is refused."""
MAX_NOTES_COUNT: Final = 20
"""Number of changes of spelling that are noted."""
MAX_CHANGES_COUNT: Final = 500
"""Number of values that may be read other than as written; each is noted."""
MAX_OPENINGS_COUNT: Final = 6
"""Number of fences, tags and labels that may precede the object."""
DEEPEST_SPAN: Final = 4
_SPACE: Final = re.compile(r"[ \t\r\n]*+")
_SKIPPED: Final = re.compile(
    rf"[ \t\r\n]++|(?P<odd>[{ODD_SPACE}]++)"
    r"|(?P<comment>/\*(?s:.*?)\*/|(?:\#|//)[^\n\r\v\f\x85\u2028\u2029]*+(?=[\r\n]|\Z))"
)
_BEGINS_SKIPPED: Final = frozenset("/#" + ODD_SPACE)
_TWO_BRACES: Final = re.compile(r"\{\s*+\{")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][+-]?[0-9]++)?(?![A-Za-z0-9_.+/#-])")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*+")
_DOUBLE: Final = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_SINGLE: Final = re.compile(r"'((?:[^'\\]++|\\.)*+)'", re.DOTALL)
_SMART: Final = re.compile(r"[\u201c-\u201f]((?:[^\u201c-\u201f\\]++|\\.)*+)[\u201c-\u201f]", re.DOTALL)
_SMART_SINGLE: Final = re.compile(r"[\u2018-\u201b]((?:[^\u2018-\u201b\\]++|\\.)*+)[\u2018-\u201b]", re.DOTALL)
_QUOTED: Final = {
    '"': _DOUBLE, "'": _SINGLE, **dict.fromkeys("\u201c\u201d\u201e\u201f", _SMART),
    **dict.fromkeys("\u2018\u2019\u201a\u201b", _SMART_SINGLE),
}  # fmt: skip
_DELICATE: Final = re.compile(r"[\"'`\\\u2018-\u201f]")
_ENTITY: Final = re.compile(r"&(?:\#?[a-z0-9]{1,8};)?")
_MARKUP: Final = re.compile(r"[&<>]")
_MARKUP_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ENTITIES: Final = {
    "&quot;": '"', "&#34;": '"', "&apos;": "'", "&#39;": "'", "&#x27;": "'", "&amp;": "&", "&lt;": "<", "&gt;": ">",
}  # fmt: skip
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_REQUOTE: Final = re.compile(r"\\'|\"|\\.", re.DOTALL)
SPELLINGS: Final = frozenset(
    {
        "fence", "tag", "text before", "trailing text", "trailing comma", "unquoted key", "single quotes",
        "smart quotes", "escaped quote", "quotes as entities", "escaped quotes", "Python literal", "tuple",
        "raw line break", "comment", "white space", "doubled braces",
    }
)  # fmt: skip
"""The rules for reading text other than as written; the model is warned of each use."""
_LITERALS: Final = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that was read other than as written."""

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
    doubled: bool = False
    """Whether braces were doubled around an object."""
    braces: bool = False
    """Whether a string contains doubled braces."""

    def note(self, rule: str, path: tuple[str | int, ...], before: Any, after: Any, *, changed: bool = False) -> None:
        if len(self.notes) >= MAX_CHANGES_COUNT:
            raise NotJson("it has too many mistakes to be repaired", self.at)
        if changed or len(self.notes) < MAX_NOTES_COUNT:
            self.notes.append(Note(rule, path, before, after, changed))

    def peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
        first = self.text[self.at : self.at + 1]
        if first in _BEGINS_SKIPPED:
            self.skip()
            return self.text[self.at : self.at + 1]
        return first

    def skip(self) -> None:
        """Skip comments and white space that JSON does not allow."""
        while (match := _SKIPPED.match(self.text, self.at)) is not None:
            self.at = match.end()
            if match["comment"]:
                self.note("comment", (), match[0][:200], "")
            elif match["odd"] and all(note.rule != "white space" for note in self.notes):
                self.note("white space", (), f"U+{ord(match[0][0]):04X}", "")

    def value(self, path: tuple[str | int, ...]) -> Any:
        self.steps += 1
        if self.steps > MAX_STEPS_COUNT or len(path) > DEEPEST_VALUE:
            raise NotJson("it is too long or nested too deeply to be repaired", self.at)
        first = self.peek()
        if first == "{":
            return self.object(path)
        if first == "[":
            return self.list(path)
        if first == "(":
            return self.parentheses(path)
        if first in _QUOTED:
            return self.string(path, key=False)
        return self.number() if first and first in "-0123456789" else self.literal(path)

    def spanned(self, path: tuple[str | int, ...]) -> Any:
        """Read a value, and record where it is written if spans are wanted."""
        if self.spans is None or len(path) > DEEPEST_SPAN:
            return self.value(path)
        self.peek()
        start = self.at
        value = self.value(path)
        self.spans[path] = (start, self.at)
        return value

    def object(self, path: tuple[str | int, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}

        def entry() -> None:
            key = self.key(path)
            if self.peek() != ":":
                raise NotJson("a key has no colon after it", self.at)
            self.at += 1
            if key in result:
                raise NotJson(f"the key {key[:80]!r} appears twice", self.at)
            result[key] = self.spanned((*path, key))

        twice = _TWO_BRACES.match(self.text, self.at)
        if twice is not None:
            self.at = twice.end() - 1
            self.note("doubled braces", path, "{{…}}", "{…}")
        self.entries("}", path, entry)
        if twice is not None:
            if self.peek() != "}":
                raise NotJson("doubled braces must be closed twice", self.at)
            self.at += 1
            self.doubled = True
        return result

    def list(self, path: tuple[str | int, ...]) -> list[Any]:
        result: list[Any] = []
        self.entries("]", path, lambda: result.append(self.spanned((*path, len(result)))))
        return result

    def parentheses(self, path: tuple[str | int, ...]) -> Any:
        result: Any = []
        start = self.at
        comma = self.entries(")", path, lambda: result.append(self.spanned((*path, len(result)))))
        if len(result) == 1 and not comma:
            raise NotJson("one value in parentheses is not a list", start)
        self.note("tuple", path, self.text[start : self.at][:200], result if len(result) <= 20 else "a list")
        return result

    def entries(self, end: str, path: tuple[str | int, ...], entry: Callable[[], None]) -> bool:
        """Read entries separated by commas up to the closing `end`, which must exist. True if a comma came last."""
        self.at += 1
        if self.peek() == end:
            self.at += 1
            return False
        while True:
            entry()
            comma = self.peek() == ","
            if comma:
                self.at += 1
                if self.peek() != end:
                    continue
                if end != ")":
                    self.note("trailing comma", path, f",{end}", end)
            if self.peek() != end:
                raise NotJson(f"there should be a comma or {end} here", self.at)
            self.at += 1
            return comma

    def key(self, path: tuple[str | int, ...]) -> str:
        if self.peek() in _QUOTED:
            return self.string(path, key=True)
        match = _IDENTIFIER.match(self.text, self.at)
        if match is None:
            raise NotJson("there should be a key here", self.at)
        self.at = match.end()
        self.note("unquoted key", path, match[0], json.dumps(match[0]))
        return match[0]

    def string(self, path: tuple[str | int, ...], *, key: bool) -> str:
        quote = self.text[self.at]
        match = _QUOTED[quote].match(self.text, self.at)
        if match is None:
            raise NotJson("a string is not closed", self.at)
        body = match[1]
        plainer = body if quote == '"' and "\\'" not in body else _REQUOTE.sub(_requote, body)
        try:
            read: str = json.loads(f'"{plainer}"', strict=False)
        except ValueError:
            raise NotJson("a string has an escape that is not valid JSON", self.at) from None
        self.at = match.end()
        self.braces = self.braces or "{{" in read or "}}" in read
        if quote != '"':
            changed = not key and _DELICATE.search(body) is not None
            rule = "single quotes" if quote == "'" else "smart quotes"
            self.note(rule, path, match[0][:200], read[:200], changed=changed)
        elif plainer != body:
            self.note("escaped quote", path, match[0][:200], read[:200])
        if _CONTROL.search(body):
            self.note("raw line break", path, match[0][:200], json.dumps(read[:200], ensure_ascii=False))
        return read

    def number(self) -> int | float:
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            raise NotJson("a number is not written as in JSON", self.at)
        self.at = match.end()
        number: int | float = parse(match[0])
        return number

    def literal(self, path: tuple[str | int, ...]) -> Any:
        match = _IDENTIFIER.match(self.text, self.at)
        if match is None or match[0] not in _LITERALS:
            raise NotJson("there should be a value here", self.at)
        self.at = match.end()
        value = _LITERALS[match[0]]
        if match[0][0].isupper():
            self.note("Python literal", path, match[0], value)
        return value


def read_nearly(text: str, keys: Collection[str] = frozenset(), tool: str | None = None) -> tuple[Any, list[Note]]:
    """The one object or list in a text, and notes on what was read other than as written. Raises NotJson.

    `keys` are the declared keys, folded: text around the object that contains one is never dropped. Text before the
    object is dropped only if the text is the whole of the arguments, in which case `tool` is given.
    """
    try:
        return _read(text, keys, tool)
    except NotJson:
        other = _unescaped(text)
        if other is None:
            raise
    rule, other_text = other
    value, notes = _read(other_text, keys, tool)
    again = [Note(rule, (), text[:200], other_text[:200]), *_reread(rule, value)]
    if len(again) + len(notes) > MAX_CHANGES_COUNT:
        raise NotJson("it has too many mistakes to be repaired")
    return value, again + notes


def _read(text: str, keys: Collection[str], tool: str | None) -> tuple[Any, list[Note]]:
    reader = _Reader(text)
    parenthesis = opened = False
    for _ in range(MAX_OPENINGS_COUNT):
        before = opening(text, reader.at, keys, tool) if reader.peek() not in ("{", "[") else None
        if before is None or parenthesis:
            break
        reader.note(before.rule, (), text[reader.at : before.end][:200], "")
        reader.at, parenthesis, opened = before.end, before.parenthesis, True
    if reader.peek() not in (("{", "[") if tool is not None else ("{", "[", "(")):
        raise NotJson("there should be an object here", reader.at)
    value = reader.value(())
    if rest := closing(text, reader.at, keys, parenthesis=parenthesis, opened=opened):
        reader.note("trailing text", (), rest[:200], "")
    _check(reader, value)
    return value, reader.notes


def _unescaped(text: str) -> tuple[str, str] | None:
    """Unescape a text in which every quote is an entity or escaped; None for any other text."""
    if '"' not in text and "&quot;" in text:
        plainer = _ENTITY.sub(lambda match: _ENTITIES.get(match[0], ""), text)
        return ("quotes as entities", plainer) if all(one[0] in _ENTITIES for one in _ENTITY.finditer(text)) else None
    if '\\"' in text:
        try:
            return "escaped quotes", json.loads(f'"{text}"', strict=False)
        except ValueError:
            return None
    return None


def _reread(rule: str, value: Any) -> Iterator[Note]:
    """The strings whose value may have been different before they were unescaped."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, str):
            written = json.dumps(item, ensure_ascii=False)
            if "\\" in written or _DELICATE.search(item) or (rule == "quotes as entities" and _MARKUP.search(item)):
                yield Note(rule, path, _written(rule, written)[:200], item[:200], changed_value=True)
        elif isinstance(item, dict | list):
            entries = item.items() if isinstance(item, dict) else enumerate(item)
            waiting.extend(((*path, step), inner) for step, inner in entries)


def _written(rule: str, text: str) -> str:
    if rule == "escaped quotes":
        return json.dumps(text, ensure_ascii=False)[1:-1]
    return _MARKUP.sub(lambda match: _MARKUP_ENTITIES[match[0]], text).replace('"', "&quot;")


def _check(reader: _Reader, value: Any) -> None:
    if (reason := plain(value)) is not None:
        raise NotJson(reason)
    if reader.doubled and reader.braces:
        raise NotJson("braces are doubled around the object and in a text, which is ambiguous")


@dataclass(frozen=True, slots=True)
class ObjectInText:
    """An object found in a text."""

    value: Any
    start: int
    end: int
    spans: dict[tuple[str | int, ...], tuple[int, int]]
    """Position in the text of each of the object's outer values."""


def read_one(text: str, at: int) -> ObjectInText | None:
    """The object that begins at a position in a text; None if the brace there does not begin an object.

    Raises NotJson for an object that begins but cannot be read to its end.
    """
    reader = _Reader(text, at, spans={})
    try:
        value = reader.value(())
    except NotJson:
        if reader.steps > 1:
            raise
        return None
    _check(reader, value)
    return ObjectInText(value, at, reader.at, reader.spans or {})


def _requote(match: re.Match[str]) -> str:
    result = match[0]
    return {"\\'": "'", '"': '\\"'}.get(result, result)
