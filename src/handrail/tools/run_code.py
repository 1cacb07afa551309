"""Run a program that is given as text."""

from typing import Annotated, Any, Final

from pydantic import Field

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure, Success
from handrail.sandbox.code import language as known_language
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool
from handrail.tools._paths import explain_errors
from handrail.tools.bash import Seconds, answer, watcher

DEFAULT_TIMEOUT: Final = 60


@tool(risk="high", effects=["executes"], needs=["exec", "files", "tree_kill"], timeout=None)
async def run_code(
    code: Annotated[str, Field(min_length=1)],
    context: Context,
    language: str = "python",
    timeout: Seconds = DEFAULT_TIMEOUT,
) -> Any:
    """Run a program and return its output. Only files persist between calls.

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
        completed = await sandbox.run_code(code, language, timeout, on_output=watcher(context))
    result = answer(completed, timeout=timeout)
    if isinstance(result, Failure):
        return result
    failed = completed.exit_code != 0
    last = completed.stderr.strip().rpartition("\n")[2] if failed else None
    value = {
        "language": language,
        "text": completed.stdout,
        "error": last or (f"exit code {completed.exit_code}" if failed else None),
        **result.value,
    }
    return Success(value, result.warnings)
