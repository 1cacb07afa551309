"""A tool's answer that is too long to be read at once, and how it becomes a Result."""

import re
from dataclasses import dataclass, replace
from typing import Any, Final

from handrail.artifacts.store import ArtifactTooLarge
from handrail.contract.result import Failure, Result, Success
from handrail.contract.wire import to_wire
from handrail.gates._json_texts import Check, HasPicture
from handrail.gates._long import LongValue
from handrail.gates._overflow import TOO_LARGE, OverflowStore
from handrail.gates._plain import NotPlain, Odd, plain, warnings_of
from handrail.misuse import kind_of
from handrail.schema.validate import Problem
from handrail.toolkit.gate import Step
from handrail.toolkit.tool import Tool

MAX_MESSAGE_CHARS: Final = 2_000
RETURNABLE: Final = "A tool returns JSON data, a dataclass, a model, an Image or an ArtifactRef."
BY_ITEM: Final = frozenset({"type", "items", "title", "description", "examples", "$defs", "$schema"})
"""Keywords of a schema by which a list fits if each part of it does."""
_FIRST_ITEM: Final = re.compile(r"^\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Unread:
    """The value that a body returned, or the data of its Failure."""

    value: Any
    warnings: tuple[str, ...]
    failure: Failure | None = None

    @property
    def kind(self) -> str | None:
        """The kind of the Failure."""
        return None if self.failure is None else self.failure.kind


class _Broken(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem


async def read_in_turns(step: Step, answer: Unread) -> Result:
    """The Result; others run while it is read. The clock of the call is paused: its body has answered in time."""
    with step.clock.pause(run=False):
        return await (_success(step, answer) if answer.failure is None else _failure(step, answer.failure))


async def _success(step: Step, answer: Unread) -> Result:
    tool, overflow = step.tool, OverflowStore(step.context.artifacts)
    by_item = tool.output is not None and tool.output.keys() <= BY_ITEM and isinstance(answer.value, list | tuple)
    check = _check_of(tool) if by_item else None
    long = LongValue(overflow, step.context.caps, check, refuses_pictures=step.by_script)
    try:
        if step.by_script:
            made = await _by_reference(long, answer.value, f"{tool.name}.value")
        else:
            made = await long.shortened(answer.value)
        if tool.output_checks is not None and not by_item:
            _check_whole(tool, answer.value)
    except NotPlain as error:
        what = f"{tool.name} returned {kind_of(answer.value)} that has no JSON form: {error}. {RETURNABLE}"
        return Failure("execution_error", what)
    except _Broken as error:
        return Failure("execution_error", broken_schema(tool, error.problem), warnings=answer.warnings)
    except ArtifactTooLarge:
        return Failure("execution_error", TOO_LARGE)
    notes = (*answer.warnings, *long.warnings, *warnings_of(long.odd), *overflow.notes)
    return Success(made, notes)


async def _by_reference(long: LongValue, value: Any, name: str) -> Any:
    try:
        return await long.by_reference(value, name)
    except HasPicture:  # a picture is given to the script beside the rest, which needs all of it
        return plain(value)


async def _failure(step: Step, failure: Failure) -> Failure:
    overflow = OverflowStore(step.context.artifacts)
    long = LongValue(overflow, step.shared.caps.fitting(step.shared.tokens_left, step.tool.output_cap))
    try:
        made = await long.shortened(failure.data)
    except (NotPlain, ArtifactTooLarge) as error:
        note = f"The data of this failure cannot be kept and was left out: {error}"
        return replace(failure, data={}, warnings=(*failure.warnings, note))
    notes = (*failure.warnings, *warnings_of(long.odd, "the data"), *overflow.notes)
    return replace(failure, data=made if isinstance(made, dict) else {"text": made}, warnings=notes)


def broken_schema(tool: Tool, problem: Problem) -> str:
    """The message for an answer that does not fit the tool's own schema."""
    where = f" at {problem.path}" if problem.path else ""
    return f"{tool.name} broke its own output schema{where}: {problem.message}"[:MAX_MESSAGE_CHARS]


def _check_of(tool: Tool) -> Check:
    """Checks a list by its schema, a batch at a time."""

    def check(batch: list[Any], at: int) -> None:
        if tool.output_checks is not None and (problems := tool.output_checks.problems(batch)):
            path = _FIRST_ITEM.sub(lambda found: f"[{int(found[1]) + at}]", problems[0].path)
            raise _Broken(replace(problems[0], path=path))

    return check


def _check_whole(tool: Tool, value: Any) -> None:
    """Check a value that only fits its schema as a whole. One that is JSON already is not copied for it."""
    if tool.output_checks is None:
        return
    try:
        if tool.output_checks.is_valid(value):
            return
    except (TypeError, ValueError):
        pass  # it holds other types, which the schema describes as they are written
    everything = Odd()
    everything.left = 1 << 62
    if problems := tool.output_checks.problems(to_wire(plain(value, odd=everything))):
        raise _Broken(problems[0])
