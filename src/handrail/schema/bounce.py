"""Refuse arguments with an answer the model can act on: what is wrong, where, and what would be right."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from handrail.contract.errors import BadSchema
from handrail.contract.result import Failure
from handrail.schema.example import example
from handrail.schema.validate import Problem, Validator
from handrail.schema.words import shorten, show

LONGEST: Final = 1_100
"""Characters of the message."""
LONGEST_ARGUMENTS: Final = 2_000
"""Characters of the original arguments that are kept."""
MOST_ERRORS: Final = 20
LONGEST_EXAMPLE: Final = 400


def bounce(
    tool: str,
    schema: Mapping[str, Any] | Validator,
    problems: Sequence[Problem],
    received: Any,
    *,
    note: str = "",
) -> Failure:
    """`invalid_args` with every problem, the first one's field, the original arguments and a valid example."""
    shown = _example(schema)
    first = problems[0] if problems else Problem("", "the arguments were refused", "other arguments", show(received))
    data: dict[str, Any] = {"arguments": kept(received), "errors": [_entry(item) for item in problems[:MOST_ERRORS]]}
    if shown is not None:
        data["example"] = shown
    message = _message(tool, problems or [first], shown, note)
    return Failure("invalid_args", message, field=first.path or None, expected=shorten(first.expected, 200), data=data)


def kept(received: Any) -> Any:
    """The original arguments as they came, or their beginning where they are long."""
    if isinstance(received, str):
        return shorten(received, LONGEST_ARGUMENTS)
    try:
        text = json.dumps(received, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return shorten(show(received), LONGEST_ARGUMENTS)
    return received if len(text) <= LONGEST_ARGUMENTS else shorten(text, LONGEST_ARGUMENTS)


def _example(schema: Mapping[str, Any] | Validator) -> dict[str, Any] | None:
    try:
        made = example(schema if isinstance(schema, Validator) else Validator(schema))
    except BadSchema:
        return None
    return made if made is not None and len(json.dumps(made)) <= LONGEST_EXAMPLE else None


def _entry(problem: Problem) -> dict[str, str]:
    return {
        "field": problem.path,
        "message": shorten(problem.message, 300),
        "expected": shorten(problem.expected, 200),
        "received": problem.received,
    }


def _message(tool: str, problems: Sequence[Problem], shown: dict[str, Any] | None, note: str) -> str:
    head = f"{shorten(tool, 64)} was not run: its arguments were refused."
    tail = (
        f"\nSend all of the arguments again, for example: {json.dumps(shown, ensure_ascii=False)}"
        if shown
        else ("\nCorrect this and send all of the arguments again.")
    )
    room = LONGEST - len(head) - len(tail)
    lines: list[str] = []
    for at, problem in enumerate(problems):
        line = shorten(f"\n- {problem.message}; received {problem.received}.", 400)
        if sum(map(len, lines)) + len(line) > room - 40:
            lines.append(f"\n- … and {len(problems) - at} more.")
            break
        lines.append(line)
    return shorten(head + "".join(lines) + (f"\n{note}" if note else "") + tail, LONGEST + 99)
