"""Text formats and patterns: a sample of each, and which texts may be converted to a Python type."""

import re
import re._parser as grammar  # type: ignore[import-not-found,unused-ignore]  # the parse tree has no public name
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from handrail.schema.navigate import Schema, rewrite

MAX_SAMPLE_CHARS: Final = 200
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]*+=*+\s*+")
_BASE64_URL: Final = re.compile(r"[A-Za-z0-9_\s-]*+=*+\s*+")
_CATEGORIES: Final = {
    "CATEGORY_DIGIT": "0", "CATEGORY_WORD": "a", "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_DIGIT": "a", "CATEGORY_NOT_WORD": "-", "CATEGORY_NOT_SPACE": "a",
}  # fmt: skip
_TRIED_CHARACTERS: Final = "a0A_-./ @:~"
_REPEAT_COUNTS: Final = (1, 0, 2, 4, 8, 16, 64)
"""Numbers of repetitions to try until the length fits."""
FORMAT_SAMPLES: Final = {
    "date": "2026-01-31", "date-time": "2026-01-31T12:00:00Z", "time": "12:00:00Z", "duration": "PT1H30M",
    "email": "name@example.com", "idn-email": "name@example.com", "name-email": "Name <name@example.com>",
    "hostname": "example.com", "idn-hostname": "example.com",
    "uri": "https://example.com/", "url": "https://example.com/", "iri": "https://example.com/",
    "uri-reference": "/path", "iri-reference": "/path", "uri-template": "/{id}",
    "multi-host-uri": "postgres://user@example.com:5432/name",
    "ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "ipvanyaddress": "192.0.2.1", "ipv4interface": "192.0.2.1/24",
    "ipv6interface": "2001:db8::1/64", "ipvanyinterface": "192.0.2.1/24", "ipv4network": "192.0.2.0/24",
    "ipv6network": "2001:db8::/32", "ipvanynetwork": "192.0.2.0/24", "mac-address": "00:00:5e:00:53:01",
    "json-pointer": "/a", "relative-json-pointer": "0/a", "regex": "[a-z]+", "json-string": "{}",
    "json": "{}", "complex": "1+2j", "fraction": "1/3",
    "byte": "dGV4dA==", "base64": "dGV4dA==", "base64url": "dGV4dA==", "color": "#336699",
    **{f"uuid{version or ''}": f"0198c2a4-7c1e-{version or 4}d3f-8a1b-5e6f7a8b9c0d" for version in range(9)},
}  # fmt: skip
"""A sample text for each format in use, pydantic's and JSON Schema's."""


def sample(pattern: str, least: int = 0, most: int = MAX_SAMPLE_CHARS) -> str | None:
    """A text of `least` to `most` characters that matches the pattern; None if the pattern is too complicated."""
    if len(pattern) > MAX_SAMPLE_CHARS:
        return None
    try:
        tree = grammar.parse(pattern)
        for repeats in _REPEAT_COUNTS:
            text = _sequence(tree, repeats)
            if least <= len(text) <= min(most, MAX_SAMPLE_CHARS) and re.search(pattern, text):
                return text
    except (re.error, KeyError, ValueError, RecursionError, OverflowError, TypeError):
        return None
    return None


def _sequence(items: Iterable[Any], repeats: int) -> str:
    return "".join(_one(str(kind), details, repeats) for kind, details in items)


def _one(kind: str, details: Any, repeats: int) -> str:
    match kind:
        case "LITERAL":
            return chr(details)
        case "NOT_LITERAL":
            return next(letter for letter in _TRIED_CHARACTERS if ord(letter) != details)
        case "ANY":
            return "a"
        case "IN":
            return _member(details)
        case "BRANCH":
            return _sequence(details[1][0], repeats)
        case "SUBPATTERN":
            return _sequence(details[-1], repeats)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            low, high, inner = details
            return _sequence(inner, repeats) * min(max(int(low), min(repeats, int(high))), MAX_SAMPLE_CHARS)
        case "AT" | "ASSERT" | "ASSERT_NOT":
            return ""
    raise ValueError(kind)


def _member(details: Any) -> str:
    kind, argument = str(details[0][0]), details[0][1]
    if kind == "NEGATE":
        refused = re.compile("[" + "".join(map(_written, details[1:])) + "]")
        return next(letter for letter in _TRIED_CHARACTERS if not refused.match(letter))
    if kind == "RANGE":
        return chr(argument[0])
    return chr(argument) if kind == "LITERAL" else _CATEGORIES[str(argument)]


def _written(item: Any) -> str:
    kind, argument = str(item[0]), item[1]
    if kind == "RANGE":
        return f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}"
    if kind == "LITERAL":
        return re.escape(chr(argument))
    letter = {"DIGIT": "d", "WORD": "w", "SPACE": "s"}[str(argument).rsplit("_", 1)[-1]]
    return f"\\{letter.upper() if 'NOT' in str(argument) else letter}"


def _is_not_a_number(text: str) -> bool:
    """Whether a text is not a number: pydantic would read digits as seconds since 1970, not as a date."""
    try:
        float(text)
    except ValueError:
        return True
    return False


def _is_path(text: str) -> bool:
    """Whether a text may be a path: a blank would become the current directory, and a URL's two slashes one."""
    return bool(text.strip()) and "\0" not in text and "://" not in text


FORMAT_CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    **dict.fromkeys(("date", "date-time", "time", "duration"), _is_not_a_number),
    **dict.fromkeys(("path", "file-path", "directory-path"), _is_path),
    "base64": lambda text: _BASE64.fullmatch(text) is not None,  # the decoder skips characters outside its alphabet
    "base64url": lambda text: _BASE64_URL.fullmatch(text) is not None,
}
"""The formats of derived schemas that are checked here; other formats are checked by the Python type itself."""


def only_checked(
    schema: Mapping[str, Any], inside: Callable[[Schema], Callable[[str], bool]]
) -> tuple[dict[str, Any], dict[str, Callable[[str], bool]]]:
    """The schema without the formats that are not checked here, and the checks.

    A text that holds JSON gets a format of its own, which `inside` checks by the schema of the value in the text.
    """
    checks = dict(FORMAT_CHECKS)

    def change(inner: Schema) -> Schema:
        if inner.get("contentMediaType") == "application/json":
            name = f"json {len(checks)}"
            content = inner.get("contentSchema")
            checks[name] = inside(
                {**(content if isinstance(content, Mapping) else {}), "$defs": schema.get("$defs", {})}
            )
            return {**inner, "format": name}
        kept = "format" not in inner or inner["format"] in FORMAT_CHECKS
        return inner if kept else {keyword: value for keyword, value in inner.items() if keyword != "format"}

    return dict(rewrite(schema, change)), checks
