"""Run a program that is given as text; of a Python program, also return the value of its last expression."""

from typing import Annotated, Any, Final

from pydantic import Field

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure
from handrail.sandbox.code import language as known_language
from handrail.sandbox.last_value import run_for_value
from handrail.toolkit.context import Context
from handrail.toolkit.live_output import watcher
from handrail.toolkit.tool import tool
from handrail.tools._paths import explain_errors
from handrail.tools.bash import Seconds, answer

DEFAULT_TIMEOUT: Final = 60


@tool(risk="high", effects=["executes"], needs=["exec", "files"], timeout=None)
async def run_code(
    code: Annotated[str, Field(min_length=1)],
    context: Context,
    language: str = "python",
    timeout: Seconds = DEFAULT_TIMEOUT,
) -> Any:
    """Run a program and return its output; in Python, `text` is the value of its last expression.

    Only files persist between calls.

    Args:
        code: The whole program.
        language: python, bash, or another language that the sandbox has, such as node or ruby.
        timeout: Seconds after which the program and everything it started are killed.
    """
    sandbox = context.sandbox
    try:
        known_language(language)
    except ValueError as error:
        raise ToolFailed(Failure("invalid_args", str(error), field="language")) from None
    with explain_errors(sandbox, sandbox.cwd):
        show = watcher(context)
        completed = await run_for_value(sandbox, code, language, timeout, most=context.caps.spool, on_output=show)
    return answer(completed, sandbox, timeout=timeout)
