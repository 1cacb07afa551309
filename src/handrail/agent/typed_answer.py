"""The tool `answer`: the model gives its final answer as an object of a pydantic model."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from handrail.contract.errors import HandrailError, ToolFailed
from handrail.contract.result import Failure
from handrail.toolkit.context import Context
from handrail.toolkit.tool import Tool

NAME: Final = "answer"
SEND_BACK: Final = f"Give your final answer by calling the tool `{NAME}`: text alone is not accepted."
MAX_PROBLEMS_COUNT: Final = 5
"""Problems of a refused answer that the model is told."""
MAX_PROBLEM_CHARS: Final = 300
"""Characters of each of them."""


class AnswerTool(Tool):
    """The tool `answer` of an agent with a typed output: a class of its own tells it from a tool of that name."""

    __slots__ = ()


def answer_tool(model: Any, accept: Callable[[Any], bool]) -> AnswerTool:
    """The tool for this model. `accept` gets the object; if it returns False, there is an answer already."""
    if not (isinstance(model, type) and hasattr(model, "model_validate") and hasattr(model, "model_json_schema")):
        raise HandrailError(f"output is a class that derives from pydantic.BaseModel, not {model!r}")
    schema = model.model_json_schema()
    wrapped = schema.get("type") != "object"

    async def answer(context: Context, arguments: Mapping[str, Any]) -> str:
        given = arguments["value"] if wrapped else dict(arguments)
        try:
            made = model.model_validate(given)
        except ValueError as error:
            message = f"The answer was not accepted: {_problems(error)}. Correct it and call {NAME} again."
            raise ToolFailed(Failure("invalid_args", message)) from None
        if not accept(made):
            raise ToolFailed(Failure("rejected", "There is a final answer already; the first one counts."))
        return "The answer was accepted."

    about = (model.__doc__ or "").strip() if "__doc__" in vars(model) else ""
    description = f"Give the final answer. Call it once, when the work is done. {about}".strip()
    return AnswerTool(NAME, _wrapped(schema) if wrapped else schema, answer, description=description)


def _wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An object with the one property `value`, because arguments are always an object."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    made: dict[str, Any] = {"type": "object", "properties": {"value": inner}, "required": ["value"]}
    return made | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def _problems(error: ValueError) -> str:
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return str(error)[:MAX_PROBLEM_CHARS]
    found = [f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in errors()]
    more = f"; and {len(found) - MAX_PROBLEMS_COUNT} more" if len(found) > MAX_PROBLEMS_COUNT else ""
    return "; ".join(problem[:MAX_PROBLEM_CHARS] for problem in found[:MAX_PROBLEMS_COUNT]) + more
