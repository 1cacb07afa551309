"""Show arguments to a person so that nothing in them can hide, move or imitate anything."""

import json
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

LONGEST: Final = 4_000
"""Characters of one argument that are shown; the middle of a longer one is left out, and that is said."""
LOOK_ALIKES: Final = (
    "CYRILLIC",
    "GREEK",
    "ARMENIAN",
    "CHEROKEE",
    "FULLWIDTH",
    "MATHEMATICAL",
    "LATIN LETTER SMALL CAPITAL",
)
HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str, *, lines: bool = True) -> str:
    """The text with every control, bidi and invisible character written out; line breaks stay unless `lines` is off."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(char, lines) for char in text)


def _shown(char: str, lines: bool) -> str:
    if char == "\n" and lines:
        return char
    if char == "\t" and lines:
        return char
    if unicodedata.category(char) not in HIDDEN and (char == " " or not char.isspace()):
        return char
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def look_alikes(text: str) -> list[str]:
    """Letters that can be taken for Latin ones, where a word mixes them with Latin letters: `а (U+0430 CYRILLIC …)`."""
    if text.isascii():
        return []
    found: dict[str, None] = {}
    for word in text[: LONGEST * 25].split():
        if word.isascii() or not any(char.isascii() and char.isalpha() for char in word):
            continue
        for char in word:
            name = unicodedata.name(char, "")
            if not char.isascii() and name.startswith(LOOK_ALIKES):
                found[f"{char} (U+{ord(char):04X} {name})"] = None
    return list(found)[:10]


def shorten(text: str, longest: int = LONGEST) -> str:
    """Head and end of a long text, and how much is missing between them."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} of {len(text):,} characters left out …]\n{text[-half:]}"


def render(tool: str, arguments: Mapping[str, Any]) -> str:
    """The call in plain text: one argument after the other, long ones shortened, odd characters visible and named."""
    parts = [visible(tool, lines=False)]
    for key, value in list(arguments.items())[:50]:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        shown = visible(shorten(text))
        joined = f"\n{_indent(shown)}" if "\n" in shown else f" {shown}"
        parts.append(f"  {visible(str(key), lines=False)}:{joined}")
        if strange := look_alikes(text):
            parts.append(
                f"  ! {visible(str(key), lines=False)} has letters that look like others: {', '.join(strange)}"
            )
    if len(arguments) > 50:
        parts.append(f"  … and {len(arguments) - 50} more arguments")
    return "\n".join(parts)


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))
