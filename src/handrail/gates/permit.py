"""Let a call through only where the policy allows it."""

from handrail.contract.result import Failure, Result
from handrail.toolkit.gate import Next, Step


async def permit(step: Step, proceed: Next) -> Result:
    tool = step.tool
    if step.call.origin not in tool.callable_from:
        allowed = ", ".join(sorted(tool.callable_from))
        return Failure("rejected", f"{tool.name} cannot be called from {step.call.origin}, only from {allowed}.")
    if step.rules.policy.mode == "strict" and tool.risk != "safe":
        return Failure(
            "rejected",
            f"{tool.name} has risk {tool.risk}, and this session's policy is strict: it runs only what is safe. "
            "Go on without it, or say what you would have done.",
        )
    return await proceed(step)
