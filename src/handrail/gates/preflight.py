"""Let through only arguments that fit the tool's schema, in the function's own types; the body never sees others."""

from handrail.contract.result import Failure, Result
from handrail.schema.mend import mend
from handrail.toolkit.gate import Next, Step


async def preflight(step: Step, proceed: Next) -> Result:
    tool, call = step.tool, step.call
    mended = mend(call.arguments, tool.checks, own=tool.own, convert=tool.convert, cut=call.cut, tool=call.name)
    if isinstance(mended, Failure):
        return mended
    step.arguments, step.converted = mended.arguments, mended.converted
    step.repairs, step.warnings = mended.repairs, mended.warnings
    return await proceed(step)
