"""Refuse arguments with an answer the model can act on: what is wrong, where, and a valid example."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from handrail.contract.errors import BadSchema
from handrail.contract.result import Failure
from handrail.schema._example import example
from handrail.schema._nearly_json import read_nearly
from handrail.schema.describe import shorten, show
from handrail.schema.explain import Convert
from handrail.schema.navigate import ROOT
from handrail.schema.parse import NotJson, plain, too_deep
from handrail.schema.validate import Problem, Validator

MAX_MESSAGE_CHARS: Final = 1_100
"""Length of the message, in characters."""
MAX_ARGUMENTS_CHARS: Final = 2_000
"""Length of the original arguments that are repeated in `data`, in characters."""
MAX_ERRORS_COUNT: Final = 20
MAX_EXAMPLE_CHARS: Final = 2_000
MAX_EXAMPLE_IN_MESSAGE_CHARS: Final = 400
"""Length of an example that is quoted in the message, in characters; a longer one is only in `data`."""
MAX_READ_CHARS: Final = 100_000
"""Length of the longest text that is read for the example, in characters."""


def refuse(
    tool: str,
    schema: Mapping[str, Any] | Validator,
    problems: Sequence[Problem],
    received: Any,
    *,
    note: str = "",
    convert: Convert | None = None,
) -> Failure:
    """An `invalid_args` failure with every problem, the first one's field, the arguments as sent and a valid example.

    `convert` is the conversion that would come next; the example must pass it too.
    """
    example_arguments = _example(schema, problems, received, convert)
    first = problems[0] if problems else Problem("", "the arguments were refused", "other arguments", show(received))
    data: dict[str, Any] = {
        "arguments": kept(received),
        "errors": [_entry(item) for item in problems[:MAX_ERRORS_COUNT]],
    }
    if example_arguments is not None:
        data["example"] = example_arguments
    message = _message(tool, problems or [first], example_arguments, note)
    return Failure("invalid_args", message, field=first.path or None, expected=shorten(first.expected, 200), data=data)


def kept(received: Any) -> Any:
    """The arguments as sent, or their beginning if they are long."""
    if isinstance(received, str):
        return shorten(received, MAX_ARGUMENTS_CHARS)
    try:
        text = json.dumps(received, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return shorten(show(received), MAX_ARGUMENTS_CHARS)
    fits = len(text) <= MAX_ARGUMENTS_CHARS and not too_deep(received)  # who reads it next may have less of the stack
    return received if fits else shorten(text, MAX_ARGUMENTS_CHARS)


def _example(
    schema: Mapping[str, Any] | Validator, problems: Sequence[Problem], received: Any, convert: Convert | None
) -> dict[str, Any] | None:
    try:
        validator = schema if isinstance(schema, Validator) else Validator(schema)
    except BadSchema:
        return None
    wrong = frozenset(problem.path for problem in problems)
    sent = _sent(received, validator)
    if validator.overloaded_by(sent):
        sent = None
    for most in (MAX_EXAMPLE_IN_MESSAGE_CHARS, MAX_EXAMPLE_CHARS):
        made = example(validator, sent, wrong, convert=convert, most=most)
        if made is not None:
            return made
    return None


def _sent(received: Any, validator: Validator) -> Any:
    """The object that was sent, if it can be read, without an undeclared wrapper."""
    if isinstance(received, str):
        if len(received) > MAX_READ_CHARS:
            return None
        try:
            received, _ = read_nearly(received)
        except NotJson:
            return None
    if isinstance(received, list) and len(received) == 1:
        received = received[0]
    if not isinstance(received, dict) or plain(received) is not None:
        return None
    spec = validator.spec(ROOT)
    declared = spec.properties.keys() | spec.aliases.keys()
    inner: Any = next(iter(received.values()), None)
    wrapped = len(received) == 1 and isinstance(inner, dict) and not declared & received.keys()
    return inner if wrapped and declared & inner.keys() else received


def _entry(problem: Problem) -> dict[str, str]:
    return {
        "field": problem.path,
        "message": shorten(problem.message, 300),
        "expected": shorten(problem.expected, 200),
        "received": problem.received,
    }


def _message(tool: str, problems: Sequence[Problem], example_arguments: dict[str, Any] | None, note: str) -> str:
    head = f"{shorten(tool, 64)} was not run: its arguments were refused."
    tail = f"\n{_next(example_arguments)}"
    room = MAX_MESSAGE_CHARS - len(head) - len(tail)
    lines: list[str] = []
    for at, problem in enumerate(problems):
        line = shorten(f"\n- {problem.message}; received {problem.received}.", 400)
        if sum(map(len, lines)) + len(line) > room - 40:
            lines.append(f"\n- … and {len(problems) - at} more.")
            break
        lines.append(line)
    return shorten(head + "".join(lines) + (f"\n{note}" if note else "") + tail, MAX_MESSAGE_CHARS + 99)


def _next(example_arguments: dict[str, Any] | None) -> str:
    """The next step for the model, with the example if there is one."""
    if example_arguments is None:
        return "No example could be made from the schema. Correct this and send all of the arguments again."
    text = json.dumps(example_arguments, ensure_ascii=False)
    if len(text) <= MAX_EXAMPLE_IN_MESSAGE_CHARS:
        return f"Send all of the arguments again, for example: {text}"
    return "Send all of the arguments again, like those in `data.example`."
