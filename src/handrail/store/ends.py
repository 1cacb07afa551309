"""End an interrupted session: an event for every open call, approval, job and run."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from handrail.contract.call import Call
from handrail.contract.event import Event, EventType
from handrail.contract.result import Failure
from handrail.schema.parse import recordable

End = tuple[EventType, str | None, str | None, Mapping[str, Any]]
"""The type, call, parent and data of an event that is to be written."""
Why = Literal["interrupted", "forked"]


@dataclass(slots=True)
class _Open:
    """Calls, approvals, jobs and runs without an end, by id, in the order in which they began."""

    answered: dict[str, tuple[Mapping[str, Any], str | None]] = field(default_factory=dict)
    """Calls of the model's answers that were not accepted yet, with the answer's parent."""
    calls: dict[str, Event] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)
    approvals: dict[str, Event] = field(default_factory=dict)
    jobs: dict[str, Event] = field(default_factory=dict)
    runs: dict[str | None, Event] = field(default_factory=dict)
    last: float = 0.0

    def read(self, event: Event) -> None:
        data, call = event.data, event.call_id or ""
        self.last = event.time
        if event.type == "model_answered":
            self.answered |= {each["id"]: (each, event.parent) for each in data["calls"]}
        elif event.type == "call_started":
            self.answered.pop(call, None)
            self.calls[call] = event
        elif event.type == "call_running":
            self.ran.add(call)
        elif event.type == "call_ended":
            self.calls.pop(call, None)
        elif event.type in ("approval_asked", "approval_settled", "job_started", "job_ended"):
            self._read_pair(event)
        elif event.type == "run_started":
            self.runs[event.parent] = event
        elif event.type == "run_ended":
            self.runs.pop(event.parent, None)

    def _read_pair(self, event: Event) -> None:
        began = event.type in ("approval_asked", "job_started")
        found, name = (self.jobs, "job") if event.type.startswith("job") else (self.approvals, "id")
        if began:
            found[event.data[name]] = event
        else:
            found.pop(event.data[name], None)


def open_ends(events: Iterable[Event], why: Why) -> list[End]:
    """The events that end everything still open, in an order in which they might have happened."""
    left = _Open()
    for event in events:
        left.read(event)
    ends: list[End] = [
        ("approval_settled", event.call_id, event.parent, {"id": id, "decision": "cancelled"})
        for id, event in left.approvals.items()
    ]
    for id, (call, parent) in left.answered.items():
        started = _started(call)
        ends += [("call_started", id, parent, started), ("call_ended", id, parent, _ended(started, False, why, 0.0))]
    for id, event in reversed(left.calls.items()):
        seconds = left.last - event.time
        ends.append(("call_ended", id, event.parent, _ended(event.data, id in left.ran, why, seconds)))
    for id, event in left.jobs.items():
        gone = {"job": id, "exit_code": None, "ended_by": "lost", "error": None}
        ends.append(("job_ended", event.call_id, event.parent, gone))
    for parent in reversed(left.runs):
        forked = {"forked": True} if why == "forked" else {}
        ends.append(("run_ended", None, parent, {"reason": "cancelled", "text": "", **forked}))
    return ends


def never_began(tool: str) -> Failure:
    """The end of a call that was cancelled before it began."""
    return Failure("cancelled", f"{tool} was cancelled before it began, so it had no effects.")


def never_started(call: Call, failure: Failure) -> list[tuple[EventType, dict[str, Any]]]:
    """The start and the end of a call that did not begin, for this reason."""
    started = {**_started({"name": call.name, "arguments": call.arguments}), "origin": call.origin}
    return [("call_started", started), ("call_ended", _end(started, failure, 0.0))]


def _started(call: Mapping[str, Any]) -> dict[str, Any]:
    given = recordable(call["arguments"])
    text = given if isinstance(given, str) else json.dumps(given, sort_keys=True, default=str)
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return {"tool": call["name"], "arguments": given, "arguments_hash": digest, "origin": "model"}


def _ended(started: Mapping[str, Any], ran: bool, why: Why, seconds: float) -> dict[str, Any]:
    return _end(started, _failure(started["tool"], ran, why), seconds)


def _end(started: Mapping[str, Any], failure: Failure, seconds: float) -> dict[str, Any]:
    return {
        "tool": started["tool"],
        "status": "failed",
        "kind": failure.kind,
        "arguments_hash": started["arguments_hash"],
        "duration_ms": round(seconds * 1000, 3),
        "origin": started["origin"],
        "result": failure.to_envelope(started["tool"]),
    }


def _failure(tool: str, ran: bool, why: Why) -> Failure:
    if why == "forked":
        return Failure("cancelled", f"The session was forked before {tool} answered.")
    if ran:
        message = f"The program ended while {tool} was running: it may have had effects. Look before you call it again."
        return Failure("unknown_outcome", message)
    message = f"The program ended before {tool} began, so it had no effects. Call it again if you still need it."
    return Failure("unavailable", message, data={"started": False})
