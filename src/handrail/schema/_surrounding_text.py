"""Recognise meaningless text before and after an object; anything else is refused, never dropped."""

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from handrail.schema.describe import fold
from handrail.schema.parse import BLANK, NotJson

MAX_BEFORE_CHARS: Final = 400
"""Number of characters before the object that are examined."""
MAX_KEY_WORDS_COUNT: Final = 6
"""Number of words that may spell one declared key."""
_FENCE: Final = re.compile(r"```[A-Za-z0-9_+-]*[ \t]*\r?\n?")
_BEFORE: Final = re.compile(r"(?:[\w\s.,!:=(-]|<[^<>{}\[\]]{1,80}+>)++")
_TOKEN: Final = re.compile(r"[\w-]+")
_PARTS: Final = re.compile(r"[_-]+")
_TAGS: Final = re.compile(r"</[\w:.|-]{1,80}+\s*+>|<\|[\w/]{1,60}+\|>|```")
_COMMENT: Final = re.compile(r"//++|/\*++|\*++/|#++")
_STRUCTURE: Final = re.compile(
    r"[\"'`:=\u02d0\u05c3\u2236\ua789{}\[\]<>\\|&$/@^~_+*\u2018-\u201f\u00ab\u00bb\u2039\u203a\u300c-\u300f]"
    r"|(?<!\S)-{1,2}\w"
)
_WORD: Final = re.compile(r"[a-z0-9]+|[^\W_a-z0-9]+")
"""A run of letters; ASCII ones are a word of their own, because many scripts put no space around them."""
_ARGUMENTS_FOLLOW: Final = """
    a action actions and answer are arg args argument arguments begin call calling calls certainly final following for
    function functions go here i input inputs invoke is javascript js json json5 let ll me my now object of ok okay
    output param parameter parameters params payload py python request response result s start sure tag text the
    these this to tool tools use using value values we will with you
"""
_ORDINARY: Final = frozenset(_ARGUMENTS_FOLLOW.split())
"""Words that only announce the arguments."""


@dataclass(frozen=True, slots=True)
class Opening:
    """One piece of text before an object."""

    rule: str
    end: int
    parenthesis: bool = False
    """Whether the text opens a parenthesis, which must then be closed after the object."""


def opening(text: str, at: int, keys: Collection[str], tool: str | None) -> Opening | None:
    """The fence, tag or label that begins at a position, or None. Raises NotJson for anything else.

    A label announces the arguments or names this `tool`; without a tool only a fence is accepted.
    """
    fence = _FENCE.match(text, at)
    if fence is not None:
        return Opening("fence", fence.end())
    before = _BEFORE.match(text, at, at + MAX_BEFORE_CHARS) if tool is not None else None
    if before is None:
        return None
    name, parenthesis, more = before[0].partition("(")
    words = _TOKEN.findall(name)
    if len(before[0]) == MAX_BEFORE_CHARS or text.find("{", before.end()) < 0:
        raise NotJson("there should be an object here", at)
    if parenthesis and (more.strip() or words[-1:] != [tool] or not name.rstrip().endswith(words[-1])):
        raise NotJson("there should be an object here", at)
    for word in words:
        if fold(word) in keys or not (word == tool or _is_ordinary(word)):
            raise NotJson(f"{word[:80]!r} stands before the object", at)
    return Opening("tag" if "<" in name else "text before", before.end(), bool(parenthesis))


def closing(text: str, at: int, keys: Collection[str], *, parenthesis: bool, opened: bool) -> str:
    """The text after the object, which is dropped; empty if it only closes what was opened before the object.

    Raises NotJson unless it is closing brackets, fences or tags, `;`, or prose without structure or declared keys.
    """
    rest = text[at:].strip(" \t\r\n")
    if parenthesis and not rest.lstrip(BLANK).startswith(")"):
        raise NotJson("a parenthesis is not closed", at)
    if "{" in rest or "[" in rest:
        raise NotJson("there is more than one object, which is ambiguous", at)
    bare = _TAGS.sub(" ", rest).strip(BLANK)
    prose = _COMMENT.sub(" ", bare.lstrip(BLANK + "}]);")).strip(BLANK)
    if (prose and not _is_prose(prose)) or _has_key(rest, keys):
        raise NotJson("there is something after the end of the object", at)
    return "" if opened and bare == ")" * parenthesis else rest


def _is_ordinary(word: str) -> bool:
    return all(part in _ORDINARY for part in _PARTS.split(word.casefold()) if part)


def _is_prose(text: str) -> bool:
    """Whether a text is only words: nothing in it could be a value or a part of one, and it does not go on a list."""
    plainer = _plain(text)
    if _STRUCTURE.search(plainer) is not None or "COMMA" in unicodedata.name(plainer[:1] or " ", ""):
        return False
    words = _WORD.findall(plainer)
    return not words or any(letter.isalpha() for word in words for letter in word)


def _has_key(text: str, keys: Collection[str]) -> bool:
    """Whether a text names a declared key: as words, or anywhere if the key is in a script without spaces."""
    plainer = _plain(text)
    words = _WORD.findall(plainer)
    if any(
        "".join(words[at : at + many]) in keys for at in range(len(words)) for many in range(1, MAX_KEY_WORDS_COUNT + 1)
    ):
        return True
    joined = "" if plainer.isascii() else fold("".join(words))
    return bool(joined) and any(_plain(key) in joined for key in keys if not key.isascii())


def _plain(text: str) -> str:
    """A text without case and without other forms of the same letters, such as full-width ones."""
    return text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
