"""Repair a scalar of the wrong type: `"15"` becomes 15, `"yes"` true, 15 `"15"`, and `"a"` `["a"]`."""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from handrail.schema._fast_path import EXACT
from handrail.schema._nearly_json import SPELLINGS, Note
from handrail.schema.describe import show
from handrail.schema.navigate import Spec

_NUMBER: Final = re.compile(r"(-?(?:0|[1-9][0-9]{0,399}))(?:\.([0-9]{1,400}))?([eE][+-]?[0-9]{1,4})?")
_FLOATS: Final = re.compile(r"-?[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_TRUE_WORDS: Final = frozenset({"yes", "1", "on", "true"})
_FALSE_WORDS: Final = frozenset({"no", "0", "off", "false"})
_THOUSANDS: Final = re.compile(r"-?[1-9][0-9]{0,2}\.000")
MAX_SCALAR_CHARS: Final = 400
MAX_LIST_ITEM_CHARS: Final = 2_083
"""Length of a text that may become a list of one, in characters: as many as a URL may have."""
_WORDS_FOR_NOTHING: Final = frozenset({"none", "null", "nil", "n/a", "undefined"})
_SEPARATORS: Final = frozenset(",;|/&")
_SEPARATOR_NAMES: Final = ("COMMA", "SEMICOLON", "VERTICAL LINE", "VERTICAL BAR", "SLASH", "SOLIDUS", "AMPERSAND")
_QUOTES: Final = frozenset("\"'`<>()[]{}")
_PATH_PREFIXES: Final = ("/", "./", "../", "~/")
_PATH_WORDS: Final = frozenset(
    {
        "path", "paths", "file", "files", "filename", "filenames", "filepath", "filepaths", "dir", "dirs", "directory",
        "directories", "folder", "folders", "url", "urls", "uri", "uris",
    }
)  # fmt: skip
_PATH_FORMATS: Final = ("uri", "uri-reference", "path", "file-path", "directory-path")
_NAME_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


LOUD: Final = frozenset(
    {
        *SPELLINGS,
        "key respelled", "word for true or false", "number as text", "put into a list", "taken out of its list",
        "split into members", "undeclared wrapper taken off",
    }
)  # fmt: skip
"""Rules whose use the model is warned about."""
NO_GUESS: Final = frozenset({"word for true or false", "Python literal"})
"""Rules for a few words with one meaning each: applying them is not a guess."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that preflight changed."""

    path: str
    rule: str
    before: Any
    after: Any
    changed_value: bool
    """Whether the value itself changed, not only its spelling or wrapping."""
    consequential: bool = True
    """False if the schema says that a change of this field does not matter."""

    @property
    def loud(self) -> bool:
        """Whether the model is warned about the repair."""
        return self.rule in LOUD

    @property
    def doubtful(self) -> bool:
        """Whether a tool with effects needs approval because of the repair."""
        return self.loud and self.changed_value and self.consequential and self.rule not in NO_GUESS

    def __str__(self) -> str:
        where = f"`{self.path}`" if self.path else "the arguments"
        return f"{where} repaired ({self.rule}): {show(self.before)} → {show(self.after)}"


@dataclass(frozen=True, slots=True)
class Option:
    """One way to read a value, by one rule."""

    value: Any
    rule: str
    changed: bool
    notes: list[Note] = field(default_factory=list)


def options(spec: Spec, value: Any, written: Callable[[float], set[str]]) -> Iterator[Option]:
    """Every other reading that the accepted types suggest; the caller finds out whether it fits."""
    kinds = spec.kinds or frozenset()
    if isinstance(value, str):
        if len(value) <= MAX_SCALAR_CHARS:
            yield from _from_string(spec, kinds, value.strip())
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if "string" in kinds and (text := only(written(value))) is not None:
            yield Option(text, "number as text", changed=True)
        if "boolean" in kinds and isinstance(value, int) and value in (0, 1):
            yield Option(value == 1, "word for true or false", changed=True)


def listed(spec: Spec, items: Spec, name: str, value: Any) -> Iterator[Option]:
    """The lists that a scalar may stand for: one word, one enum member, or several members with separators."""
    if spec.kinds != frozenset(("array",)) or value is None or isinstance(value, dict | list):
        return
    if not isinstance(value, str):
        yield Option([value], "put into a list", changed=True)
    elif len(value) <= MAX_LIST_ITEM_CHARS and items.members is not None:
        yield Option([value], "put into a list", changed=True)
        yield from (Option(parts, "split into members", changed=True) for parts in _member_lists(items.members, value))
    elif len(value) <= MAX_LIST_ITEM_CHARS and _is_one_word(value, slashes=_may_hold_slashes(items, name, value)):
        yield Option([value], "put into a list", changed=True)


def _is_one_word(text: str, *, slashes: bool) -> bool:
    """Whether a text can only be one item: no white space, quotes, brackets or separators, not a word for nothing."""
    if text.casefold() in _WORDS_FOR_NOTHING or all(unicodedata.category(letter) == "Pd" for letter in text):
        return False
    return not any(_divides(letter) and not (slashes and letter == "/") for letter in text)


def _may_hold_slashes(items: Spec, name: str, text: str) -> bool:
    """Whether the property is named like a path or URL, or the text is one."""
    if text.startswith(_PATH_PREFIXES) or "://" in text or items.get("format") in _PATH_FORMATS:
        return True
    return any(part.lower() in _PATH_WORDS for part in _NAME_PARTS.findall(name[:200]))


def _divides(letter: str) -> bool:
    """Whether a character may separate two items or enclose one."""
    if letter.isascii():
        return letter <= " " or letter == "\x7f" or letter in _QUOTES or letter in _SEPARATORS
    category = unicodedata.category(letter)
    return category[0] in "ZC" or category in ("Ps", "Pe", "Pi", "Pf") or _separates(letter, _QUOTES | _SEPARATORS)


def _separates(letter: str, marks: frozenset[str] = _SEPARATORS) -> bool:
    """Whether a character is one of the marks, in any script."""
    if letter.isascii():
        return letter in marks
    if letter.isalnum():
        return False
    name = unicodedata.name(letter, "")
    return unicodedata.normalize("NFKC", letter) in marks or any(word in name for word in _SEPARATOR_NAMES)


def _member_lists(members: list[Any], text: str) -> Iterator[list[str]]:
    """The text split at separators, or at white space too, if every part is a member."""
    known = {member.strip().casefold() for member in members if isinstance(member, str)}
    marked = "".join("\n" if _separates(letter) else " " if letter.isspace() else letter for letter in text)
    separated = [part.strip() for part in marked.split("\n")]
    for parts in (separated, marked.split() if all(separated) else []):
        if len(parts) > 1 and all(part.casefold() in known for part in parts):
            yield parts


def _from_string(spec: Spec, kinds: frozenset[str], text: str) -> Iterator[Option]:
    members = [m for m in spec.members or () if isinstance(m, str) and m.strip().casefold() == text.casefold()]
    if len(members) == 1:
        yield Option(members[0], "spelling of a member", changed=True)
    if kinds & {"integer", "number"}:
        yield from _numbers(kinds, text)
    if "boolean" in kinds:
        lower = text.lower()
        if lower in _TRUE_WORDS or lower in _FALSE_WORDS:
            rule = "text read as true or false" if text in ("true", "false") else "word for true or false"
            yield Option(lower in _TRUE_WORDS, rule, changed=True)


def _numbers(kinds: frozenset[str], text: str) -> Iterator[Option]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        return
    whole, fraction, exponent = match.groups()
    integral = exponent is None and not (fraction or "").strip("0")
    if integral and "number" not in kinds and _THOUSANDS.fullmatch(text):
        return  # 5.000 may be five or five thousand
    if integral and ("integer" in kinds or fraction is None or abs(int(whole)) >= EXACT):
        yield Option(int(whole), "text read as a number", changed=True)
    elif "number" in kinds:
        yield Option(float(text), "text read as a number", changed=True)


def writer(text: str | None) -> Callable[[float], set[str]]:
    """A function that tells how a number was written in the text sent, in all its forms: 1.10 is not 1.1."""
    sent: dict[float, set[str]] = {}

    def forms(value: float) -> set[str]:
        if isinstance(value, int) or text is None:
            return {repr(value)}
        if not sent:
            for number in _FLOATS.findall(text):
                if len(number) <= MAX_SCALAR_CHARS:
                    sent.setdefault(float(number), set()).add(number)
        return sent.get(value, set())

    return forms


def only(forms: set[str]) -> str | None:
    """The one form of a number; None if it is ambiguous."""
    return next(iter(forms)) if len(forms) == 1 else None
