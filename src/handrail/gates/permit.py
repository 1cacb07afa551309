"""Run a call only if the policy or a person allows it."""

from dataclasses import replace
from time import time
from typing import Any, Final, get_args

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from handrail.aio import cancels, is_cancelled
from handrail.contract.approval import ApprovalRequest, Approver, Decision, Risk
from handrail.contract.errors import Unavailable
from handrail.contract.result import Failure, Result
from handrail.contract.wire import to_wire
from handrail.gates.record import unstored
from handrail.misuse import shown
from handrail.policy.approval import event_data, request_for, visible
from handrail.policy.approvers import ask, wait_of
from handrail.policy.described import described
from handrail.policy.judge import ALLOWED, DOUBT, Verdict, by_mode, doubtful, judge
from handrail.policy.rule import Rule
from handrail.schema.parse import arguments_hash
from handrail.schema.prepare import prepare
from handrail.toolkit.context import session_of
from handrail.toolkit.gate import Next, SessionState, Step
from handrail.toolkit.hosted import HostedTool, refusal
from handrail.toolkit.tool import Tool

MAX_EDITS: Final = 5
DEFERRED_FIELDS: Final = ("id", "tool", "arguments", "arguments_hash", "text", "reason")
"""The fields of a request that the answer to a deferred call has."""


class Approvals:
    """The answers of people in a session and its tasks, as far as later calls depend on them."""

    __slots__ = ("covered", "remembered", "used")

    def __init__(self) -> None:
        self.remembered: list[Rule] = []
        """Rules that a person accepted for the rest of the session."""
        self.used: set[tuple[str, str]] = set()
        """Tools and hashes of arguments that were let through because a person had approved them before the call."""
        self.covered: dict[Step | None, frozenset[str]] = {}
        """Tools that an approval covers, by running script."""


def approvals_of(shared: SessionState) -> Approvals:
    """The approvals of a session."""
    known: Approvals | None = shared.kept.get(Approvals)
    if known is None:
        known = shared.kept[Approvals] = Approvals()
    return known


async def permit(step: Step, proceed: Next) -> Result:
    tool, shared = step.tool, step.shared
    if isinstance(tool, HostedTool) or step.call.origin not in tool.callable_from:
        return _not_for(step)
    if tool.needs and (lacks := shared.lacks(tool)):  # a tool added after the session was created
        return Failure("unavailable", f"{lacks}. Go on without it.", data={"reason": lacks}, retryable=False)
    approvals = shared.kept.get(Approvals) or approvals_of(shared)  # the function alone would be a call more
    if (rules := shared.rules_about(tool)) or approvals.remembered:
        verdict = await judge(shared.policy.mode, rules, tool, step.arguments, shared.sandbox, approvals.remembered)
    else:
        verdict = by_mode(shared.policy.mode, tool, step.arguments, shared.sandbox)
    if verdict.action == "ask" and tool.name in approvals.covered.get(step.parent, ()):
        verdict = ALLOWED  # a person has approved the script, and saw that it calls this tool
    if step.repairs and verdict.action != "deny" and doubtful(tool, step.repairs):
        verdict = DOUBT
    behaviour = tool.behaviour
    if behaviour.covers is not None and shared.policy.scripts == "whole" and verdict.action != "deny":
        return await _whole(step, _naming_tools(step, verdict), proceed)
    change = None if behaviour.changed is None or verdict.action == "deny" else behaviour.changed()
    if change is not None:
        verdict = Verdict("ask", change.reason)
    if verdict.action != "allow" and (refused := await _refuse_or_ask(step, verdict)) is not None:
        return refused
    if change is not None:
        change.accept()
    return await proceed(step)


def _not_for(step: Step) -> Failure:
    """The answer to a caller who may never call this tool."""
    tool = step.tool
    if isinstance(tool, HostedTool):
        return Failure("rejected", refusal(tool.name))
    allowed = ", ".join(sorted(tool.callable_from))
    return Failure("rejected", f"{tool.name} cannot be called from {step.call.origin}, only from {allowed}.")


async def _whole(step: Step, verdict: Verdict, proceed: Next) -> Result:
    """Ask once for a script and for the tools that it names; a critical one still asks by itself."""
    covered = approvals_of(step.shared).covered
    if verdict.action != "allow" and (refused := await _refuse_or_ask(step, verdict)) is not None:
        return refused
    if verdict.action != "allow":
        covered[step] = frozenset(tool.name for tool in _asking(step) if tool.risk != "critical")
    try:
        return await proceed(step)
    finally:
        covered.pop(step, None)


def _naming_tools(step: Step, verdict: Verdict) -> Verdict:
    """The verdict on a whole script: it asks if a tool that the script names does."""
    asks = () if verdict is DOUBT else _asking(step)
    if not asks:
        return verdict
    riskiest = max((tool.risk for tool in asks), key=get_args(Risk).index)
    names = ", ".join(tool.name for tool in asks)
    return Verdict("ask", f"it calls {names}; the highest risk of these is {riskiest}")


def _asking(step: Step) -> list[Tool]:
    """The tools that the script names and that may ask, sorted by name."""
    shared, tools = step.shared, session_of(step.context).toolbox.all()
    covers = step.tool.behaviour.covers
    named = () if covers is None else covers(step.arguments, tools)
    return [
        tool
        for tool in tools
        if tool.name in named
        and (shared.rules_about(tool).ask or by_mode(shared.policy.mode, tool, {}, shared.sandbox).action == "ask")
    ]


async def _refuse_or_ask(step: Step, verdict: Verdict) -> Failure | None:
    """None when a person approves."""
    if verdict.action == "deny":
        message = f"{step.tool.name} was not run: {verdict.reason}. Go on without it, or ask the user."
        return Failure("rejected", message, data={"reason": verdict.reason})
    if step.approved is not None and _was_approved(step, step.approved):
        return None
    if step.approver is None or (verdict is DOUBT and step.shared.policy.mode == "open"):
        return _unasked(step, verdict)
    return await _ask(step, verdict, step.approver)


def _was_approved(step: Step, approved: str) -> bool:
    """Whether a person approved exactly these arguments before the call. It counts once."""
    given, used = (step.tool.name, approved), approvals_of(step.shared).used
    if arguments_hash(step.arguments) != approved or given in used:
        return False
    used.add(given)
    return True


def _unasked(step: Step, verdict: Verdict) -> Failure:
    """The answer to a call that needs approval where nobody can be asked."""
    if verdict is DOUBT:
        return _bounce(step)
    return Failure(
        "rejected",
        f"{step.tool.name} was not run: it needs approval ({verdict.reason}), and this session has no approver. "
        "Go on without it, or tell the user what you would have done.",
        data={"needs_approval": verdict.reason, "reason": f"it needs approval: {verdict.reason}"},
    )


def _bounce(step: Step) -> Failure:
    repairs = doubtful(step.tool, step.repairs)
    changes = "; ".join(f"{repair.path}: {repair.before!r} to {repair.after!r}" for repair in repairs)[:800]
    return Failure(
        "invalid_args",
        f"{step.tool.name} was not run: repairing its arguments would change what they mean ({changes}). "
        "Send them again exactly as you mean them.",
        field=repairs[0].path,
        data={"arguments": to_wire(step.call.arguments)},
    )


async def _ask(step: Step, verdict: Verdict, approver: Approver) -> Failure | None:
    """None if the call may run, perhaps with edited arguments; otherwise its Failure."""
    for _ in range(MAX_EDITS):
        wait = wait_of(approver)
        request = await request_for(
            step.call.id, step.tool, step.arguments,
            repairs=step.repairs, sandbox=step.shared.sandbox, reason=verdict.reason, wait=wait,
        )  # fmt: skip
        told = (await described(request, step.shared.sandbox)).as_data()
        step.emit("approval_asked", {**event_data(request), "described": told})
        if (refused := await unstored(step)) is not None:  # nobody is shown what the store does not have
            step.emit("approval_settled", {"id": request.id, "decision": "unavailable"})
            return refused
        try:
            decision = await _decision(step, request, approver, wait)
        except Unavailable:
            return _unasked(step, verdict)
        if isinstance(decision, Failure):
            return decision
        if arguments_hash(step.arguments) != request.arguments_hash:
            return Failure("rejected", f"{step.tool.name} was not run: its arguments changed during approval.")
        if decision.verdict != "edit":
            return _apply(step, request, decision)
        edited = await _edit(step, request, decision, verdict)
        if not isinstance(edited, Verdict):
            return edited
        verdict = edited
    return Failure(
        "rejected", f"{step.tool.name} was not run: it was edited {MAX_EDITS} times and still needs approval."
    )


async def _decision(step: Step, request: ApprovalRequest, approver: Approver, wait: float) -> Decision | Failure:
    """Wait for the answer while the clocks are paused. The transcript records how it ends.

    Raises Unavailable if the approver does.
    """
    settled: dict[str, Any] = {"id": request.id, "decision": "cancelled"}
    before = cancels()
    try:
        with step.clock.pause(), anyio.move_on_after(wait) as scope:
            step.watch(scope)
            decision = await ask(approver, request)
        await checkpoint_if_cancelled()
        if cancels() > before and not scope.cancel_called:  # the approver swallowed it
            raise anyio.get_cancelled_exc_class()
        late = scope.cancel_called or time() > request.expires_at
        answer = _late(step) if late else _checked(step, decision)
        settled |= _settlement(request, answer)
        return answer
    except Unavailable:
        settled |= {"decision": "unavailable"}
        raise
    except Exception as error:  # noqa: BLE001 - an approver that fails has not approved
        settled |= {"decision": "failed", "traceback": step.report("The approver", error)}
        return _failed(step, error)
    except anyio.get_cancelled_exc_class() as error:
        if is_cancelled():
            raise
        settled |= {"decision": "failed", "traceback": step.report("The approver", error)}
        return _failed(step, error)
    finally:
        step.scope = None
        step.emit("approval_settled", settled)


def _settlement(request: ApprovalRequest, answer: Decision | Failure) -> dict[str, Any]:
    if isinstance(answer, Failure):
        return {"decision": answer.kind}
    by = {"by": answer.by} if answer.by else {}
    return {**_settled(request, answer), **by}


def _settled(request: ApprovalRequest, answer: Decision) -> dict[str, Any]:
    if answer.verdict == "remember" and request.suggested_rule:
        return {"decision": "remember", "rule": request.suggested_rule}
    if answer.verdict == "edit":
        return {"decision": "edit", "arguments": to_wire(answer.arguments)}
    if answer.verdict == "defer":
        return {"decision": "deferred", "tool": request.tool, "arguments_hash": request.arguments_hash}
    return {"decision": answer.verdict}


def _late(step: Step) -> Failure:
    name = step.tool.name
    if step.terminated:
        return Failure("cancelled", f"{name} was ended by the user.", data={"killed_by": "user"})
    direct = f" Call {name} directly, outside the script, to ask again." if step.call.origin == "script" else ""
    return Failure("approval_timeout", f"{name} was not run: it was not approved in time.{direct}")


def _checked(step: Step, decision: object) -> Decision | Failure:
    if isinstance(decision, Decision):
        return decision
    return Failure(
        "rejected",
        f"{step.tool.name} was not run: the approver returned {shown(decision)}, not a Decision such as "
        "Decision.approve(). Go on without it.",
    )


def _failed(step: Step, error: BaseException) -> Failure:
    return Failure(
        "rejected", f"{step.tool.name} was not run: the approver raised {type(error).__name__}. Go on without it."
    )


def _apply(step: Step, request: ApprovalRequest, decision: Decision) -> Failure | None:
    name = step.tool.name
    if decision.verdict == "remember" and request.suggested_rule:
        approvals_of(step.shared).remembered.append(Rule(request.suggested_rule))
    if decision.verdict == "deny":
        return Failure(
            "user_denied", f"The user did not allow {name}" + (f": {decision.message}" if decision.message else ".")
        )
    if decision.verdict == "defer":
        return _defer(step, request)
    if decision.verdict == "skip":
        return Failure("user_denied", f"The user skipped {name}. Go on without it.", data={"reason": "skipped"})
    return None


def _defer(step: Step, request: ApprovalRequest) -> Failure:
    """The answer to a call that comes again when a person has approved it."""
    step.deferred = True
    approvals_of(step.shared).used.discard((request.tool, request.arguments_hash))
    approval = {name: getattr(request, name) for name in DEFERRED_FIELDS}
    return Failure(
        "rejected",
        f"{step.tool.name} was not run: it waits for approval ({request.reason}). Go on without it for now.",
        data={"approval": {**approval, "arguments": to_wire(step.arguments)}},
    )


async def _edit(step: Step, request: ApprovalRequest, decision: Decision, was: Verdict) -> Verdict | Failure | None:
    """Check edited arguments again, by preflight and by the policy.

    A person who edits arguments approves them as they are. They are asked again if the new arguments need approval
    for another reason, or if a repair changed their meaning.
    """
    tool, shared = step.tool, step.shared
    given = to_wire(decision.arguments if decision.arguments is not None else {})
    prepared = prepare(
        given, tool.checks, own=tool.own, convert=tool.convert, tool=tool.name, artifact=step.context.artifacts.fault
    )
    if isinstance(prepared, Failure):
        return replace(
            prepared, message=f"The user changed the arguments, and the new ones are not valid: {prepared.message}"
        )
    if arguments_hash(prepared.arguments) == request.arguments_hash:
        return None
    step.arguments, step.converted = prepared.arguments, prepared.converted
    step.repairs = prepared.repairs
    change = f"The user changed the arguments to {visible(str(given))[:500]} before allowing the call."
    step.warnings = (change, *prepared.warnings)
    rules = shared.rules_about(tool)
    remembered = approvals_of(shared).remembered
    verdict = await judge(shared.policy.mode, rules, tool, step.arguments, shared.sandbox, remembered)
    if verdict.action == "deny":
        return Failure("rejected", f"{tool.name} was not run: the user changed its arguments, and {verdict.reason}.")
    if doubtful(tool, step.repairs):
        return DOUBT
    if tool.behaviour.covers is not None and shared.policy.scripts == "whole":
        verdict = _naming_tools(step, verdict)
    return None if verdict.action == "allow" or verdict.reason == was.reason else verdict
