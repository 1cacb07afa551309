"""A Scrubber replaces secrets in texts, data and streams by `[secret]`.

It finds a secret as it is, as JSON, Python and URLs write it, and inside base64 at any offset, also where that is
broken into lines. It does not find other encodings (hex, UTF-16, compression), nor a part of a secret.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from handrail.contract.errors import HandrailError
from handrail.contract.result import ArtifactRef, Failure, Image, Result, Success
from handrail.contract.truncated import Truncated
from handrail.misuse import refuse

REPLACEMENT: Final = "[secret]"
SHORTEST: Final = 4
"""Length of the shortest secret, in characters: shorter ones would be found in every text."""
MAX_HELD_CHARS: Final = 64 << 10
"""Number of characters that a stream keeps back at most."""
TOO_DEEP: Final = "nested too deeply to be scrubbed, and left out"
_IN_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=")
_BREAK: Final = re.compile(r"[\r\n]+|\\[rn]")
"""A line break inside base64, as it is or as JSON writes it."""
Span = tuple[int, int]


class Scrubber:
    """Replaces secrets by `[secret]`; made from the secrets themselves. Raises HandrailError for one that is too short.

    White space around a secret is ignored. Calling it is the same as calling `text`.

    Example:
        ```python
        scrubber = Scrubber(["sk-5f3a9c21"])
        print(scrubber.text("key=sk-5f3a9c21"), scrubber.data({"key": "sk-5f3a9c21"}))
        #> key=[secret] {'key': '[secret]'}
        ```
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        if isinstance(secrets, str | bytes | Mapping) or not isinstance(secrets, Iterable):
            raise HandrailError(f"secrets is a {type(secrets).__name__}; write a tuple of texts: secrets=(token, …)")
        values = [_checked(number, secret) for number, secret in enumerate(secrets, 1)]
        plain = {form for value in values for form in _written(value)}
        encoded = {core for value in values for core in _in_base64(value)}
        self._texts = _Forms(plain, encoded)
        self._bytes = _Forms({form.encode("utf-8", "surrogatepass").decode("latin-1") for form in plain}, encoded)

    def __repr__(self) -> str:
        return "<Scrubber>"

    def __call__(self, text: str) -> str:
        return self.text(text)

    def text(self, text: str) -> str:
        """The text without secrets; the same object if it has none."""
        if isinstance(text, Truncated):
            return self._excerpt(text)
        spans = self._texts.spans(text)
        return _replaced(text, spans) if spans else text

    def bytes(self, data: bytes) -> bytes:
        """Bytes without secrets, whether they are UTF-8 text or anything else."""
        text = bytes(data).decode("latin-1")
        spans = self._bytes.spans(text)
        return _replaced(text, spans).encode("latin-1") if spans else data

    def data(self, value: Any) -> Any:
        """JSON data without secrets, in keys too; the same object if it has none. Images stay as they are."""
        try:
            return self._data(value)
        except RecursionError:
            return {"text": TOO_DEEP} if isinstance(value, Mapping) else TOO_DEEP

    def result(self, result: Result) -> Result:
        """A result without secrets."""
        warnings = tuple(self.text(each) for each in result.warnings)
        if isinstance(result, Success):
            return replace(result, value=self.data(result.value), warnings=warnings)
        return Failure(
            result.kind, self.text(result.message), field=self.data(result.field), expected=self.data(result.expected),
            data=self.data(result.data), warnings=warnings, retryable=result.retryable,
        )  # fmt: skip

    def stream(self) -> "Stream":
        """A Stream for text that comes in pieces: a secret may be split over two of them."""
        return Stream(self._texts)

    def byte_stream(self) -> "ByteStream":
        """A ByteStream for bytes that come in pieces."""
        return ByteStream(self._bytes)

    def _data(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool | Image):
            return value
        if isinstance(value, int | float):
            return REPLACEMENT if repr(value) in self._texts.plain else value
        if isinstance(value, Mapping):
            made = {self._data(key): self._data(item) for key, item in value.items()}
            same = len(made) == len(value) and all(
                mine is its and key is own for (key, mine), (own, its) in zip(made.items(), value.items(), strict=True)
            )
            return value if same else made
        if isinstance(value, list | tuple):
            items = [self._data(item) for item in value]
            return value if all(map(_is, items, value)) else items
        if isinstance(value, bytes):
            return self.bytes(value)
        return replace(value, name=self._data(value.name)) if isinstance(value, ArtifactRef) else value

    def _excerpt(self, part: Truncated) -> Truncated:
        """A truncated text without secrets, also without half a secret at the edge of the cut."""
        head, tail = part.head, part.tail
        if begun := self._texts.held(head):
            head = head[: len(head) - begun] + (REPLACEMENT if begun >= SHORTEST else head[len(head) - begun :])
        if rest := self._texts.ended(tail):
            tail = (REPLACEMENT if rest >= SHORTEST else tail[:rest]) + tail[rest:]
        head, tail = self.text(head), self.text(tail)
        if (head, tail) == (part.head, part.tail):
            return part
        return Truncated(head, tail, part.left_out, part.total, part.whole)


class Stream:
    """Text in pieces. A possible beginning of a secret waits for the next piece, or for the end."""

    def __init__(self, forms: "_Forms") -> None:
        self._forms = forms
        self._held = ""

    def add(self, text: str) -> str:
        """The text that can be shown now, which may be empty."""
        text = self._held + text
        spans = self._forms.spans(text)
        end = len(text) - self._forms.held(text)
        for start, stop in spans:
            if start < end and (stop > end or stop == len(text)):
                end = start
        if len(text) - end > MAX_HELD_CHARS:
            end = len(text) - self._forms.longest
        self._held = text[end:]
        return _replaced(text[:end], [(start, min(stop, end)) for start, stop in spans if start < end])

    def end(self) -> str:
        """The rest of the text."""
        text, self._held = self._held, ""
        return _replaced(text, self._forms.spans(text))


class ByteStream:
    """A Stream of bytes."""

    def __init__(self, forms: "_Forms") -> None:
        self._stream = Stream(forms)

    def add(self, data: bytes) -> bytes:
        return self._stream.add(bytes(data).decode("latin-1")).encode("latin-1")

    def end(self) -> bytes:
        return self._stream.end().encode("latin-1")


class _Forms:
    """The forms of secrets to look for in a text."""

    def __init__(self, plain: Iterable[str], encoded: Iterable[str]) -> None:
        self.plain = frozenset(plain)
        self._encoded = tuple(encoded)
        self.longest = max(map(len, (*self.plain, *self._encoded)), default=0)
        first = "".join(sorted({form[0] for form in (*self.plain, *self._encoded)}))
        self._first = re.compile(f"[{re.escape(first)}]" if first else "(?!)")

    def spans(self, text: str) -> list[Span]:
        """Positions of secrets, in order; overlapping ones are merged."""
        found = [(at, at + len(form)) for form in self.plain for at in _places(text, form)]
        found += self._in_base64(text)
        merged: list[Span] = []
        for start, stop in sorted(found):
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(stop, merged[-1][1])
            else:
                merged.append((start, stop))
        return merged

    def held(self, text: str) -> int:
        """Number of characters at the end that may be the beginning of a secret."""
        tail = text[-self.longest :]
        plain = _begun(tail, self._first, self.plain)
        wide = text[-2 * self.longest :]
        joined, places = _joined(wide)
        encoded = _begun(joined, self._first, self._encoded)
        return max(plain, len(wide) - places[-encoded] if encoded else 0)

    def ended(self, text: str) -> int:
        """Number of characters at the start that may be the end of a secret."""
        lengths = range(min(len(text), self.longest - 1), SHORTEST - 1, -1)
        forms = (*self.plain, *self._encoded)
        return next((size for size in lengths if any(each.endswith(text[:size]) for each in forms)), 0)

    def _in_base64(self, text: str) -> Iterator[Span]:
        """Widen a match by the characters next to it: they hold some bits of the secret."""
        joined = _BREAK.sub("", text) if "\n" in text or "\\" in text or "\r" in text else text
        present = [core for core in self._encoded if core in joined]
        if not present:
            return
        joined, places = _joined(text)
        for core in present:
            for at in _places(joined, core):
                start, stop = at, at + len(core)
                start -= start > 0 and joined[start - 1] in _IN_BASE64
                stop += stop < len(joined) and joined[stop] in _IN_BASE64
                while joined[stop : stop + 1] == "=":
                    stop += 1
                yield places[start], places[stop - 1] + 1


def _checked(number: int, secret: object) -> str:
    """The secret without the white space around it. No message contains it."""
    if not isinstance(secret, str):
        refuse(f"secret {number}", type(secret).__name__, "texts: secrets=(token, …)")
    value = secret.strip()
    if len(value) < SHORTEST:
        raise HandrailError(
            f"secret {number} has {len(value)} characters, and would be found everywhere: it needs at least {SHORTEST}"
        )
    if value in REPLACEMENT:
        raise HandrailError(f"secret {number} is part of {REPLACEMENT!r}, which takes the place of secrets")
    return value


def _written(value: str) -> set[str]:
    """The secret as texts contain it: plain, in JSON, in JSON inside JSON, in Python, in a URL, from a terminal."""
    escaped = json.dumps(value)[1:-1]
    url = {quote(value, safe=safe, errors="surrogatepass") for safe in ("", "/")}
    return url | {
        value, escaped, json.dumps(escaped)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1],
        re.sub("\r?\n", "\r\n", value),
    }  # fmt: skip


def _in_base64(value: str) -> set[str]:
    """The characters, for each of three offsets, that do not depend on the text around the secret."""
    data = value.encode("utf-8", "surrogatepass")
    cores = set()
    for offset, unsure in ((0, 0), (1, 2), (2, 3)):
        text = b64encode(bytes(offset) + data).decode()
        core = text[unsure : (offset + len(data)) * 8 // 6]
        cores |= {core, core.replace("+", "-").replace("/", "_")}
    return cores


def _joined(text: str) -> tuple[str, Sequence[int]]:
    """The text without line breaks, and the original position of each character."""
    pieces, places, last = [], list[int](), 0
    for found in _BREAK.finditer(text):
        pieces.append(text[last : found.start()])
        places += range(last, found.start())
        last = found.end()
    if not pieces:
        return text, range(len(text))
    return "".join((*pieces, text[last:])), [*places, *range(last, len(text))]


def _begun(text: str, first: re.Pattern[str], forms: Iterable[str]) -> int:
    """Length of the longest suffix of the text that is a prefix of a secret."""
    for found in first.finditer(text):
        rest = text[found.start() :]
        if any(len(rest) < len(form) and form.startswith(rest) for form in forms):
            return len(rest)
    return 0


def _places(text: str, form: str) -> Iterator[int]:
    at = text.find(form)
    while at >= 0:
        yield at
        at = text.find(form, at + 1)


def _replaced(text: str, spans: Iterable[Span]) -> str:
    pieces, last = [], 0
    for start, stop in spans:
        pieces += [text[last:start], REPLACEMENT]
        last = stop
    return "".join((*pieces, text[last:]))


def _is(one: Any, other: Any) -> bool:
    return one is other
