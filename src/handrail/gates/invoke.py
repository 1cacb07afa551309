"""Call the tool's body, and turn its value or exception into a Result. Nothing else calls a body."""

import errno
import json
import logging
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from types import CoroutineType
from typing import Any, Final, TypeVar

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from handrail.aio import call_on, finish, in_cancelled_scope, is_cancelled, running_loop, this_task
from handrail.contract.driver import Driver
from handrail.contract.errors import BadEnvelope, ToolFailed, Unavailable, describe_error
from handrail.contract.result import (
    FAILURE_KINDS,
    Failure,
    FailureKind,
    Result,
    Success,
    read_envelope,
    result_from,
)
from handrail.contract.wire import sendable, to_wire
from handrail.gates._plain import (
    LONE_SURROGATE,
    NOTED,
    SCALARS,
    NotPlain,
    NotText,
    Odd,
    TooLong,
    all_notes,
    as_builtin,
    plain,
    warnings_of,
    with_artifacts,
)
from handrail.gates._unread import MAX_MESSAGE_CHARS, RETURNABLE, Unread, broken_schema, read_in_turns
from handrail.gates.record import not_stored
from handrail.misuse import kind_of
from handrail.threads import Work
from handrail.toolkit.context import end_commands, outlive, tell_to_stop
from handrail.toolkit.gate import Next, Step
from handrail.toolkit.isolated import run_isolated
from handrail.toolkit.tool import Tool

Told = TypeVar("Told", Failure, Failure | Unread)
PLAIN: Final = frozenset({str, int, float, bool, type(None), dict})
"""Types of values that are no value of the sandbox."""
NOT_AN_ENVELOPE: Final = (
    '{} returned {{"ok": false, …}} as a plain value, so this counts as a success; read what it says. '
    'If it means a failure, its author writes returns="envelope".'
)
KIND_BY_ERRNO: Final[dict[int, FailureKind]] = {
    errno.ENOENT: "not_found",
    errno.EISDIR: "invalid_args",
    errno.ENOTDIR: "invalid_args",
    errno.ELOOP: "invalid_args",
    errno.EPERM: "rejected",
    errno.EACCES: "rejected",
    errno.EROFS: "rejected",
    errno.EXDEV: "rejected",
}
KIND_BY_TYPE: Final[dict[type[OSError], FailureKind]] = {
    FileNotFoundError: "not_found",
    IsADirectoryError: "invalid_args",
    NotADirectoryError: "invalid_args",
    PermissionError: "rejected",
}
"""The failure kind of an OSError, by number or else by type; any other is an execution_error."""


async def invoke(step: Step, proceed: Next) -> Result:
    """The last gate. It returns a Result, or raises the caller's cancellation."""
    if in_cancelled_scope():  # cheaper than a checkpoint
        await checkpoint_if_cancelled()
    tool = step.tool
    if tool.runs != "process" and not _begins(step) and (refused := await _begin_later(step)):
        return refused
    if tool.convert is None:  # the body may change what it is given, and the breaker compares what was asked
        step.converted = dict(step.converted)
    task = this_task()
    before = task.cancelling()
    answer: Result | Unread
    try:
        value = tool.body(step.context, step.converted) if tool.runs == "async" else await _elsewhere(step)
        value = await value if type(value) is CoroutineType or isawaitable(value) else value
        try:
            answer = _result_of(step, value)
        except NotText:
            answer = _result_of(step, await with_artifacts(step.context.artifacts, value))
    except Exception as error:  # noqa: BLE001 - a body may raise anything; the model gets the error
        answer = _reported(step, error, _failure_of(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if _is_for_caller(step, error):
            raise
        answer = _reported(step, error, _bug(error))
    finally:
        await end_commands(step.context)
    if task.cancelling() > before or (step.scope is not None and step.scope.cancel_called):
        await checkpoint_if_cancelled()  # the call stays cancelled even if the body swallowed it
        raise anyio.get_cancelled_exc_class()
    result = await _read(step, answer) if isinstance(answer, Unread) else answer
    return result if result.ok else _sendable(result)


async def _read(step: Step, answer: Unread) -> Result:
    try:
        try:
            return await read_in_turns(step, answer)
        except NotText:
            return await read_in_turns(
                step, replace(answer, value=await with_artifacts(step.context.artifacts, answer.value))
            )
    except Exception as error:  # noqa: BLE001 - a part of the value may raise anything when it is read
        failure = _failure_of(error)
        return _bug(error) if isinstance(failure, Unread) else _reported(step, error, failure)


def _begins(step: Step) -> bool:
    """Record that the body begins. Returns whether it may: not before that is stored."""
    call = step.call
    return step.tool.name != call.name or not step.session.begin_body(call.id, call.parent)  # an unknown tool has none


async def _begin_later(step: Step) -> Failure | None:
    """Wait for a store that others are writing. Returns the answer where it still cannot be written."""
    with step.clock.pause(run=False):
        why = await step.session.begin_when_free(step.call.id, step.call.parent)
    return not_stored(step, why) if why else None


async def _elsewhere(step: Step) -> Any:
    tool = step.tool
    if tool.runs == "thread":
        return await _in_thread(step)
    return await run_isolated(tool.function or tool.body, step.converted, partial(_guarded, step))


def _is_for_caller(step: Step, error: BaseException) -> bool:
    """Whether it ends the call itself: its task is cancelled, or this coroutine is being closed."""
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return is_cancelled()
    return isinstance(error, GeneratorExit) and step.tool.runs == "async"


def _failure_of(error: Exception) -> Failure | Unread:
    if isinstance(error, ToolFailed):
        return _with_plain_data(error.failure)
    if isinstance(error, Unavailable):
        return Failure("unavailable", str(error), retryable=error.retryable)
    return _os_failure(error) if isinstance(error, OSError) else _bug(error)


def _reported(step: Step, error: BaseException, failure: Told) -> Told:
    """Log the error and keep its traceback for the event. ToolFailed is an answer unless it has a cause."""
    if not isinstance(error, ToolFailed) or error.__cause__ is not None:
        level = logging.ERROR if failure.kind == "execution_error" else logging.WARNING
        step.traceback = step.report(f"Tool {step.tool.name}", error, level)
    return failure


async def _guarded(step: Step) -> Driver:
    """The guard of an isolated body, which begins now."""
    guard = await step.shared.open_guard()
    if not _begins(step) and (refused := await _begin_later(step)):
        await finish(guard.close)
        raise ToolFailed(refused)
    return guard


async def _in_thread(step: Step) -> Any:
    """A cancelled caller leaves at once; if the body ends later, a `call_late` event says so."""
    tool, context, arguments = step.tool, step.context, step.converted

    def late(work: Work) -> None:
        outlive(context, False)
        data = {"tool": tool.name, "outcome": "ended"}
        if work.error is not None:
            data["outcome"] = f"raised {type(work.error).__name__}"
            data["traceback"] = step.report(f"Tool {tool.name}, after its call was answered,", work.error)
        step.emit("call_late", data)
        if step.slot is not None:
            call_on(loop, step.slot.let_go)

    loop = running_loop()
    work = Work(lambda: tool.body(context, arguments), late)
    try:
        return await work.wait()
    except BaseException:
        step.still_running = work.left_running
        outlive(context, step.still_running)
        if step.still_running and step.slot is not None:
            step.slot.hold()
        tell_to_stop(context, f"{tool.name} was cancelled or timed out. Stop now.")
        raise


def _result_of(step: Step, value: Any) -> Result | Unread:
    """The Result of what a body returned. Raises NotText for bytes that must be stored."""
    tool = step.tool
    if isinstance(value, Failure):
        return _with_plain_data(value)
    warnings: tuple[str, ...] = ()
    if isinstance(value, Success):
        warnings = (value.warnings,) if isinstance(value.warnings, str) else value.warnings
        value = value.value
    if tool.returns == "envelope" and not isinstance(value, Success):
        value = _from_envelope(tool, value)
        if isinstance(value, Failure):
            return _with_plain_data(value)
        warnings, value = value.warnings, value.value
    return _success_of(step, value, warnings)


def _success_of(step: Step, value: Any, warnings: tuple[str, ...]) -> Result | Unread:
    tool, returned, kind = step.tool, value, type(value)
    odd = None if kind in SCALARS else Odd()
    if kind not in PLAIN:
        value, notes = as_builtin(value, step.context.caps, typed=tool.output is not None)
        warnings += notes
    try:
        value = plain(value, odd=odd)
    except TooLong:
        return Unread(value, warnings)
    except NotPlain as error:
        what = f"{tool.name} returned {kind_of(value)} that has no JSON form: {error}. {RETURNABLE}"
        return Failure("execution_error", what)
    if kind in NOTED:
        warnings += _notes_on(tool, returned)
    if odd:
        warnings += warnings_of(odd)
    if tool.output_checks is not None and (problems := tool.output_checks.problems(to_wire(value))):
        return Failure("execution_error", broken_schema(tool, problems[0]), warnings=warnings)
    return Success(value, warnings)


def _notes_on(tool: Tool, value: Any) -> tuple[str, ...]:
    """The sandbox's notes on commands that a body returned, and one on an object that looks like an envelope."""
    mistaken = type(value) is dict and value.get("ok") is False and tool.returns == "value"
    return (*all_notes(value), *([NOT_AN_ENVELOPE.format(tool.name)] if mistaken else []))


def _from_envelope(tool: Tool, value: Any) -> Result:
    """Read an envelope that a body returned; those of other systems lack a kind, or the key `result`."""
    try:
        envelope = json.loads(value) if isinstance(value, str) and value.lstrip()[:1] == "{" else value
        if isinstance(envelope, str):
            return read_envelope(envelope)
        envelope = dict(envelope)
        if envelope.get("ok") is True and "result" not in envelope:
            rest = {key: item for key, item in envelope.items() if key not in ("ok", "tool", "warnings")}
            envelope["result"] = rest
        if envelope.get("ok") is False and envelope.get("kind") not in FAILURE_KINDS:
            envelope["message"] = str(envelope.get("message") or envelope.get("error") or "It failed.")
            rest = {key: item for key, item in envelope.items() if key not in ("ok", "tool", "warnings", "message")}
            envelope |= {"kind": "execution_error", "data": rest}
        return result_from(envelope)
    except (BadEnvelope, TypeError, ValueError, RecursionError) as error:
        write = 'it returns {"ok": true, "result": …} or {"ok": false, "kind": …, "message": …}'
        return Failure(
            "execution_error", f"{tool.name} did not return an envelope: {error}; {write}."[:MAX_MESSAGE_CHARS]
        )


def _sendable(failure: Failure) -> Failure:
    """Replace lone surrogates in a failure's message; paths may contain them."""
    if (message := sendable(failure.message)) is failure.message:
        return failure
    return replace(failure, message=message, warnings=(*failure.warnings, f"the message {LONE_SURROGATE}"))


def _with_plain_data(failure: Failure) -> Failure | Unread:
    """The body's own Failure, with its data as plain JSON."""
    if not failure.data:
        return failure
    odd = Odd()
    try:
        data = plain(failure.data, odd=odd)
        notes = (note for note in all_notes(failure.data) if note not in failure.warnings)
        return replace(failure, data=data, warnings=(*failure.warnings, *notes, *warnings_of(odd, "the data")))
    except TooLong:
        return Unread(failure.data, failure.warnings, failure)
    except (NotPlain, NotText) as error:
        note = f"The data of this failure has no JSON form and was left out: {error}"
        return replace(failure, data={}, warnings=(*failure.warnings, note))


def _bug(error: BaseException) -> Failure:
    return Failure("execution_error", describe_error(error)[:MAX_MESSAGE_CHARS])


def _os_failure(error: OSError) -> Failure:
    by_type = (kind for type_, kind in KIND_BY_TYPE.items() if isinstance(error, type_))
    kind = KIND_BY_ERRNO.get(error.errno or 0) or next(by_type, None)
    if kind is None:
        return _bug(error)
    path = error.filename if isinstance(error.filename, str) else None
    message = (error.strerror or describe_error(error)) + (f": {path}" if path else "")
    return Failure(kind, message[:MAX_MESSAGE_CHARS], field="path" if kind == "invalid_args" and path else None)
