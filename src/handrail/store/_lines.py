"""Events and artifacts as lines of text: as the database keeps events, and as an export is written and read."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from types import NoneType
from typing import Any, Final, cast

from pydantic_core import to_json

from handrail.contract.errors import HandrailError
from handrail.contract.event import EVENT_FIELDS, Event, EventType
from handrail.contract.model import Usage
from handrail.contract.result import ArtifactRef, result_from
from handrail.misuse import shown

FORMAT: Final = 1
MAX_PINS: Final = 1_000_000
Kind = type | tuple[type, ...]


_encode: Final = json.JSONEncoder(separators=(",", ":"), default=str).encode  # json.dumps would make one each time


def encode(event: Event) -> bytes:
    """An event without its number, as JSON in UTF-8."""
    fields = (event.time, event.type, event.call_id, event.parent, event.data)
    try:
        return to_json(fields, fallback=str)  # several times as fast as json
    except (TypeError, ValueError, RecursionError):  # a lone surrogate, or what `_json` has its own answer to
        return _json(fields).encode("ascii")


def decode(seq: int, text: bytes) -> Event:
    """Read what `encode` wrote. Raises ValueError, TypeError or RecursionError for anything else."""
    time, type_, call_id, parent, data = json.loads(str(text, "utf-8"))
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
        mark = {"incomplete": True} if ref.incomplete else {}
        yield _json({"artifact": ref.ref, "media_type": ref.media_type, "name": ref.name, "pins": pins, **mark})
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
    artifact["incomplete"] = line.get("incomplete")  # None: whole, or of an earlier version, which knew no mark
    kinds: dict[str, Kind] = {"ref": str, "media_type": str, "name": (str, NoneType), "pins": int}
    _check(artifact, {**kinds, "incomplete": (bool, NoneType)})
    if not 0 <= artifact["pins"] <= MAX_PINS:
        raise ValueError("pins is out of range")
    return artifact


def _event(given: Any, expected: int) -> Event:
    """Read an event, and refuse one that could not be used later."""
    seq, time, type_, call_id, parent, data = given
    if seq != expected:
        raise ValueError(f"it should be event {expected}")
    if not isinstance(type_, str) or type_ not in EVENT_FIELDS:
        raise ValueError(f"event {expected} has the type {shown(type_)}, which this version does not know")
    event = {"time": float(time), "call_id": call_id, "parent": parent, "data": data}
    _check(event, {"call_id": (str, NoneType), "parent": (str, NoneType), "data": dict})
    if not isfinite(event["time"]):
        raise ValueError("time is not a number")
    _check(data, EVENT_FIELDS[type_])
    if type_ == "model_answered":
        Usage() + Usage(**data["usage"])
        for call in data["calls"]:
            _check(call, {"id": str, "name": str, "arguments": object, "cut": bool})
    elif type_ == "call_ended":
        _check_end(data)
    elif type_ == "approval_settled":  # an export may be anybody's: what somebody else approved for good is not kept
        data = {name: value for name, value in data.items() if name != "rule"}
    return Event(seq, event["time"], cast(EventType, type_), call_id, parent, data)


def _check_end(data: Mapping[str, Any]) -> None:
    result_from(data["result"])
    for kept in data.get("memory", {}).values():
        _check({"memory": kept}, {"memory": dict})
    for image in data.get("images", []):
        _check(image, {"ref": str, "path": list})


def _check(found: Mapping[str, Any], needed: Mapping[str, Kind]) -> None:
    for name, kind in needed.items():
        if name not in found:
            raise ValueError(f"{name} is missing")
        if not isinstance(found[name], kind):
            raise ValueError(f"{name} is a {type(found[name]).__name__}")
