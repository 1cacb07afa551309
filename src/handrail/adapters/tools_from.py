"""Function tools of other frameworks as Tools: their schema and their function, through every gate of a session."""

import inspect
import re
import sys
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

from pydantic import ValidationError

from handrail.contract.errors import HandrailError, ToolFailed
from handrail.contract.limits import TOOL_TIMEOUT
from handrail.contract.result import Failure, Image
from handrail.misuse import shown
from handrail.threads import is_async
from handrail.toolkit.as_tool import as_tool
from handrail.toolkit.context import Body, Context
from handrail.toolkit.tool import Tool

TO_THE_MODEL: Final = frozenset({"ModelRetry", "ToolException"})
"""Exceptions by which a framework's tool sends a message to the model."""
LONGEST: Final = 2_000
DATA_URL: Final = re.compile(r"data:(image/[\w.+-]+);base64,(.*)", re.DOTALL)
ONE_TEXT: Final = {"tool_input": {"type": "string"}}
"""Schema for a LangChain tool that was made without one: a single text."""


def tools_from(framework_tools: Iterable[Any]) -> list[Tool]:
    """Function tools of pydantic-ai, LangChain and openai-agents as Tools; others are taken as a Session takes them.

    One that needs the framework's run context is refused, by name, with a HandrailError. No framework says what a
    tool may do to the world: use `dataclasses.replace(tool, effects=["writes"])`.

    Example:
        ```python
        from handrail.adapters import tools_from
        from pydantic_ai import Tool as FrameworkTool

        def shout(text: str) -> str:
            "Shout a text."
            return text.upper()

        async with Session(tools_from([FrameworkTool(shout)]), policy=Policy(mode="open")) as session:
            print((await session.call("shout", {"text": "hello"})).value)
        #> HELLO
        ```
    """
    if isinstance(framework_tools, Mapping | str) or not isinstance(framework_tools, Iterable):
        raise HandrailError(f"tools_from() takes a list of tools, not {shown(framework_tools)}")
    return [_made(each) for each in framework_tools]


def _made(given: Any) -> Tool:
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(given).__mro__}
    if "pydantic_ai.Tool" in kinds:
        return _from_pydantic_ai(given)
    if "langchain_core.BaseTool" in kinds:
        return _from_langchain(given)
    if "agents.FunctionTool" in kinds:
        return _from_openai_agents(given)
    return as_tool(given)


def _needs(framework: str, name: str, what: str) -> NoReturn:
    raise HandrailError(
        f"tool {name} needs {what} of {framework}, which does not exist here: give the function what it needs in "
        "another way, such as a closure, or write it as a tool with a Context"
    )


def _from_pydantic_ai(given: Any) -> Tool:
    if given.takes_ctx:
        _needs("pydantic-ai", given.name, "the RunContext")
    schema, function = given.function_schema, given.function

    def checked(arguments: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = schema.validator.validate_python(dict(arguments))
        return found

    async def waits(context: Context, arguments: Mapping[str, Any]) -> Any:
        return await schema.call(checked(arguments), None)

    def runs(context: Context, arguments: Mapping[str, Any]) -> Any:
        return function(**checked(arguments))

    plain = not schema.is_async and not schema.positional_fields and not schema.var_positional_field
    return Tool(
        given.name,
        schema.json_schema,
        _answering(runs if plain else waits),
        description=given.description or "",
        risk="high" if given.requires_approval else "safe",
        timeout=getattr(given, "timeout", None) or TOOL_TIMEOUT,
        lane="pydantic-ai sequential" if given.sequential else None,
    )


def _from_langchain(given: Any) -> Tool:
    schema, whole = given.tool_call_schema, given.get_input_schema()
    if given.args_schema is None and given.args == ONE_TEXT:  # the schema would be that of LangChain's own function
        schema = {"type": "object", "properties": ONE_TEXT, "required": ["tool_input"]}
    fields = getattr(schema, "model_fields", getattr(whole, "model_fields", {}))
    injected = {*getattr(given, "_injected_args_keys", ()), *getattr(whole, "model_fields", {})} - set(fields)
    functions = [each for each in (getattr(given, "coroutine", None), getattr(given, "func", None)) if each]
    if injected or any("RunnableConfig" in str(_annotations(each)) for each in functions):
        _needs("LangChain", given.name, f"the run ({', '.join(sorted(injected)) or 'its RunnableConfig'})")

    async def waits(context: Context, arguments: Mapping[str, Any]) -> Any:
        return await given.ainvoke(dict(arguments))

    def runs(context: Context, arguments: Mapping[str, Any]) -> Any:
        return given.invoke(dict(arguments))

    parameters = dict(schema) if isinstance(schema, Mapping) else schema.model_json_schema()
    is_plain = getattr(given, "coroutine", None) is None and getattr(given, "func", None) is not None
    parameters.pop("description", None)
    return Tool(given.name, parameters, _answering(runs if is_plain else waits), description=given.description or "")


def _from_openai_agents(given: Any) -> Tool:
    try:
        function: Callable[..., Any] = given.__wrapped__
    except AttributeError:
        _needs("openai-agents", given.name, "the ToolContext, because it was made without @function_tool,")
    agents: Any = sys.modules["agents.function_schema"]  # it is loaded, because the tool was made with it
    schema = agents.function_schema(function, strict_json_schema=given.strict_json_schema)
    if schema.takes_context:
        _needs("openai-agents", given.name, "the RunContextWrapper")

    def called(arguments: Mapping[str, Any]) -> Any:
        positional, named = schema.to_call_args(schema.params_pydantic_model(**arguments))
        return function(*positional, **named)

    async def waits(context: Context, arguments: Mapping[str, Any]) -> Any:
        return await called(arguments)

    def runs(context: Context, arguments: Mapping[str, Any]) -> Any:
        return called(arguments)

    return Tool(
        given.name,
        given.params_json_schema,
        _answering(waits if is_async(function) else runs),
        description=given.description or "",
        risk="safe" if given.needs_approval is False else "high",
        timeout=given.timeout_seconds or TOOL_TIMEOUT,
    )


def _annotations(function: Callable[..., Any]) -> list[Any]:
    return [each.annotation for each in inspect.signature(function).parameters.values()]


def _answering(body: Body) -> Body:
    """The body with its values and errors converted to ours: pictures, and errors that are messages to the model."""

    async def waits(context: Context, arguments: Mapping[str, Any]) -> Any:
        try:
            return _value(await body(context, arguments))
        except Exception as error:
            raise _told(error) from error

    def runs(context: Context, arguments: Mapping[str, Any]) -> Any:
        try:
            return _value(body(context, arguments))
        except Exception as error:
            raise _told(error) from error

    return waits if is_async(body) else runs


def _told(error: Exception) -> Exception:
    if isinstance(error, ValidationError):
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5])
        return ToolFailed(Failure("invalid_args", f"The arguments were refused: {problems}"[:LONGEST]))
    if TO_THE_MODEL & {kind.__name__ for kind in type(error).__mro__}:
        return ToolFailed(Failure("execution_error", str(error)[:LONGEST]))
    return error


def _value(value: Any) -> Any:
    """A value of a framework's types as a value of ours: the content of a ToolReturn, texts and pictures."""
    kind = type(value).__name__
    if kind == "ToolReturn" and hasattr(value, "return_value"):
        return _value(value.return_value)
    if kind in ("BinaryContent", "BinaryImage") and str(value.media_type).startswith("image/"):
        return Image(value.data, value.media_type)
    if kind == "ToolOutputText":
        return value.text
    if kind == "ToolOutputImage" and (found := DATA_URL.fullmatch(value.image_url or "")):
        return _picture(value, found[2], found[1])
    if isinstance(value, dict) and value.get("type") == "image" and isinstance(value.get("base64"), str):
        return _picture(value, value["base64"], str(value.get("mime_type", "image/png")))
    return [_value(item) for item in value] if isinstance(value, list | tuple) else value


def _picture(value: Any, base64: str, media_type: str) -> Any:
    """The picture; the given value if it is not one."""
    try:
        return Image(b64decode(base64, validate=True), media_type)
    except (ValueError, HandrailError):
        return value
