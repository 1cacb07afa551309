"""An Event: one entry of the transcript. Hooks, traces, progress, logs and screens all read the same events."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

EventType = Literal[
    "session_started",  # version, system, model, tools, policy, budget, workspace, sandbox, parent, forked_from
    "session_resumed",  # the same, as it is now; what was open when the program ended has ended before it
    "tools_loaded",  # tools: the names of deferred tools that the model sees from now on
    "call_started",  # tool, arguments, arguments_hash, origin; approved, where the caller gave one
    "call_repaired",  # repairs (path, rule, before, after, …), arguments as they are now: what preflight changed
    "call_waiting",  # lane, behind: a list with the id of the first call before it, count: of all of them
    "call_running",  # the body begins: only from now on may the call have effects
    "call_output",  # text: what the tool, or a job of it, shows; stream: stdout, stderr, progress; left_out; dropped
    "call_ended",  # tool, status, kind, arguments_hash, duration_ms, origin, result (the envelope), repairs, traceback,
    # and: images (where in the result, and their refs), memory (what a tool changed of what it keeps for the session)
    "call_late",  # outcome: what came of work that outlived its answer; tool, where a thread did it; traceback
    "approval_asked",  # id, tool, risk, effects, arguments, arguments_hash, text, described (head, lines, notes),
    # repairs, reason, suggested_rule, sandbox, expires_at
    "approval_settled",  # id, decision, by: terminal, web, attached, …; rule where one was remembered, arguments after
    # an edit, traceback, and if it was deferred: tool, arguments_hash
    "question_asked",  # id, question, choices: the model asks the user, and its run ends
    "question_answered",  # id, text, by: which begins the next run with the text
    "job_started",  # job: its id, pid, command: the line, or a list; its call is the one that started it
    "job_ended",  # job, exit_code, ended_by, as in Completed; where nobody knows them both are None, and error says why
    "run_started",  # model, rounds, agent: its name; a new user turn
    "user",  # text, images: the refs of its pictures; a message of the user's
    "steered",  # text, why: state, empty or no_output; what the loop tells the model, as a user's message
    "model_asked",  # try: from 1, messages: how many, estimate: of the tokens in the request
    "text",  # text: a piece of the model's answer
    "thinking",  # text: a piece of the model's reasoning
    "call_text",  # index, name, text: a piece of the arguments of a call, while the model writes them
    "retried",  # why, wait: seconds, taken_back: the seqs of the pieces that are void
    "model_answered",  # text, calls (id, name, arguments, cut), stop, model, usage, keep
    "collapsed",  # results that gave way (call, text: the line in its place, ref: the artifact with it), tokens_before
    "summarised",  # text: in the place of the first so many messages; by: model or lines, messages, usage, why
    "run_ended",  # reason, text, output: the typed one as JSON, traceback of a model's error; forked, if a fork cut it
    "warning",  # message: something that harmed nobody but should be known; traceback of a reader's error
]

EVENT_FIELDS: Final[Mapping[str, Mapping[str, type]]] = {each: {} for each in get_args(EventType)} | {
    "user": {"text": str},
    "model_answered": {"text": str, "calls": list, "stop": str, "model": str, "usage": dict, "keep": object},
    "call_started": {"tool": str, "arguments": object, "arguments_hash": str, "origin": str},
    "call_ended": {"tool": str, "result": dict},
    "approval_asked": {"id": str},
    "approval_settled": {"id": str, "decision": str},
    "question_asked": {"id": str, "question": str, "choices": list},
    "question_answered": {"id": str, "text": str, "by": str},
    "job_started": {"job": str},
    "job_ended": {"job": str},
    "tools_loaded": {"tools": list},
    "run_ended": {"reason": str, "text": str},
}
"""Data fields, by type of event, without which a stored session can be neither listed nor resumed."""

_put: Final = object.__setattr__


class _Unsealed:
    """An Event under construction: filling in a frozen object takes three times as long."""

    __slots__ = ("call_id", "data", "parent", "seq", "time", "type")


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a transcript. `seq` counts from 0 without gaps; each call has one call_started and one call_ended.

    Live output is joined: a call's first piece is a `call_output` at once, then at most 20 of them come a second, each
    with the newest 64 KiB of its stream, and the rest before `call_ended`; a background job's come after that too.
    `left_out` counts the bytes before `text` that no event shows. A transcript keeps 64 KiB of text per call: older
    `call_output` events keep their number and have `text: ""` and `dropped: N`, the bytes that they had. Events do
    not change in any other way.

    `traceback` is there if somebody raised: at most 16 KiB of text for people. No answer to the model contains it.
    `duration_ms` is what the call itself took: waiting for a person, or for its lane, does not count.

    Example:
        ```python
        def show(event: Event) -> None:
            if event.type.startswith("call_"):
                print(event.type, event.call_id)

        def add(a: int, b: int = 1) -> int:
            "Add two numbers."
            return a + b

        async with Session([add], readers=[show]) as session:
            await session.call("add", {"a": 41})
        #> call_started call_1
        #> call_running call_1
        #> call_ended call_1
        ```
    """

    seq: int
    time: float
    type: EventType
    call_id: str | None
    parent: str | None
    data: Mapping[str, Any]

    def __init__(
        self, seq: int, time: float, type: EventType, call_id: str | None, parent: str | None, data: Mapping[str, Any]
    ) -> None:
        if self.__class__ is not Event:  # a subclass has another layout
            for name, value in zip(_Unsealed.__slots__, (call_id, data, parent, seq, time, type), strict=True):
                _put(self, name, value)
            return
        made: Any = self  # each call writes three events
        _put(made, "__class__", _Unsealed)
        made.seq = seq
        made.time = time
        made.type = type
        made.call_id = call_id
        made.parent = parent
        made.data = data
        made.__class__ = Event


Reader = Callable[[Event], Awaitable[None] | None]
"""Receiver of every event, through a queue of its own. A reader that raises or blocks is dropped with a warning."""
