"""Events and artifacts as lines of text: as the database keeps events, and as an export is written and read."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from types import NoneType
from typing import Any, Final, get_args

from pydantic_core import to_json

from handrail.contract.errors import HandrailError
from handrail.contract.event import Event, EventType
from handrail.contract.model import Usage
from handrail.contract.result import ArtifactRef, result_from

FORMAT: Final = 1
TYPES: Final = frozenset(get_args(EventType))
MAX_PINS: Final = 1_000_000
Kind = type | tuple[type, ...]
NEEDED: Final[dict[str, dict[str, Kind]]] = {
    "user": {"text": str},
    "model_answered": {"text": str, "calls": list, "stop": str, "model": str, "usage": dict, "keep": object},
    "call_started": {"tool": str, "arguments": object, "arguments_hash": str, "origin": str},
    "call_ended": {"tool": str, "result": dict},
    "approval_asked": {"id": str},
    "approval_settled": {"id": str, "decision": str},
    "job_started": {"job": str},
    "job_ended": {"job": str},
    "tools_loaded": {"tools": list},
    "run_ended": {"reason": str, "text": str},
}
"""What later readers of an event rely on, by type."""


_encode: Final = json.JSONEncoder(separators=(",", ":"), default=str).encode  # json.dumps would make one each time


def encode(event: Event) -> str:
    """An event without its number, as JSON."""
    fields = (event.time, event.type, event.call_id, event.parent, event.data)
    try:
        return to_json(fields, fallback=str).decode()  # several times as fast as json
    except (TypeError, ValueError, RecursionError):  # a lone surrogate, or what `_json` has its own answer to
        return _json(fields)


def decode(seq: int, text: str) -> Event:
    """Read what `encode` wrote."""
    time, type_, call_id, parent, data = json.loads(text)
    return Event(seq, time, type_, call_id, parent, data)


def _json(value: Any) -> str:
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):  # keys that are not texts, or a value that contains itself
        return json.dumps(_plain(value, 0), separators=(",", ":"))


def _plain(value: Any, depth: int) -> Any:
    if depth < 50 and isinstance(value, Mapping):
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if depth < 50 and isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, str | int | float | None):
        return value
    return f"a {type(value).__name__}, nested too deeply" if depth >= 50 else str(value)[:1_000]


def export_lines(
    id: str, events: Iterable[Event], artifacts: Iterable[tuple[ArtifactRef, int, Iterable[bytes]]]
) -> Iterator[str]:
    """A session as JSON lines: a heading, its events, then its artifacts in pieces."""
    yield _json({"handrail": FORMAT, "session": id})
    for event in events:
        yield _json({"event": [event.seq, event.time, event.type, event.call_id, event.parent, event.data]})
    for ref, pins, pieces in artifacts:
        yield _json({"artifact": ref.ref, "media_type": ref.media_type, "name": ref.name, "pins": pins})
        for piece in pieces:
            yield _json({"base64": b64encode(piece).decode("ascii")})


Part = Event | str | Mapping[str, Any] | bytes
"""A part of an export: the session's id first, then events, then artifacts, each followed by its bytes."""


def read_lines(lines: Iterable[str]) -> Iterator[Part]:
    """Read what `export_lines` wrote. Raises HandrailError that names the first wrong line."""
    expected = -1
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            part = _part(json.loads(line), expected)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise HandrailError(f"line {number} is not a line of a session's export: {error}") from error
        if isinstance(part, str | Event):
            expected += 1
        yield part
    if expected < 1:
        raise HandrailError("this is not the export of a session: it has no events")


def _part(line: Any, expected: int) -> Part:
    if expected < 0:
        if line.get("handrail") != FORMAT or not isinstance(line.get("session"), str):
            raise ValueError(f'the first line is {{"handrail": {FORMAT}, "session": ID}}')
        session: str = line["session"]
        return session
    if "event" in line:
        return _event(line["event"], expected)
    if "base64" in line:
        return b64decode(line["base64"], validate=True)
    artifact = {"ref": line["artifact"], "media_type": line["media_type"], "name": line["name"], "pins": line["pins"]}
    _check(artifact, {"ref": str, "media_type": str, "name": (str, NoneType), "pins": int})
    if not 0 <= artifact["pins"] <= MAX_PINS:
        raise ValueError("pins is out of range")
    return artifact


def _event(given: Any, expected: int) -> Event:
    """Read an event, and refuse one that nobody could use later."""
    seq, time, type_, call_id, parent, data = given
    if seq != expected or type_ not in TYPES:
        raise ValueError(f"it should be event {expected}")
    event = {"time": float(time), "call_id": call_id, "parent": parent, "data": data}
    _check(event, {"call_id": (str, NoneType), "parent": (str, NoneType), "data": dict})
    if not isfinite(event["time"]):
        raise ValueError("time is not a number")
    _check(data, NEEDED.get(type_, {}))
    if type_ == "model_answered":
        Usage() + Usage(**data["usage"])
        for call in data["calls"]:
            _check(call, {"id": str, "name": str, "arguments": object, "cut": bool})
    elif type_ == "call_ended":
        _check_end(data)
    return Event(seq, event["time"], type_, call_id, parent, data)


def _check_end(data: Mapping[str, Any]) -> None:
    result_from(data["result"])
    for kept in data.get("memory", {}).values():
        _check({"memory": kept}, {"memory": dict})
    for image in data.get("images", []):
        _check(image, {"ref": str, "path": list})


def _check(found: Mapping[str, Any], needed: Mapping[str, Kind]) -> None:
    for name, kind in needed.items():
        if not isinstance(found[name], kind):
            raise ValueError(f"{name} is a {type(found[name]).__name__}")
