"""Which texts a Python type may be made of: what pydantic would read in another sense than its own is refused."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from handrail.schema.parse import NotJson, parse
from handrail.schema.walk import Schema, rewrite

_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]*+=*+\s*+")
_BASE64_URL: Final = re.compile(r"[A-Za-z0-9_\s-]*+=*+\s*+")


def _no_number(text: str) -> bool:
    """Digits are never a date: they would be read as seconds since 1970."""
    try:
        float(text)
    except ValueError:
        return True
    return False


def _is_path(text: str) -> bool:
    """A blank would be the current directory, and the two slashes of a URL would become one."""
    return bool(text.strip()) and "\0" not in text and "://" not in text


def _is_json(text: str) -> bool:
    try:
        parse(text)
    except NotJson:
        return False
    return True


CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    **dict.fromkeys(("date", "date-time", "time", "duration"), _no_number),
    **dict.fromkeys(("path", "file-path", "directory-path"), _is_path),
    "base64": lambda text: _BASE64.fullmatch(text) is not None,  # the decoder skips whatever is not of its alphabet
    "base64url": lambda text: _BASE64_URL.fullmatch(text) is not None,
    "json": _is_json,
}
"""The formats of derived schemas whose texts are looked at; the others are left to the type itself."""


def only_checked(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without the formats that nobody checks here; JSON inside a text is one that is checked."""

    def change(inner: Schema) -> Schema:
        if inner.get("contentMediaType") == "application/json":
            return {**inner, "format": "json"}
        kept = "format" not in inner or inner["format"] in CHECKS
        return inner if kept else {word: held for word, held in inner.items() if word != "format"}

    return dict(rewrite(schema, change))
