"""Fixture tools of the conformance suite that no Tool can say: raw rounds, sampling, logging, other content."""

import json
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ToolsListChanged

PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
Raw = Callable[[Any, types.CallToolRequestParams], Awaitable[Any]]
RAW_TOOLS: Final[dict[str, Raw]] = {}
ARGUMENTS: Final = {"test_sampling": "prompt"}
"""The text that a raw tool requires."""
bus = InMemorySubscriptionBus()


def raw(call: Raw) -> Raw:
    RAW_TOOLS[getattr(call, "__name__")] = call  # noqa: B009 - a Callable need not have one
    return call


def raw_definitions() -> list[types.Tool]:
    """How the raw tools are listed."""
    made = []
    for name, call in sorted(RAW_TOOLS.items()):
        required = [ARGUMENTS[name]] if name in ARGUMENTS else []
        schema = {"type": "object", "properties": {each: {"type": "string"} for each in required}, "required": required}
        made.append(types.Tool(name=name, description=call.__doc__ or name, input_schema=schema))
    return made


def said(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)])


def embedded(uri: str, media_type: str, text: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=media_type, text=text))


# Content


@raw
async def test_audio_content(context: Any, params: Any) -> types.CallToolResult:
    """Answer with a sound."""
    return types.CallToolResult(content=[types.AudioContent(data=WAV, mime_type="audio/wav")])


@raw
async def test_embedded_resource(context: Any, params: Any) -> types.CallToolResult:
    """Answer with a resource."""
    resource = embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    return types.CallToolResult(content=[resource])


@raw
async def test_multiple_content_types(context: Any, params: Any) -> types.CallToolResult:
    """Answer with a text, a picture and a resource."""
    resource = embedded("test://mixed-content-resource", "application/json", '{"test": "data", "value": 123}')
    text = types.TextContent(text="Multiple content types test:")
    return types.CallToolResult(content=[text, types.ImageContent(data=PNG, mime_type="image/png"), resource])


# What a server of 2025-11-25 may ask and tell


async def log(context: Any, text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and still tried by the suite
        await context.session.send_log_message("info", text, related_request_id=context.request_id)


@raw
async def test_tool_with_logging(context: Any, params: Any) -> types.CallToolResult:
    """Log three messages."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await log(context, text)
        await anyio.sleep(0.05)
    return said("Tool with logging executed successfully")


@raw
async def test_logging_tool(context: Any, params: Any) -> types.CallToolResult:
    """Log one message, for those who asked for it."""
    await log(context, "logged")
    return said("done")


@raw
async def test_sampling(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Ask the client's model."""
    prompt = types.TextContent(text=str((params.arguments or {}).get("prompt")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = await context.session.create_message(
            [types.SamplingMessage(role="user", content=prompt)], max_tokens=100, related_request_id=context.request_id
        )
    return said(f"LLM response: {getattr(answer.content, 'text', '')}")


async def elicited(context: Any, message: str, properties: dict[str, Any]) -> types.CallToolResult:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    answer = await context.session.elicit_form(message, schema, related_request_id=context.request_id)
    return said(f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}")


@raw
async def test_elicitation_sep1034_defaults(context: Any, params: Any) -> types.CallToolResult:
    """Ask with defaults of every type."""
    status = {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"}
    return await elicited(
        context,
        "Please provide user information",
        {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": status,
            "verified": {"type": "boolean", "default": True},
        },
    )


@raw
async def test_elicitation_sep1330_enums(context: Any, params: Any) -> types.CallToolResult:
    """Ask with choices of every form."""
    plain = ["option1", "option2", "option3"]
    titled = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
    legacy = {"type": "string", "enum": plain, "enumNames": ["Option One", "Option Two", "Option Three"]}
    return await elicited(
        context,
        "Please choose",
        {
            "untitledSingle": {"type": "string", "enum": plain},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": legacy,
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        },
    )


@raw
async def test_reconnection(context: Any, params: Any) -> types.CallToolResult:
    """Close the stream in the middle of the call."""
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    await anyio.sleep(0.2)
    return said("Reconnection test completed")


# What a server of 2026-07-28 needs from its client


def asks(key: str, message: str, field: str, kind: str = "string") -> types.InputRequests:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return {key: types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))}


def samples(key: str, text: str) -> types.InputRequests:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
    return {
        key: types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=100))
    }


def roots(key: str) -> types.InputRequests:
    return {key: types.ListRootsRequest(params=types.RequestParams())}


def needs(requests: types.InputRequests, state: str | None = None) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def accepted(params: Any, key: str, field: str) -> Any:
    """What the person wrote; None if the answer is missing or lacks it."""
    answer = (params.input_responses or {}).get(key)
    content = answer.content if isinstance(answer, types.ElicitResult) and answer.action == "accept" else None
    return (content or {}).get(field)


def capabilities(context: Any) -> types.ClientCapabilities:
    return context.session.client_capabilities or types.ClientCapabilities()


@raw
async def test_input_required_result_elicitation(context: Any, params: Any) -> Any:
    """Ask for a name."""
    name = accepted(params, "user_name", "name")
    return needs(asks("user_name", "What is your name?", "name")) if name is None else said(f"Hello, {name}!")


@raw
async def test_input_required_result_sampling(context: Any, params: Any) -> Any:
    """Ask the client's model."""
    answer = (params.input_responses or {}).get("capital_question")
    if answer is None:
        return needs(samples("capital_question", "What is the capital of France?"))
    return said(f"The model said: {getattr(answer.content, 'text', answer.content)}")


@raw
async def test_input_required_result_list_roots(context: Any, params: Any) -> Any:
    """Ask for the client's roots."""
    answer = (params.input_responses or {}).get("client_roots")
    if not isinstance(answer, types.ListRootsResult):
        return needs(roots("client_roots"))
    return said(f"Roots: {', '.join(str(root.uri) for root in answer.roots)}")


@raw
async def test_input_required_result_request_state(context: Any, params: Any) -> Any:
    """Ask, and remember by the request's state."""
    if params.request_state != "kept" or accepted(params, "confirm", "ok") is None:
        return needs(asks("confirm", "Please confirm", "ok", "boolean"), "kept")
    return said("state-ok")


@raw
async def test_input_required_result_tampered_state(context: Any, params: Any) -> Any:
    """Ask, with a state that nobody else can write."""
    if params.request_state is None:
        return needs(asks("confirm", "Please confirm", "ok", "boolean"), "kept")
    return said("state-ok")


@raw
async def test_input_required_result_multiple_inputs(context: Any, params: Any) -> Any:
    """Ask for three things at once."""
    requests = {
        **asks("user_name", "What is your name?", "name"),
        **samples("greeting", "Generate a greeting"),
        **roots("client_roots"),
    }
    answered = (params.input_responses or {}).keys() >= requests.keys()
    return said("All inputs received") if answered else needs(requests, "kept")


@raw
async def test_input_required_result_multi_round(context: Any, params: Any) -> Any:
    """Ask twice."""
    if params.request_state is None:
        return needs(asks("step1", "Step 1: What is your name?", "name"), "round 1")
    if params.request_state == "round 1":
        return needs(asks("step2", "Step 2: What is your favorite color?", "color"), "round 2")
    return said(f"Done: {accepted(params, 'step2', 'color')}")


@raw
async def test_input_required_result_capabilities(context: Any, params: Any) -> Any:
    """Ask only for what the client can do."""
    can, requests = capabilities(context), {}
    if can.elicitation is not None:
        requests |= asks("user_name", "What is your name?", "name")
    if can.sampling is not None:
        requests |= samples("greeting", "Generate a greeting")
    if can.roots is not None:
        requests |= roots("client_roots")
    return needs(requests) if requests and not params.input_responses else said("done")


@raw
async def test_streaming_elicitation(context: Any, params: Any) -> Any:
    """Show something, and ask."""
    await context.session.report_progress(1, message="working")
    return needs(asks("user_name", "What is your name?", "name"))


@raw
async def test_missing_capability(context: Any, params: Any) -> Any:
    """Need what the client must be able to do."""
    if capabilities(context).sampling is None:
        data = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "The client must support sampling", data)
    return said("done")


@raw
async def test_trigger_tool_change(context: Any, params: Any) -> types.CallToolResult:
    """Say that the tools have changed."""
    await bus.publish(ToolsListChanged())
    return said("done")


@raw
async def test_trigger_prompt_change(context: Any, params: Any) -> types.CallToolResult:
    """Say that the prompts have changed."""
    await bus.publish(PromptsListChanged())
    return said("done")
