"""Show arguments to a person so that nothing in them can hide, move or imitate anything."""

import json
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

LONGEST: Final = 4_000
"""Characters of one argument that are shown; the middle of a longer one is left out, and that is said."""
LONGEST_KEY: Final = 200
MOST_ARGUMENTS: Final = 50
MOST_MARKS: Final = 2
"""Accents on one letter; more of them are written out, for they would cover the lines around."""
HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks that show nothing."""
SCRIPTS: Final = (
    "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "LATIN LETTER SMALL CAPITAL",
    "LATIN SMALL LETTER DOTLESS I", "LATIN SMALL LETTER ALPHA", "LATIN SMALL LETTER SCRIPT G",
)  # fmt: skip
"""Where letters are that look like Latin ones."""
TWINS: Final = frozenset("аеорсухіјѕԁӏһԛԝѵАВЕКМНОРСТУХІЈЅΑΒΕΖΗΙΚΜΝΟΡΤΥΧονρϲ")
"""Letters that cannot be told from Latin ones, so that a whole word of them passes for another."""
SIGNS: Final = frozenset("\u2010\u2011\u2212\u2044\u2215\u29f8\u2024\ua789\u2236\u037e\u02d0\u05c3\u01c3\u2223")
"""Signs that look like `-`, `/`, `.`, `:`, `;`, `!` and `|`."""


def visible(text: str, *, lines: bool = True) -> str:
    """The text with every control, bidi and invisible character written out; line breaks stay unless `lines` is off."""
    if text.isascii() and text.isprintable():
        return text
    shown, marks = [], 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        shown.append(char if (lines and char in "\n\t") or not (marks > MOST_MARKS or _hides(char)) else _code(char))
    return "".join(shown)


def _hides(char: str) -> bool:
    selector = "\ufe00" <= char <= "\ufe0f" or "\u180b" <= char <= "\u180f" or "\U000e0100" <= char <= "\U000e01ef"
    odd_space = char.isspace() and char != " "
    return selector or odd_space or char in BLANK or unicodedata.category(char) in HIDDEN


def _code(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def look_alikes(text: str) -> list[str]:
    """Characters that can be taken for others, where they stand so that they would be: `а (U+0430 CYRILLIC …)`."""
    if text.isascii():
        return []
    found: dict[str, None] = {}
    for word in text[: LONGEST * 25].split():
        if word.isascii():
            continue
        letters = [char for char in word if char.isalpha()]
        passes = any(char.isascii() for char in letters) or TWINS.issuperset(letters)
        for char in word:
            if not char.isascii() and (_imitates(char) or (passes and _name(char).startswith(SCRIPTS))):
                found[f"{char} (U+{ord(char):04X} {_name(char)})"] = None
    return list(found)[:10]


def _imitates(char: str) -> bool:
    """Whether it is another form of an ASCII character, or a sign that looks like one."""
    plain = unicodedata.normalize("NFKC", char)
    return char in SIGNS or (len(plain) == 1 and plain.isascii() and not plain.isspace())


def _name(char: str) -> str:
    return unicodedata.name(char, "")


def shorten(text: str, longest: int = LONGEST) -> str:
    """Head and end of a long text, and how much is missing between them."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} of {len(text):,} characters left out …]\n{text[-half:]}"


def render(tool: str, arguments: Mapping[str, Any]) -> str:
    """The call in plain text: one argument after the other, long ones shortened, odd characters visible and named."""
    parts = [visible(tool, lines=False)]
    for key, value in list(arguments.items())[:MOST_ARGUMENTS]:
        name = visible(shorten(str(key), LONGEST_KEY), lines=False)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        shown = visible(shorten(text))
        parts.append(f"  {name}:\n{_indent(shown)}" if "\n" in shown else f"  {name}: {shown}")
        if strange := look_alikes(f"{key} {text}"):
            parts.append(f"  ! {name} has letters that look like others: {', '.join(strange)}")
    if len(arguments) > MOST_ARGUMENTS:
        parts.append(f"  … and {len(arguments) - MOST_ARGUMENTS} more arguments")
    return "\n".join(parts)


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))
