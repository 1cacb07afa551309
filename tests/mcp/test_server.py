"""A client of either protocol lists and calls tools; what it gets is what a session answers."""

import base64
import json
from pathlib import Path
from typing import Annotated, Any, get_args

import anyio
import jsonschema
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

from handrail import Context, Failure, Image, Session, Tool, ToolFailed, tool
from handrail.contract.result import FailureKind
from tests.mcp.served import NEW, PROTOCOLS, client_of, envelope, jailed, server_of, texts

pytestmark = pytest.mark.anyio
both = pytest.mark.parametrize("protocol", PROTOCOLS)


@tool(risk="high", effects=["writes", "reaches_out"])
def send(to: str, times: Annotated[int, Field(ge=1)] = 1) -> str:
    """Send something."""
    return f"sent to {to} {times} times"


@tool(effects=["reads"])
def look(what: str) -> dict[str, int]:
    """Look something up."""
    return {what: 1}


class Found(BaseModel):
    name: str
    next: "Found | None" = None


@tool
def find() -> Found:
    """Find something."""
    return Found(name="a", next=Found(name="b"))


@tool
def fail(kind: str = "not_found") -> str:
    """Fail."""
    raise ToolFailed(Failure(kind, "There is none. Make one first.", field="kind", data={"near": ["x"]}))


@tool
def picture() -> list[Any]:
    """Draw something."""
    return [{"caption": "a dot"}, Image(b"\x89PNG", "image/png")]


@tool
def long() -> str:
    """Answer with more than is shown."""
    return "".join(f"line {number}\n" for number in range(20_000))


@both
async def test_tools_are_listed_sorted_with_schemas_and_hints(protocol: str) -> None:
    async with client_of(server_of(send, look, find), protocol) as client:
        listed = (await client.list_tools()).tools
    assert [each.name for each in listed] == ["find", "look", "send"]
    by_name = {each.name: each for each in listed}
    assert by_name["send"].input_schema == send.parameters
    hints = {name: each.annotations for name, each in by_name.items()}
    assert (hints["look"].read_only_hint, hints["look"].open_world_hint) == (True, False)
    assert (hints["send"].read_only_hint, hints["send"].destructive_hint, hints["send"].open_world_hint) == (
        False,
        True,
        True,
    )
    for each in listed:
        assert each.output_schema is not None
        assert each.output_schema["type"] == "object"
        assert {"ok", "tool"} <= set(each.output_schema["required"])


@both
async def test_a_result_is_the_envelope_as_text_and_as_data(protocol: str) -> None:
    async with client_of(server_of(look), protocol) as client:
        result = await client.call_tool("look", {"what": "a"})
    assert envelope(result) == {"ok": True, "tool": "look", "result": {"a": 1}}
    assert [json.loads(text) for text in texts(result)] == [envelope(result)]
    assert not result.is_error


@both
async def test_a_failure_can_be_read_and_keeps_to_the_output_schema(protocol: str) -> None:
    async with client_of(server_of(fail), protocol) as client:
        schema = (await client.list_tools()).tools[0].output_schema
        result = await client.call_tool("fail", {})
    assert result.is_error
    assert envelope(result) == {
        "ok": False,
        "kind": "not_found",
        "message": "There is none. Make one first.",
        "field": "kind",
        "tool": "fail",
        "retryable": False,
        "data": {"near": ["x"]},
    }
    jsonschema.validate(envelope(result), schema)


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
REFERRING: dict[str, dict[str, Any]] = {
    "one of two": {"anyOf": [NUMBER, {"type": "string"}]},
    "a name of its own": {"$id": "https://x.example/s", "$ref": "#/$defs/n", "$defs": {"n": NUMBER}},
    "a name of a part": {"$ref": "#/$defs/n", "$defs": {"n": {"$id": "https://x.example/n", **NUMBER}}},
    "an anchor": {"$ref": "#n", "$defs": {"n": {"$anchor": "n", **NUMBER}}},
    "itself": {"type": "object", "properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}},
    "an older draft": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/n",
        "definitions": {"n": NUMBER},
    },
}


@pytest.mark.parametrize("own", REFERRING.values(), ids=list(REFERRING))
async def test_the_output_schema_holds_for_every_kind_of_failure_whatever_the_tool_declares(own: Any) -> None:
    async def body(context: Context, arguments: Any) -> Any:
        if kind := arguments.get("kind"):
            raise ToolFailed(Failure(kind, "No.", field="kind", expected="a kind", data={"near": [None]}))
        return {"n": 1}

    declared = Tool("own", {"type": "object"}, body, description="Fail.", output=own)
    async with client_of(server_of(declared), NEW) as client:
        [listed] = (await client.list_tools()).tools
        jsonschema.Draft202012Validator.check_schema(listed.output_schema)
        strict = jsonschema.Draft202012Validator(listed.output_schema)
        for kind in get_args(FailureKind):  # the SDK's own client checks the answers too
            answer = envelope(await client.call_tool("own", {"kind": kind}))
            assert answer["kind"] == kind
            strict.validate(answer)
        good = envelope(await client.call_tool("own", {}))
        assert good["result"] == {"n": 1}
        strict.validate(good)
        assert not strict.is_valid({"ok": False, "tool": "own", "kind": "no such kind"})


@both
async def test_every_answer_keeps_to_its_output_schema_and_a_wrong_one_would_not(protocol: str) -> None:
    async with client_of(server_of(send, look, find, fail, picture, long), protocol) as client:
        schemas = {each.name: each.output_schema for each in (await client.list_tools()).tools}
        for name, arguments in (("find", {}), ("long", {}), ("picture", {}), ("look", {"what": 1.5}), ("send", {})):
            jsonschema.validate(envelope(await client.call_tool(name, arguments)), schemas[name])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"ok": "yes"}, schemas["find"])
    assert "$defs" in schemas["find"], "the tool's own schema is part of it"
    assert {"$ref": "#/$defs/Found"} in schemas["find"]["properties"]["result"]["anyOf"]


@both
async def test_an_image_travels_beside_the_text(protocol: str) -> None:
    async with client_of(server_of(picture), protocol) as client:
        result = await client.call_tool("picture", {})
    [image] = [block for block in result.content if isinstance(block, types.ImageContent)]
    assert (image.mime_type, base64.b64decode(image.data)) == ("image/png", b"\x89PNG")
    assert "PNG" not in texts(result)[0]


@both
async def test_what_was_cut_is_a_resource_that_is_read_whole_or_by_range(protocol: str) -> None:
    whole = long()
    async with client_of(server_of(long), protocol) as client:
        result = await client.call_tool("long", {})
        [link] = [block for block in result.content if isinstance(block, types.ResourceLink)]
        assert link.size == len(whole)
        assert len(texts(result)[0]) < len(whole)
        [all_of_it] = (await client.read_resource(link.uri)).contents
        [part] = (await client.read_resource(f"{link.uri}?start=7&length=7")).contents
        listed = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        with pytest.raises(MCPError, match="There is no resource"):
            await client.read_resource("handrail://artifacts/a_0000")
        with pytest.raises(MCPError, match="start=0&length"):
            await client.read_resource(f"{link.uri}?start=-1")
    assert isinstance(all_of_it, types.TextResourceContents)
    assert isinstance(part, types.TextResourceContents)
    assert (all_of_it.text, part.text) == (whole, whole[7:14])
    assert [each.uri for each in listed] == [link.uri]
    assert [each.uri_template for each in templates] == ["handrail://artifacts/{ref}{?start,length}"]


@both
async def test_a_resource_that_lacks_a_part_says_so_where_it_is_named_listed_and_read(protocol: str) -> None:
    @tool
    async def keep(incomplete: bool, context: Context) -> Any:
        """Keep a text."""
        return await context.artifacts.put(f"kept {incomplete}", incomplete=incomplete)

    async with client_of(server_of(keep), protocol) as client:
        links, contents = {}, {}
        for incomplete in (True, False):
            answer = await client.call_tool("keep", {"incomplete": incomplete})
            [links[incomplete]] = [block for block in answer.content if isinstance(block, types.ResourceLink)]
            [contents[incomplete]] = (await client.read_resource(links[incomplete].uri)).contents
        listed = {each.uri: each for each in (await client.list_resources()).resources}
    for incomplete, link in links.items():
        mark = {"handrail/incomplete": True} if incomplete else None
        assert [each.meta for each in (link, contents[incomplete], listed[link.uri])] == [mark, mark, mark]
        assert ("Incomplete" in (listed[link.uri].description or "")) is incomplete


@both
async def test_live_output_comes_as_progress_before_the_answer(protocol: str) -> None:
    more = anyio.Event()

    @tool
    async def work(context: Context) -> str:
        """Show something, and wait until it was seen."""
        context.show("first\n")
        await more.wait()
        context.show("second\n")
        return "done"

    seen: list[tuple[float, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, message))
        more.set()

    async with client_of(server_of(work), protocol) as client:
        result = await client.call_tool("work", {}, progress_callback=progress)
    assert envelope(result)["ok"]
    assert seen == [(6, "first\n"), (13, "second\n")]


@both
async def test_a_cancelled_call_is_cancelled_in_its_session(protocol: str) -> None:
    seen: list[Session] = []
    begun = anyio.Event()

    @tool
    async def forever() -> str:
        """Never answer."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    async with client_of(server_of(forever, seen=seen), protocol) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "forever", {})
            await begun.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(30):
            async for event in seen[0].events():
                if event.type == "call_ended":
                    break
    assert event.data["kind"] == "cancelled"


@both
async def test_a_tool_that_is_not_there_is_an_answer_that_names_the_others(protocol: str) -> None:
    async with client_of(server_of(send), protocol) as client:
        result = await client.call_tool("sent", {})
    assert result.is_error
    assert envelope(result)["kind"] == "tool_not_found"
    assert "Did you mean send?" in envelope(result)["message"]


@both
async def test_a_tool_for_others_is_not_offered(protocol: str) -> None:
    @tool(callable_from=["model"])
    def private() -> str:
        """Not for clients."""
        return ""

    async with client_of(server_of(private, look), protocol) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["look"]
        assert envelope(await client.call_tool("private", {}))["kind"] == "rejected"


@both
async def test_a_deferred_tool_is_listed_once_it_was_searched_for(protocol: str) -> None:
    @tool(deferred=True)
    def rare_weather(city: str) -> str:
        """Tell the weather of a city."""
        return f"{city}: rain"

    async with client_of(server_of(look, rare_weather), protocol, cache=None) as client:
        before = [each.name for each in (await client.list_tools()).tools]
        found = envelope(await client.call_tool("search_tools", {"query": "weather"}))
        after = [each.name for each in (await client.list_tools()).tools]
        answer = envelope(await client.call_tool("rare_weather", {"city": "Rome"}))
    assert before == ["look", "search_tools"]
    assert found["ok"]
    assert "rare_weather" in after
    assert answer["result"] == {"text": "Rome: rain"}


@both
async def test_text_that_no_wire_carries_is_replaced(protocol: str) -> None:
    @tool
    def half(context: Context) -> dict[str, str]:
        """Show and answer with half of a character."""
        context.show("c\ud800d")
        return {"text": "a\ud800b"}

    seen: list[str | None] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    async with client_of(server_of(half), protocol) as client:
        result = await client.call_tool("half", {}, progress_callback=progress)
    assert envelope(result)["result"] == {"text": "a?b"}
    assert seen == ["c?d"]


@both
async def test_tools_that_cannot_be_started_say_why(protocol: str, tmp_path: Path) -> None:
    async with client_of(jailed(tmp_path, driver="no_such_driver"), protocol) as client:
        result = await client.call_tool("look", {"what": "a"})
        with pytest.raises(MCPError, match="no_such_driver"):
            await client.list_tools()
    assert envelope(result)["kind"] == "unavailable"
    assert "no_such_driver" in envelope(result)["message"]


async def test_the_built_in_tools_work_in_a_jail(tmp_path: Path) -> None:
    async with client_of(jailed(tmp_path), NEW) as client:
        written = envelope(await client.call_tool("write", {"path": "a.txt", "content": "hello\n"}))
        ran = envelope(await client.call_tool("bash", {"command": "cat a.txt"}))
    assert (written["ok"], ran["result"]["stdout"]) == (True, "hello\n")
