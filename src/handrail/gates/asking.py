"""Ask a person about a call, for a bounded time, while every clock stands; an answer counts for what was shown."""

from dataclasses import replace
from time import time
from typing import Any, Final, get_args, get_type_hints

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from handrail.contract.approval import ApprovalRequest, Approver, Decision
from handrail.contract.result import Failure, to_wire
from handrail.gates.request import places_of, request_for, shown
from handrail.policy.approval import visible
from handrail.policy.judge import DOUBT, Verdict, doubtful, judge
from handrail.policy.rule import Rule
from handrail.schema.mend import mend
from handrail.schema.parse import arguments_hash
from handrail.toolkit.cancelled import cancels, is_cancelled
from handrail.toolkit.gate import Step

WAIT: Final = 300.0
"""Seconds to wait for an answer, unless the approver carries its own `.wait`."""
MOST_EDITS: Final = 5
VERDICTS: Final = frozenset(get_args(get_type_hints(Decision)["verdict"]))


async def ask(step: Step, verdict: Verdict, approver: Approver) -> Failure | None:
    """None when the call may run, perhaps with other arguments; else what to answer instead."""
    for _ in range(MOST_EDITS):
        wait = getattr(approver, "wait", WAIT)
        request = await request_for(step, verdict.reason, wait)
        step.emit("approval_asked", shown(request))
        decision = await _wait(step, request, approver, wait)
        if isinstance(decision, Failure):
            return decision
        if arguments_hash(step.arguments) != request.arguments_hash:
            return Failure("rejected", f"{step.tool.name} was not run: its arguments changed while a person was asked.")
        if decision.verdict != "edit":
            return _apply(step, request, decision)
        edited = await _edit(step, request, decision, verdict)
        if not isinstance(edited, Verdict):
            return edited
        verdict = edited
    return Failure("rejected", f"{step.tool.name} was not run: it was edited {MOST_EDITS} times and still asks.")


async def _wait(step: Step, request: ApprovalRequest, approver: Approver, wait: float) -> Decision | Failure:
    """The answer, or why there is none. Whatever happens, the request is settled in the transcript."""
    settled: dict[str, Any] = {"id": request.id, "decision": "cancelled"}
    before = cancels()
    try:
        with step.clock.pause(), anyio.move_on_after(wait) as scope:
            step.watch(scope)
            decision = await approver(request)
        await checkpoint_if_cancelled()
        if cancels() > before and not scope.cancel_called:  # an approver that swallowed it has not undone it
            raise anyio.get_cancelled_exc_class()
        late = scope.cancel_called or time() > request.expires_at
        answer = _late(step) if late else _checked(step, decision)
        settled |= _settled(request, answer)
        return answer
    except Exception as error:  # noqa: BLE001 - an approver that fails has not approved
        settled["decision"] = "failed"
        return _failed(step, error)
    except anyio.get_cancelled_exc_class() as error:
        if is_cancelled():
            raise
        settled["decision"] = "failed"
        return _failed(step, error)
    finally:
        step.scope = None
        step.emit("approval_settled", settled)


def _settled(request: ApprovalRequest, answer: Decision | Failure) -> dict[str, Any]:
    if isinstance(answer, Failure):
        return {"decision": answer.kind}
    if answer.verdict == "remember" and request.suggested_rule:
        return {"decision": "remember", "rule": request.suggested_rule}
    if answer.verdict == "edit":
        return {"decision": "edit", "arguments": to_wire(answer.arguments)}
    return {"decision": answer.verdict}


def _late(step: Step) -> Failure:
    name = step.tool.name
    if step.terminated:
        return Failure("cancelled", f"{name} was ended by the user.", data={"killed_by": "user"})
    direct = f" Call {name} directly, outside the script, to ask again." if step.call.origin == "script" else ""
    return Failure("approval_timeout", f"{name} was not run: nobody answered in time whether it may run.{direct}")


def _checked(step: Step, decision: object) -> Decision | Failure:
    if isinstance(decision, Decision) and decision.verdict in VERDICTS:
        return decision
    return Failure("rejected", f"{step.tool.name} was not run: the approver answered with no Decision.")


def _failed(step: Step, error: BaseException) -> Failure:
    return Failure("rejected", f"{step.tool.name} was not run: asking a person failed ({type(error).__name__}).")


def _apply(step: Step, request: ApprovalRequest, decision: Decision) -> Failure | None:
    name = step.tool.name
    if decision.verdict == "remember" and request.suggested_rule:
        step.rules.remembered.append(Rule(request.suggested_rule))
    if decision.verdict == "deny":
        return Failure(
            "user_denied", f"The user did not allow {name}" + (f": {decision.message}" if decision.message else ".")
        )
    if decision.verdict == "skip":
        return Failure("user_denied", f"The user skipped {name}. Go on without it.")
    return None


async def _edit(step: Step, request: ApprovalRequest, decision: Decision, was: Verdict) -> Verdict | Failure | None:
    """The edited arguments pass preflight and the policy again. Who edits them has approved them as they are; what
    needs approval for another reason, or was repaired in a way that changed it, is asked about again."""
    tool, rules = step.tool, step.rules
    given = to_wire(decision.arguments if decision.arguments is not None else {})
    mended = mend(
        given, tool.checks, own=tool.own, convert=tool.convert, tool=tool.name, artifact=step.context.artifacts.has
    )
    if isinstance(mended, Failure):
        return replace(mended, message=f"The user changed the arguments, and they do not fit: {mended.message}")
    if arguments_hash(mended.arguments) == request.arguments_hash:
        return None
    step.arguments, step.converted = mended.arguments, mended.converted
    step.repairs = mended.repairs
    said = f"The user changed the arguments to {visible(str(given))[:500]} before allowing the call."
    step.warnings = (said, *mended.warnings)
    report = rules.sandbox.report if rules.sandbox is not None else None
    verdict = await judge(rules.policy, rules.remembered, tool, step.arguments, places_of(step), report)
    if verdict.action == "deny":
        return Failure("rejected", f"{tool.name} was not run: the user changed its arguments, and {verdict.reason}.")
    if doubtful(tool, step.repairs):
        return DOUBT
    return None if verdict.action == "allow" or verdict.reason == was.reason else verdict
