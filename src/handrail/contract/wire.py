"""The JSON forms of the contract's own values: what may stand in a result, and the envelope around one."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from handrail.misuse import BadEnvelope

SCALARS: Final[frozenset[type]] = frozenset({str, int, float, bool, type(None)})
"""Types that are JSON as they are."""


class WireForm:
    """The base of a value that a result may hold although it is not JSON: an Image, an ArtifactRef, a Truncated."""

    __slots__ = ()

    def to_wire(self) -> Any:
        """The value as JSON data."""
        raise TypeError(f"{type(self).__name__} has no form on the wire")


def to_wire(value: Any) -> Any:
    """`value` with every Image, ArtifactRef and Truncated inside it in its wire form."""
    if type(value) in SCALARS:  # nearly every value is one, and the checks below are six times as slow
        return value
    if isinstance(value, WireForm):
        return value.to_wire()
    if isinstance(value, Mapping):
        return {key: to_wire(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(item) for item in value]
    return value


def sendable(text: str) -> str:
    """The text without lone surrogates, which no provider accepts."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def sendable_data(value: Any) -> Any:
    """JSON data without lone surrogates, in keys too."""
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, Mapping):
        return {sendable(str(key)): sendable_data(item) for key, item in value.items()}
    return [sendable_data(item) for item in value] if isinstance(value, list | tuple) else value


def envelope_in(text: str) -> Any:
    """The data in a text that should be an envelope. Raises BadEnvelope for a text that is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadEnvelope(f"not a result envelope, which is the JSON of result.to_envelope(tool): {error}") from None


def check_envelope(envelope: Any, kinds: Collection[str]) -> None:
    """Raise BadEnvelope unless it has the form that `result.to_envelope(tool)` writes, with a kind among these."""
    if not isinstance(envelope, dict) or not isinstance(envelope.get("ok"), bool):
        raise BadEnvelope('not a result envelope: it is not an object with "ok": true or false')
    if not isinstance(envelope.get("warnings"), list | None):
        raise BadEnvelope('not a result envelope: "warnings" is a list')
    if not envelope["ok"]:
        _check_failure(envelope, kinds)
    elif "result" not in envelope:
        raise BadEnvelope('not a result envelope: a success has a "result"')


def _check_failure(envelope: dict[str, Any], kinds: Collection[str]) -> None:
    kind, message = envelope.get("kind"), envelope.get("message")
    if not isinstance(kind, str) or kind not in kinds or not isinstance(message, str):
        raise BadEnvelope(f'not a result envelope: a failure has a "message" and a known "kind", not {kind!r}')
    if not isinstance(envelope.get("data"), dict | None):
        raise BadEnvelope('not a result envelope: "data" is an object')
    if not isinstance(envelope.get("field"), str | None) or not isinstance(envelope.get("expected"), str | None):
        raise BadEnvelope('not a result envelope: "field" and "expected" are texts')
