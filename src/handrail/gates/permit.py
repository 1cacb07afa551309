"""Let a call through only where the policy allows it, or a person does."""

from handrail.contract.result import Failure, Result
from handrail.gates.request import places_of
from handrail.lazy import Lazy
from handrail.policy.judge import DOUBT, Verdict, by_mode, doubtful, judge
from handrail.policy.policy import NO_RULES
from handrail.toolkit.gate import Next, Step

_asking = Lazy("handrail.gates.asking")


async def permit(step: Step, proceed: Next) -> Result:
    tool, rules = step.tool, step.rules
    if step.call.origin not in tool.callable_from:
        allowed = ", ".join(sorted(tool.callable_from))
        return Failure("rejected", f"{tool.name} cannot be called from {step.call.origin}, only from {allowed}.")
    if tool.needs and (lacks := rules.lacks(tool)):  # it was added after the session was made
        return Failure("unavailable", f"{lacks}. Go on without it.", retryable=False)
    report = rules.sandbox.report if rules.sandbox is not None else None
    about = rules.about(tool) if rules.policy.rules else NO_RULES
    if about or rules.remembered:
        verdict = await judge(rules.policy, rules.remembered, tool, step.arguments, places_of(step), report, about)
    else:
        verdict = by_mode(rules.policy.mode, tool, report)
    if step.repairs and verdict.action != "deny" and doubtful(tool, step.repairs):
        verdict = DOUBT
    if verdict.action != "allow":
        refused = await _settle(step, verdict)
        if refused is not None:
            return refused
    return await proceed(step)


async def _settle(step: Step, verdict: Verdict) -> Failure | None:
    """None when a person said yes."""
    name, rules = step.tool.name, step.rules
    if verdict.action == "deny":
        return Failure("rejected", f"{name} was not run: {verdict.reason}. Go on without it, or ask the user.")
    if verdict is DOUBT and (rules.approver is None or rules.policy.mode == "open"):
        return _bounce(step)
    if rules.approver is None:
        return Failure(
            "rejected",
            f"{name} was not run: {verdict.reason}, which needs approval, and nobody can be asked here. "
            "Go on without it, or say what you would have done.",
        )
    answer: Failure | None = await _asking.ask(step, verdict, rules.approver)
    return answer


def _bounce(step: Step) -> Failure:
    repairs = doubtful(step.tool, step.repairs)
    changes = "; ".join(f"{repair.path}: {repair.before!r} to {repair.after!r}" for repair in repairs)[:800]
    return Failure(
        "invalid_args",
        f"{step.tool.name} was not run: its arguments would have to be changed in a way that changes what they mean "
        f"({changes}). Send them again exactly as you mean them.",
        field=repairs[0].path,
        data={"arguments": step.call.arguments if isinstance(step.call.arguments, str) else dict(step.call.arguments)},
    )
