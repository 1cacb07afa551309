"""Record that a call started and, exactly once, how it ended."""

import hashlib
from dataclasses import asdict
from typing import Any

from handrail.contract.call import Arguments
from handrail.contract.errors import describe_error
from handrail.contract.result import Failure, Result
from handrail.schema.parse import arguments_hash, recordable
from handrail.toolkit.gate import Next, Step


async def record(step: Step, proceed: Next) -> Result:
    """The first gate, so that it sees every outcome: a result, a bug in a gate, a cancellation."""
    call, began = step.call, step.clock.now()
    if not step.arguments_hash:  # else `Session.begin` has recorded it
        start(step)
    try:
        result = await proceed(step)
        envelope = result.to_envelope(call.name)
    except Exception as error:  # noqa: BLE001 - a custom gate may have a bug; the model still gets an answer
        step.traceback = step.report(f"A gate before the tool {call.name!r}", error)
        result = Failure("execution_error", f"A gate failed before {call.name} could answer: {describe_error(error)}")
        envelope = result.to_envelope(call.name)
    except BaseException as error:
        result = cancelled(step, error)
        _ended(step, began, result, result.to_envelope(call.name))
        raise
    _ended(step, began, result, envelope)
    return result


def start(step: Step) -> None:
    """Record that a call started."""
    call = step.call
    arguments = call.arguments if isinstance(call.arguments, str) else recordable(call.arguments)
    step.arguments_hash = _hash(arguments)
    started = {
        "tool": call.name,
        "arguments": arguments,
        "arguments_hash": step.arguments_hash,
        "origin": call.origin,
    }
    if step.approved is not None:
        started["approved"] = step.approved
    step.emit("call_started", started)


def _hash(arguments: Arguments) -> str:
    """The hash of the raw text, or of a mapping as key-sorted JSON."""
    if isinstance(arguments, str):
        return hashlib.sha256(arguments.encode("utf-8", "surrogatepass")).hexdigest()
    return arguments_hash(arguments)


def cancelled(step: Step, error: BaseException | None = None) -> Failure:
    """How a call ended that was cancelled from outside."""
    who = "by an interrupt" if isinstance(error, KeyboardInterrupt) else "by its caller"
    rest = " Its thread cannot be stopped and may still be running." if step.still_running else ""
    return Failure("cancelled", f"{step.call.name} was cancelled {who}.{rest}")


def _ended(step: Step, began: float, result: Result, envelope: dict[str, Any]) -> None:
    call = step.call
    data: dict[str, Any] = {
        "tool": call.name,
        "status": "ok" if result.ok else "failed",
        "kind": None if result.ok else result.kind,
        "arguments_hash": step.arguments_hash,
        "duration_ms": round((step.clock.now() - began) * 1000, 3),
        "origin": call.origin,
        "result": envelope,
    }
    if step.repairs:
        data["repairs"] = [asdict(repair) for repair in step.repairs]
    if step.traceback:
        data["traceback"] = step.traceback
    if step.images:
        data["images"] = step.images
    if changes := step.session.memory_changes():
        data["memory"] = changes
    step.emit("call_ended", data)


async def unstored(step: Step) -> Failure | None:
    """The answer while the session cannot be stored: nobody is asked about the call. None where it can be."""
    if step.session.store_error:
        with step.clock.pause(run=False):
            await step.session.settle()
    return not_stored(step, why) if (why := step.session.store_error) else None


def not_stored(step: Step, why: str) -> Failure:
    """The answer to a call that cannot be stored, for this reason."""
    message = f"{step.tool.name} was not run: {why}. Tell the user, and try again later."
    return Failure("unavailable", message, data={"started": False})
