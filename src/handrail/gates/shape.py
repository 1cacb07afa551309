"""Keep every answer to a size the model can read, and say what was left out."""

import json
from dataclasses import replace
from typing import Any, Final

from handrail.contract.result import Failure, Result, Success, to_wire
from handrail.toolkit.gate import Next, Step

CAP: Final = 100_000
"""Characters of an answer, unless the tool sets its own."""
HEAD: Final = 0.4
"""The part of the cap that shows the beginning; the rest shows the end."""
SMALL: Final = frozenset({bool, int, float, type(None)})


async def shape(step: Step, proceed: Next) -> Result:
    result = await proceed(step)
    cap = step.tool.output_cap or CAP
    shaped = _success(result, cap) if result.ok else _failure(result, cap)
    return replace(shaped, warnings=(*shaped.warnings, *step.warnings)) if step.warnings else shaped


def cut(text: str, cap: int) -> str:
    """At most about `cap` characters of `text`: its head, its end, and between them how much is missing."""
    if len(text) <= cap:
        return text
    head = int(cap * HEAD)
    tail = cap - head
    left_out = len(text) - cap
    return f"{text[:head]}\n[… {left_out:,} of {len(text):,} characters left out]\n{text[len(text) - tail :]}"


def _success(result: Success, cap: int) -> Result:
    value = result.value
    if type(value) in SMALL:
        return result
    if not isinstance(value, str):
        try:
            text = json.dumps(to_wire(value), ensure_ascii=False)
        except ValueError as error:
            return Failure("execution_error", f"The tool's answer cannot be written as JSON: {error}")
        if len(text) <= cap:
            return result
        value = text
    if len(value) <= cap:
        return result
    note = f"The answer was cut from {len(value):,} to {cap:,} characters; ask for a smaller part."
    return Success(cut(value, cap), (*result.warnings, note))


def _failure(failure: Failure, cap: int) -> Failure:
    if len(failure.message) > cap:
        failure = _with(failure, message=cut(failure.message, cap))
    if failure.data and len(text := json.dumps(to_wire(failure.data), ensure_ascii=False, default=str)) > cap:
        failure = _with(failure, data={"text": cut(text, cap)})
    return failure


def _with(failure: Failure, *, message: str | None = None, data: dict[str, Any] | None = None) -> Failure:
    return Failure(
        failure.kind,
        failure.message if message is None else message,
        field=failure.field,
        expected=failure.expected,
        data=failure.data if data is None else data,
        warnings=failure.warnings,
        retryable=failure.retryable,
    )
