"""A Toolbox that is fed by a registry: it is asked before each request to the model and at each call."""

from collections.abc import Callable
from typing import Any, ClassVar

import anyio
import anyio.lowlevel
import pytest

from handrail import Agent, Call, Context, HandrailError, HostedTool, Policy, Rule, Session, Tool, Toolbox, Turn, tool
from handrail.testing import EventRecorder, ScriptedModel
from handrail.tools.builtin import builtin_tools

pytestmark = pytest.mark.anyio
OBJECT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@tool
def add(x: int) -> int:
    """Add 1."""
    return x + 1


@tool
def double(x: int) -> int:
    """Double."""
    return x * 2


class Plain:
    """A registry that may change, and counts how often it is asked."""

    def __init__(self, *tools: Any) -> None:
        self.tools = list(tools)
        self.asked: list[str] = []
        self.fails = False

    def get(self, name: str) -> Any:
        self.asked.append(name)
        if self.fails:
            raise RuntimeError("the database is down")
        return next((each for each in self.tools if getattr(each, "name", None) == name), None)

    def all(self) -> Any:
        self.asked.append("*")
        if self.fails:
            raise RuntimeError("the database is down")
        return list(self.tools)


class Async:
    def __init__(self, *tools: Any) -> None:
        self.plain = Plain(*tools)

    async def get(self, name: str) -> Any:
        await anyio.lowlevel.checkpoint()
        return self.plain.get(name)

    async def all(self) -> Any:
        await anyio.lowlevel.checkpoint()
        return self.plain.all()


SOURCES: list[Callable[..., Any]] = [Plain, Async]


def registry(source: Any) -> Plain:
    return source.plain if isinstance(source, Async) else source


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("wrapped", [True, False])
async def test_a_call_finds_the_tool_that_the_registry_has_now(kind: Callable[..., Any], wrapped: bool) -> None:
    source = kind()
    held = registry(source)
    async with Session(Toolbox(source) if wrapped else source) as session:
        assert (await session.call("add", {"x": 1})).kind == "tool_not_found"
        held.tools = [add]
        assert (await session.call("add", {"x": 1})).value == 2
        results = await session.call_all([Call("a", "add", {"x": 1}), Call("b", "double", {"x": 4})])
        assert [result.value for result in results] == [2, None]
        held.tools = [double]
        assert (await session.call("add", {"x": 1})).kind == "tool_not_found"
        assert (await session.call("double", {"x": 4})).value == 8


@pytest.mark.parametrize("kind", SOURCES)
async def test_an_unknown_name_is_told_the_tools_that_there_are_now(kind: Callable[..., Any]) -> None:
    source = kind(add)
    box = Toolbox(source)
    box.add(Tool("own", OBJECT, lambda context, arguments: "own"))
    async with Session(box) as session:
        await session.toolbox.refresh()
        registry(source).tools = [double]
        assert (await session.call("doubl", {"x": 1})).message.endswith("The tools are: double, own.")
        registry(source).tools = []
        both = await session.call_all([Call("a", "own", {"x": 1}), Call("b", "double", {"x": 4})])
        assert both[0].value == "own"
        assert both[1].message.endswith("The tools are: own.")


async def test_a_registry_may_answer_for_an_unknown_name_as_a_dictionary_does() -> None:
    held: dict[str, Any] = {"add": add}

    class Indexed(Plain):
        def get(self, name: str) -> Any:
            return {}["a key of its own"] if name == "broken" else held[name]

    class AsyncIndexed(Async):
        async def get(self, name: str) -> Any:
            return Indexed().get(name)

    for source in (Indexed(add), AsyncIndexed(add)):
        async with Session(source) as session:
            assert (await session.call("add", {"x": 1})).value == 2
            assert (await session.call("sub", {"x": 1})).kind == "tool_not_found"
            assert (await session.call("broken", {"x": 1})).kind == "unavailable"


@pytest.mark.parametrize("kind", SOURCES)
async def test_each_request_offers_what_the_registry_has_now(kind: Callable[..., Any]) -> None:
    source = kind(add)
    held = registry(source)
    offered: list[list[str]] = []

    def answer(messages: Any, tools: Any) -> Turn:
        offered.append([each["name"] for each in tools])
        held.tools = [add, double] if len(offered) == 1 else [double]
        calls = [Call(f"c{len(offered)}", "add", {"x": 1})] if len(offered) < 3 else []
        return Turn(text="" if calls else "done", calls=tuple(calls))

    class Watching(ScriptedModel):
        async def ask(self, messages: Any, tools: Any, *, system: str = "") -> Any:
            yield answer(messages, tools)

    async with Agent(Watching([]), tools=source) as agent:
        outcome = await agent.run("go")
    assert outcome.reason == "done"
    assert offered == [["add"], ["add", "double"], ["double"]]
    ended = [event.data["kind"] for event in agent.session.trace if event.type == "call_ended"]
    assert ended == [None, "tool_not_found"]


@pytest.mark.parametrize("kind", SOURCES)
async def test_what_clashes_is_left_out_with_a_warning_event(kind: Callable[..., Any]) -> None:
    other = Tool("add", OBJECT, lambda context, arguments: "other")
    reserved = Tool("script", OBJECT, lambda context, arguments: "not ours")
    broken = type("Broken", (), {"name": "b d", "parameters": OBJECT, "execute": lambda self, x: x})()
    recorder = EventRecorder()
    async with Session(kind(add, other, reserved, broken, double), readers=[recorder]) as session:
        assert [each["name"] for each in session.schemas("mcp")] == ["add", "double"]
        assert (await session.call("script", {"x": 1})).kind == "tool_not_found"
        session.schemas("mcp")
    told = [event.data["message"] for event in recorder.of("warning")]
    assert [[word in text for text in told].count(True) for word in ("add", "script", "'b d'")] == [1, 1, 1]
    assert len(told) == 3, told


@pytest.mark.parametrize("kind", SOURCES)
async def test_a_tool_that_was_added_by_hand_comes_first(kind: Callable[..., Any]) -> None:
    theirs = Tool("add", OBJECT, lambda context, arguments: "theirs")
    source = kind()
    box = Toolbox(source)
    box.add(add)
    registry(source).tools = [theirs, double]
    async with Session(box) as session:
        assert (await session.call("add", {"x": 1})).value == 2
        assert [each["name"] for each in session.schemas("mcp")] == ["add", "double"]
        warned = [event.data["message"] for event in session.trace if event.type == "warning"]
        assert len(warned) == 1
        assert "add was left out" in warned[0]


@pytest.mark.parametrize("kind", SOURCES)
async def test_handrails_own_tools_may_come_from_a_registry(kind: Callable[..., Any]) -> None:
    todo, complete = (each for each in builtin_tools("all") if each.name in ("todo", "complete"))
    async with Session(kind(todo, complete)) as session:
        assert {each["name"] for each in session.schemas("mcp")} == {"todo", "complete"}
        assert (await session.call("todo", {"items": []})).ok
        assert [event for event in session.trace if event.type == "warning"] == []


@pytest.mark.parametrize("kind", SOURCES)
async def test_a_registry_that_fails_is_a_warning_and_its_tools_are_unavailable(kind: Callable[..., Any]) -> None:
    source = kind(add)
    async with Session(source) as session:
        assert len(session.schemas("mcp")) == 1
        registry(source).fails = True
        result = await session.call("add", {"x": 1})
        assert (result.kind, result.retryable) == ("unavailable", True)
        await session.toolbox.refresh()
        assert [each["name"] for each in session.schemas("mcp")] == ["add"], "what it told last"
        registry(source).fails = False
        assert (await session.call("add", {"x": 1})).value == 2
        warned = [event.data["message"] for event in session.trace if event.type == "warning"]
        assert len(warned) == 1
        assert "the database is down" in warned[0]


async def test_a_registry_may_hold_what_a_toolbox_takes() -> None:
    class Theirs:
        name = "greet"
        parameters: ClassVar[dict[str, Any]] = {
            "type": "object",
            "properties": {"who": {"type": "string"}},
            "required": ["who"],
        }

        async def execute(self, ctx: Any = None, **arguments: Any) -> str:
            assert isinstance(ctx, Context)
            return f"Hello, {arguments['who']}."

    def plain(x: int) -> int:
        """Do."""
        return x

    search = HostedTool("search", {"openai-responses": {"type": "web_search"}})
    source = Plain(Theirs(), search, add)
    source.tools.append(plain)
    async with Session(source) as session:
        assert [each["name"] for each in session.schemas("mcp")] == ["add", "greet", "plain"]
        assert (await session.call("greet", {"who": "Ann"})).value == "Hello, Ann."
        before = session.toolbox.changes
        assert session.toolbox.changes == before, "the same objects are the same tools"
        Theirs.parameters = OBJECT
        assert session.toolbox.changes == before + 1, "a control: an object that was changed is another tool"


@pytest.mark.parametrize("kind", SOURCES)
async def test_a_task_asks_the_registry_too_and_only_for_its_tools(kind: Callable[..., Any]) -> None:
    source = kind(add, double, *(each for each in builtin_tools("all") if each.name == "task"))
    seen: list[list[str]] = []

    class Model(ScriptedModel):
        async def ask(self, messages: Any, tools: Any, *, system: str = "") -> Any:
            seen.append([each["name"] for each in tools])
            number = len(seen)
            if number == 1:
                yield Turn(calls=(Call("t", "task", {"prompt": "add", "tools": ["add"]}),))
            elif number == 2:
                registry(source).tools = [each for each in registry(source).tools if each is not add]
                yield Turn(calls=(Call("a", "add", {"x": 1}), Call("d", "double", {"x": 1})))
            else:
                yield Turn(text="done")

    async with Agent(Model([]), tools=source) as agent:
        await agent.run("go")
    assert seen == [["add", "double", "task"], ["add"], [], ["double", "task"]]
    ended = {e.data["tool"]: e.data["kind"] for e in agent.session.trace if e.type == "call_ended"}
    assert ended == {"add": "tool_not_found", "double": "tool_not_found", "task": None}


async def test_a_rule_may_name_a_tool_that_the_registry_has_later() -> None:
    source = Plain()
    async with Session(source, policy=Policy(deny=[Rule("add")])) as session:
        source.tools = [add]
        assert (await session.call("add", {"x": 1})).kind == "rejected"
    with pytest.raises(HandrailError):
        Session([double], policy=Policy(deny=[Rule("add")]))


async def test_a_toolbox_with_a_registry_reads_as_any_other() -> None:
    source = Plain(double, add)
    box = Toolbox(source)
    assert isinstance(box, Toolbox)
    assert (box.names(), len(box), "add" in box, [each.name for each in box]) == (
        ["add", "double"],
        2,
        True,
        box.names(),
    )
    assert box.get("add") is add
    assert box.get("gone") is None
    assert repr(box) == "<Toolbox of 2: add, double>"
    source.tools = []
    assert (box.names(), box.schemas(), box.get("add")) == ([], [], None)


def test_schemas_are_those_of_mcp_unless_another_provider_is_named() -> None:
    box = Toolbox([add])
    assert box.schemas() == box.schemas("mcp") == [box.schema_for("add")]
    assert box.deferred_schemas() == []


async def test_what_a_registry_returns_instead_of_tools_is_a_warning() -> None:
    class Odd:
        def __init__(self, given: Any) -> None:
            self.given = given

        def get(self, name: str) -> Any:
            return double

        def all(self) -> Any:
            return self.given

    for given in ({"add": add}, "add", 5, None):
        async with Session(Odd(given)) as session:
            assert session.schemas("mcp") == []
            assert (await session.call("add", {"x": 1})).kind == "tool_not_found"
            warned = " ".join(e.data["message"] for e in session.trace if e.type == "warning")
            assert "all() gave" in warned
            assert "gave the tool double when it was asked for add" in warned
