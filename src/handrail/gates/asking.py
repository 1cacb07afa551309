"""Ask a person about a call: rendered by us, bound to the arguments, for a bounded time, while every clock stands."""

import os
from copy import deepcopy
from time import time
from typing import Any, Final
from uuid import uuid4

import anyio

from handrail.contract.approval import ApprovalRequest, Approver, Decision
from handrail.contract.result import Failure
from handrail.schema.mend import mend
from handrail.schema.parse import arguments_hash
from handrail.toolkit.gate import Step
from handrail.toolkit.glob import escape
from handrail.toolkit.matching import Place
from handrail.toolkit.render import render, visible
from handrail.toolkit.rule import Rule
from handrail.toolkit.verdict import Verdict, judge

WAIT: Final = 300.0
"""Seconds to wait for an answer, unless the approver carries its own `.wait`."""
MOST_EDITS: Final = 5


async def ask(step: Step, verdict: Verdict) -> Failure | None:
    """None when the call may run, perhaps with other arguments; else what to answer instead."""
    approver = step.rules.approver
    if approver is None:
        raise RuntimeError("nobody to ask")
    for _ in range(MOST_EDITS):
        request = _request(step, verdict, approver)
        step.emit("approval_asked", _shown(request))
        decision = await _wait(step, request, approver)
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


def place_of(step: Step) -> Place:
    """Where the call's relative paths begin, and how they are followed."""
    sandbox = step.rules.sandbox
    if sandbox is None:
        return Place(os.getcwd(), _host_path)
    stat = sandbox.stat

    async def real_path(path: str) -> str:
        return (await stat(path)).real_path

    return Place(sandbox.workspace, real_path)


async def _host_path(path: str) -> str:
    return await anyio.to_thread.run_sync(os.path.realpath, path)


def _request(step: Step, verdict: Verdict, approver: Approver) -> ApprovalRequest:
    sandbox = step.rules.sandbox
    arguments = deepcopy(dict(step.arguments))
    repairs = tuple(visible(f"{r.path}: {r.before!r} became {r.after!r}")[:1_000] for r in step.repairs)
    return ApprovalRequest(
        id=uuid4().hex,
        call_id=step.call.id,
        tool=step.tool.name,
        risk=step.tool.risk,
        effects=frozenset(step.tool.effects),
        arguments=arguments,
        arguments_hash=arguments_hash(step.arguments),
        text=render(step.tool.name, arguments),
        repairs=repairs,
        reason=verdict.reason,
        suggested_rule=suggest(step),
        sandbox=f"{sandbox.report.driver}:{sandbox.workspace}" if sandbox is not None else "none",
        expires_at=time() + getattr(approver, "wait", WAIT),
    )


def suggest(step: Step) -> str:
    """The narrowest rule that means this call: its tool, and the value of its first required property."""
    properties = step.tool.parameters.get("required") or list(step.tool.parameters.get("properties") or ())
    value = step.arguments.get(properties[0]) if properties else None
    return f"{step.tool.name}({escape(value)})" if isinstance(value, str) else step.tool.name


def _shown(request: ApprovalRequest) -> dict[str, Any]:
    names = (
        "id",
        "tool",
        "risk",
        "arguments_hash",
        "text",
        "repairs",
        "reason",
        "suggested_rule",
        "sandbox",
        "expires_at",
    )
    return {name: getattr(request, name) for name in names}


async def _wait(step: Step, request: ApprovalRequest, approver: Approver) -> Decision | Failure:
    """The answer, or why there is none. Whatever happens, the request is settled in the transcript."""
    settled = "cancelled"
    try:
        with step.clock.pause(), anyio.move_on_after(getattr(approver, "wait", WAIT)) as scope:
            step.scope = scope
            decision = await approver(request)
        step.scope = None
        answer = _in_time(step, request, decision if not scope.cancelled_caught else None)
        settled = answer.kind if isinstance(answer, Failure) else answer.verdict
        return answer
    except Exception as error:  # noqa: BLE001 - an approver that fails has not approved
        settled = "failed"
        return Failure("rejected", f"{step.tool.name} was not run: asking a person failed ({type(error).__name__}).")
    finally:
        rule = {"rule": request.suggested_rule} if settled == "remember" else {}
        step.emit("approval_settled", {"id": request.id, "decision": settled, **rule})


def _in_time(step: Step, request: ApprovalRequest, decision: object) -> Decision | Failure:
    name = step.tool.name
    if step.terminated:
        return Failure("cancelled", f"{name} was ended by the user.", data={"killed_by": "user"})
    if decision is None or time() > request.expires_at:
        direct = f" Call {name} directly, outside the script, to ask again." if step.call.origin == "script" else ""
        return Failure("approval_timeout", f"{name} was not run: nobody answered in time whether it may run.{direct}")
    if not isinstance(decision, Decision):
        return Failure("rejected", f"{name} was not run: the approver answered with no Decision.")
    return decision


def _apply(step: Step, request: ApprovalRequest, decision: Decision) -> Failure | None:
    name = step.tool.name
    if decision.verdict == "remember":
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
    needs approval for another reason is asked about again."""
    tool, rules = step.tool, step.rules
    given = decision.arguments if decision.arguments is not None else {}
    mended = mend(given, tool.checks, own=tool.own, convert=tool.convert, cut=False, tool=tool.name)
    if isinstance(mended, Failure):
        return mended
    step.arguments, step.converted = mended.arguments, mended.converted
    step.repairs = mended.repairs
    step.warnings = (f"The user changed the arguments to {visible(str(dict(given)))[:500]} before allowing the call.",)
    if arguments_hash(step.arguments) == request.arguments_hash:
        return None
    report = rules.sandbox.report if rules.sandbox is not None else None
    verdict = await judge(rules.policy, rules.remembered, tool, step.arguments, place_of(step), report)
    if verdict.action == "deny":
        return Failure("rejected", f"{tool.name} was not run: {verdict.reason}.")
    return None if verdict.action == "allow" or verdict.reason == was.reason else verdict
