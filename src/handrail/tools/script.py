"""Run a script of the model's that calls tools itself; every call in it goes through every gate."""

from typing import Annotated, Any

from pydantic import Field

from handrail.script.description import describe
from handrail.script.plan import named_tools
from handrail.script.run import run_script
from handrail.toolkit.context import Context
from handrail.toolkit.tool import ALL, Behaviour, tool


@tool(
    risk="high", effects=["executes"], needs=["exec", "files", "stdin"], timeout=None, lane="none",
    callable_from=ALL - {"script"}, behaviour=Behaviour(covers=named_tools, describe=describe),
)  # fmt: skip
async def script(code: str, context: Context, timeout: Annotated[float, Field(gt=0)] = 300.0) -> Any:
    """Run a Python script that calls tools itself.

    Args:
        code: The script.
        timeout: Seconds after which the script and its calls are ended; waiting for approval does not count.
    """
    return await run_script(context, code, timeout)
