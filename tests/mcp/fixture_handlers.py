"""Fixtures of the conformance suite besides tools: prompts, resources, completion, subscriptions."""

import json
from typing import Any, Final

import mcp_types as types
from mcp.server import Server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError

from tests.mcp.fixture_tools import PNG, accepted, asks, bus, embedded, needs


def prompt(*content: Any) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=each) for each in content])


PROMPTS: Final = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


async def list_prompts(context: Any, params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(
                name=name,
                description=f"The fixture {name}.",
                arguments=[types.PromptArgument(name=each, required=True) for each in arguments],
            )
            for name, arguments in PROMPTS.items()
        ]
    )


async def get_prompt(context: Any, params: types.GetPromptRequestParams) -> Any:
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return prompt(types.TextContent(text="This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            text = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
            return prompt(types.TextContent(text=text))
        case "test_prompt_with_embedded_resource":
            resource = embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
            return prompt(resource, types.TextContent(text="Please process the embedded resource above."))
        case "test_prompt_with_image":
            image = types.ImageContent(data=PNG, mime_type="image/png")
            return prompt(image, types.TextContent(text="Please analyze the image above."))
        case "test_input_required_result_prompt":
            context_of = accepted(params, "user_context", "context")
            if context_of is None:
                return needs(asks("user_context", "What context should the prompt use?", "context"))
            return prompt(types.TextContent(text=f"Use this context: {context_of}"))
    raise MCPError(types.INVALID_PARAMS, f"There is no prompt {params.name}")


async def list_resources(context: Any, params: Any) -> types.ListResourcesResult:
    listed = {"static-text": "text/plain", "static-binary": "image/png", "watched-resource": "text/plain"}
    return types.ListResourcesResult(
        resources=[
            types.Resource(uri=f"test://{name}", name=name, description=f"The fixture {name}.", mime_type=media_type)
            for name, media_type in listed.items()
        ]
    )


async def list_templates(context: Any, params: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        name="template", uri_template="test://template/{id}/data", description="A fixture."
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


def read_with(fallback: Any) -> Any:
    """Read a fixture resource; Handrail reads every other."""

    async def read(context: Any, params: types.ReadResourceRequestParams) -> Any:
        uri = str(params.uri)
        texts = {
            "test://static-text": "This is the content of the static text resource.",
            "test://watched-resource": "Watched resource content",
        }
        if uri in texts:
            content: Any = types.TextResourceContents(uri=uri, mime_type="text/plain", text=texts[uri])
        elif uri == "test://static-binary":
            content = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
        elif uri.startswith("test://template/"):
            id = uri.split("/")[3]
            data = json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})
            content = types.TextResourceContents(uri=uri, mime_type="application/json", text=data)
        else:
            return await fallback(context, params)
        return types.ReadResourceResult(contents=[content])

    return read


async def complete(context: Any, params: Any) -> types.CompleteResult:
    return types.CompleteResult(completion=types.Completion(values=["paris", "park"], total=2, has_more=False))


async def nothing(context: Any, params: Any) -> types.EmptyResult:
    return types.EmptyResult()


def add_handlers(server: Server[Any]) -> None:
    """Register them beside Handrail's own."""
    reads = server.get_request_handler("resources/read")
    assert reads is not None
    page = types.PaginatedRequestParams
    server.add_request_handler("prompts/list", page, list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)
    server.add_request_handler("resources/list", page, list_resources)
    server.add_request_handler("resources/templates/list", page, list_templates)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, read_with(reads.handler))
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, nothing)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, nothing)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, nothing)
    server.add_request_handler("subscriptions/listen", types.SubscriptionsListenRequestParams, ListenHandler(bus))
