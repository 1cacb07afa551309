"""Check the arguments against the tool's schema, and convert them to the function's own types."""

from dataclasses import asdict

from handrail.contract.call import Arguments
from handrail.contract.result import Failure, Result
from handrail.contract.wire import to_wire
from handrail.schema.prepare import prepare
from handrail.toolkit.gate import Next, Step


async def preflight(step: Step, proceed: Next) -> Result:
    tool, call = step.tool, step.call
    if tool.name != call.name:  # an unknown tool: say that, whatever the arguments are
        return await proceed(step)
    arguments = call.arguments if isinstance(call.arguments, str) else _own(call.arguments)
    prepared = prepare(
        arguments, tool.checks, own=tool.own, convert=tool.convert, cut=call.cut, tool=call.name,
        artifact=step.context.artifacts.fault,
    )  # fmt: skip
    if isinstance(prepared, Failure):
        return prepared
    step.arguments, step.converted = prepared.arguments, prepared.converted
    step.repairs, step.warnings = prepared.repairs, prepared.warnings
    if step.repairs:
        repairs = [asdict(repair) for repair in step.repairs]
        step.emit("call_repaired", {"repairs": repairs, "arguments": to_wire(step.arguments)})
    return await proceed(step)


def _own(arguments: Arguments) -> Arguments:
    """A copy that the body may change, because a call never changes."""
    try:
        copied: Arguments = to_wire(arguments)
        return copied
    except RecursionError:  # it contains itself; prepare refuses it
        return arguments
