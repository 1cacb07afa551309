"""A tool that exists can be offered to a model: what is wrong with a definition is said where it is made."""

import dataclasses
import json
from datetime import date
from enum import Enum
from functools import partial
from typing import Annotated, Any, get_type_hints

import pytest
from pydantic import BaseModel, Field

from handrail import Context, Failure, HandrailError, Image, Session, Success, Tool, Toolbox, ToolFailed, tool
from handrail.contract.errors import BadSchema
from handrail.toolkit.tool import ToolOptions

OBJECT = {"type": "object"}


def body(context: Context, arguments: Any) -> Any:
    return dict(arguments)


@pytest.mark.parametrize("name", ["", "x" * 65, "two words", "dot.ted", "ümlaut", "line\n", "sla/sh", None, 5])
def test_a_bad_name_is_refused(name: Any) -> None:
    with pytest.raises(HandrailError, match="1 to 64 of the characters") as refused:
        Tool(name, OBJECT, body)
    assert repr(name) in str(refused.value)
    if name is not None:
        with pytest.raises(HandrailError, match="1 to 64 of the characters"):
            tool(name=name)(lambda: None)


@pytest.mark.parametrize("name", ["a", "x" * 64, "_", "-", "Get-Weather_2"])
def test_a_good_name_is_not(name: str) -> None:
    assert Tool(name, OBJECT, body).name == name
    assert tool(name=name)(lambda: None).name == name


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"risk": "mild"}, "risk 'mild' is not one of safe, high, critical"),
        ({"effects": ["explodes"]}, "effects 'explodes' is not one of reads, writes"),
        ({"timeout": 0}, "timeout is 0; write a number of seconds above 0"),
        ({"timeout": -1.0}, "timeout is -1.0"),
        ({"timeout": True}, "timeout is True"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"timeout": float("inf")}, "timeout is inf"),
        ({"timeout": "5"}, "timeout is '5'"),
        ({"needs": ["telepathy"]}, "needs 'telepathy' is not one of files"),
        ({"output_cap": 0}, "output_cap is 0"),
        ({"output_cap": 0.5}, "output_cap is 0.5"),
        ({"description": 5}, "description is 5; write a text"),
        ({"lane": 5}, 'lane is 5; write a name such as "database"'),
        ({"lane": ""}, "lane is ''; write a name such as"),
        ({"lane": " "}, "lane is ' '; write a name such as"),
        ({"deferred": "yes"}, "deferred is 'yes'; write True or False"),
        ({"isolate": 1}, "isolate is 1; write True or False"),
        ({"risk": None}, 'risk is None; write "safe", "high" or "critical"'),
        ({"effects": 3}, "effects is 3; write a list such as ['reads']"),
        ({"needs": [["exec"]]}, "needs is a list; write a list such as ['files']"),
        ({"callable_from": None}, "callable_from is None; write a list such as ['model']"),
    ],
)
def test_a_bad_option_is_refused_by_name(options: dict[str, Any], said: str) -> None:
    for make in (lambda: Tool("t", OBJECT, body, **options), lambda: tool(name="t", **options)(lambda: None)):
        with pytest.raises(HandrailError) as refused:
            make()
        assert said in str(refused.value)
        assert "tool t" in str(refused.value)


def test_the_options_of_the_decorator_are_those_of_a_tool() -> None:
    fields, options = get_type_hints(Tool), get_type_hints(ToolOptions)
    assert {name: fields[name] for name in options} == options
    given = {field.name for field in dataclasses.fields(Tool) if field.init and field.kw_only}
    assert given - set(options) == {"description", "output", "function", "convert", "isolate"}


def test_calling_a_tool_calls_its_plain_function() -> None:
    @tool(timeout=1, callable_from=["user"])
    def half(n: int, by: int = 2) -> float:
        return n / by

    made: float = half(3)
    assert (made, half(3, by=4)) == (1.5, 0.75)
    with pytest.raises(ZeroDivisionError):  # nothing stands around it
        half(1, 0)


def test_a_tool_that_was_not_made_of_a_function_says_who_may_call_it() -> None:
    with pytest.raises(HandrailError, match="tool t was not made of a function, so it can only be called by a session"):
        Tool("t", OBJECT, body)()


@pytest.mark.anyio
@pytest.mark.parametrize("optional", [False, True])
async def test_a_context_may_say_of_what_type_the_state_is(optional: bool) -> None:
    @dataclasses.dataclass
    class Settings:
        colour: str

    def plain(context: Context[Settings]) -> str:
        return context.state.colour

    def or_none(context: Context[Settings] | None = None) -> str:
        return context.state.colour if context else ""

    made = tool(name="t")(or_none if optional else plain)
    assert made.parameters["properties"] == {}
    async with Session([made], state=Settings("red")) as session:
        assert (await session.call("t")).value == "red"


def test_an_unknown_option_a_body_and_a_call_origin_are_refused_too() -> None:
    with pytest.raises(TypeError, match="colour"):
        Tool("t", OBJECT, body, colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        tool(colour="red")(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(HandrailError, match="body is 5; write a function of two values"):
        Tool("t", OBJECT, 5)  # type: ignore[arg-type]
    with pytest.raises(HandrailError, match="callable_from 'mars'"):
        Tool("t", OBJECT, body, callable_from=["mars"])  # type: ignore[list-item]
    with pytest.raises(HandrailError, match="takes a function, not a Tool"):
        tool(Tool("t", OBJECT, body))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "any"}, {}, {"type": "string"}, {"type": "object", "properties": {"a": {"type": "oops"}}},
        {"type": "object", "properties": {"a": {"minimum": "five"}}}, {"type": "object", "x": object()},
        {"type": "object", "properties": {"a": {"$ref": "https://example.org/schema"}}}, [], None,
        {"type": "object", "properties": {"a": {"pattern": "(?=look)"}}},
    ],
    ids=range(10),
)  # fmt: skip
def test_an_invalid_schema_is_refused_with_the_name_of_its_tool(schema: Any) -> None:
    with pytest.raises(HandrailError, match="tool t: "):
        Tool("t", schema, body)


def test_a_parameter_without_a_schema_is_named() -> None:
    class Opaque:
        pass

    def no_annotation(good: int, bad) -> None:  # type: ignore[no-untyped-def]
        pass

    def no_schema(good: int, bad: Opaque) -> None:
        pass

    def many(*bad: int) -> None:
        pass

    def bad_default(bad: int = "no") -> None:  # type: ignore[assignment]
        pass

    def bad_pattern(bad: Annotated[str, Field(pattern="(?=a)")]) -> None:
        pass

    for function in (no_annotation, no_schema, many, bad_default, bad_pattern):
        with pytest.raises(BadSchema, match=rf"tool {function.__name__}: parameter 'bad'"):
            tool(function)

    def bad_return() -> Opaque:
        return Opaque()

    with pytest.raises(BadSchema, match="tool bad_return: the return type"):
        tool(bad_return)


async def counts(n: int) -> Any:
    yield n


class Counts:
    async def __call__(self, context: Context, arguments: Any) -> Any:
        yield 1


def test_an_async_generator_is_refused_by_name() -> None:
    for make in (
        lambda: tool(counts),
        lambda: tool(name="counts")(partial(counts, 1)),
        lambda: Tool("counts", OBJECT, counts),
        lambda: Tool("counts", OBJECT, Counts()),
        lambda: Toolbox([counts]),
    ):
        with pytest.raises(HandrailError, match=r"tool counts: .* async generator"):
            make()


@pytest.mark.anyio
async def test_a_partial_is_a_tool_of_its_functions_name() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    async def later(key: str, n: int) -> str:
        return f"{key} {n}"

    async with Session([partial(add, 1), partial(later, key="secret")]) as session:
        assert (await session.call("add", {"b": 2})).value == 3
        assert (await session.call("later", {"n": 2})).value == "secret 2"
    assert "secret" not in json.dumps(session.schemas("mcp"))
    assert session.toolbox.find("later").runs == "async"


class Bare:
    """A tool by its shape that leaves things unsaid."""

    name = "bare"
    parameters = OBJECT
    description = None
    effects = None
    risk = None

    def __call__(self, context: Context, arguments: Any) -> int:
        return 1


def test_a_description_that_is_none_is_empty() -> None:
    assert Tool("t", OBJECT, body, description=None).description == ""
    bare = Toolbox([Bare()]).find("bare")
    assert (bare.description, bare.effects, bare.risk) == ("", frozenset(), "safe")


def test_what_is_shown_is_what_is_checked_whatever_happens_to_the_schema_that_was_given() -> None:
    given: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    made = Tool("t", given, body)
    given["properties"]["n"]["type"] = "string"
    assert made.parameters["properties"]["n"] == {"type": "integer"}
    assert made.checks.is_valid({"n": 1})


def test_the_original_function_is_kept_and_a_decorated_one_says_what_it_promises() -> None:
    def add(a: int, b: int = 1) -> int:
        """Add two numbers.

        Args:
            a: the first
        """
        return a + b

    made = tool(add)
    assert made.function is add
    assert (made.name, made.description, made.own) == ("add", "Add two numbers.", True)
    assert made.parameters == {
        "type": "object",
        "properties": {"a": {"type": "integer", "description": "the first"}, "b": {"type": "integer", "default": 1}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert (made.risk, made.effects, made.timeout, made.runs) == ("safe", frozenset(), 120.0, "thread")
    assert tool(name="t", description="", effects="reads")(add).effects == {"reads"}


@dataclasses.dataclass
class Spot:
    name: str
    picture: Image


class Model(BaseModel):
    n: int
    when: date


class Colour(Enum):
    RED = "red"


RETURNED: list[tuple[Any, Any]] = [
    ({"a": 1}, {"a": 1}), ([1, "x"], [1, "x"]), (5, 5), ("text", "text"), (False, False), (None, None), (1.5, 1.5),
    ((1, 2), [1, 2]), ({1: "a"}, {"1": "a"}), (Model(n=1, when=date(2026, 1, 2)), {"n": 1, "when": "2026-01-02"}),
    (Colour.RED, "red"), ({"x"}, ["x"]), (Success(3, ("w",)), 3), (float("inf"), "inf"), ("half \ud83d", "half ?"),
    (Image(b"1"), Image(b"1")), ([Image(b"1")], [Image(b"1")]),
    (Spot("here", Image(b"\x89")), {"name": "here", "picture": Image(b"\x89")}), (b"text", "text"),
]  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize(("returned", "value"), RETURNED, ids=lambda part: str(part)[:40])
async def test_a_body_may_return_any_of_these(returned: Any, value: Any) -> None:
    def gives() -> Any:
        return returned

    async with Session([gives, Tool("by_hand", OBJECT, lambda context, arguments: returned)]) as session:
        for name in ("gives", "by_hand"):
            result = await session.call(name)
            assert result.ok
            assert result.value == value
            json.dumps(result.to_envelope(name))


class Price(BaseModel):
    amount: float
    name: str = ""


ODD: list[tuple[Any, Any, list[str]]] = [
    (float("nan"), "nan", ["the result is NaN"]),
    (
        {"rows": [{"price": 1.5}, {"price": float("inf")}]},
        {"rows": [{"price": 1.5}, {"price": "inf"}]},
        ["`rows[1].price` is infinity"],
    ),
    ([1.0, float("-inf"), float("nan")], [1.0, "-inf", "nan"], ["`[1]` is infinity", "`[2]` is NaN"]),
    (Price(amount=float("nan")), {"amount": "nan", "name": ""}, ["`amount` is NaN"]),
    ({"name": "half \ud83d", "n": 1}, {"name": "half ?", "n": 1}, ["`name` has half of a character pair"]),
    ({"half \ud83d": 1}, {"half ?": 1}, ["the result has a key that has half of a character pair"]),
    (Success("half \ud83d", ("said",)), "half ?", ["said", "the result has half of a character pair"]),
    ({"fine": [1.5, "ü", 10**30]}, {"fine": [1.5, "ü", 10**30]}, []),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("returned", "value", "said"), ODD, ids=range(len(ODD)))
async def test_what_json_cannot_hold_is_shown_as_text_with_a_warning(
    returned: Any, value: Any, said: list[str]
) -> None:
    async with Session([Tool("gives", OBJECT, lambda context, arguments: returned)]) as session:
        result = await session.call("gives")
    assert result.ok
    assert result.value == value
    assert len(result.warnings) == len(said)
    assert all(part in warning for part, warning in zip(said, result.warnings, strict=True))


@pytest.mark.anyio
async def test_many_of_them_are_counted_not_listed() -> None:
    async with Session([Tool("gives", OBJECT, lambda context, arguments: [float("nan")] * 500)]) as session:
        warnings = (await session.call("gives")).warnings
    assert len(warnings) == 6
    assert "495 more" in warnings[-1]


@pytest.mark.anyio
async def test_a_number_that_json_cannot_hold_breaks_an_output_schema_and_says_why() -> None:
    def gives() -> float:
        return float("nan")

    async with Session([gives]) as session:
        result = await session.call("gives")
    assert isinstance(result, Failure)
    assert result.kind == "execution_error"
    assert "the result is NaN" in result.warnings[0]


@pytest.mark.anyio
async def test_half_a_character_in_a_failure_is_shown_as_a_question_mark_with_a_warning() -> None:
    def told() -> Any:
        raise ToolFailed(Failure("rejected", "no \ud83d", data={"x": "\ud83d", "y": float("nan")}))

    def missing() -> Any:
        raise FileNotFoundError(2, "No such file", "a\udcff")

    async with Session([told, missing]) as session:
        first, second = await session.call("told"), await session.call("missing")
        json.dumps([event.data for event in session.trace if event.type == "call_ended"], ensure_ascii=False).encode()
    assert isinstance(first, Failure)
    assert (first.message, first.data) == ("no ?", {"x": "?", "y": "nan"})
    assert len(first.warnings) == 3
    assert isinstance(second, Failure)
    assert second.message == "No such file: a?"
    assert "half of a character pair" in second.warnings[0]


@pytest.mark.anyio
async def test_a_picture_inside_an_answer_with_an_output_schema_is_no_mistake() -> None:
    def looks() -> dict[str, dict[str, Any]]:
        return {"seen": Image(b"\x89PNG")}  # type: ignore[dict-item]

    async with Session([looks]) as session:
        assert (await session.call("looks")).ok


@pytest.mark.anyio
async def test_a_failure_that_a_body_returns_keeps_its_kind_even_if_its_data_is_not_json() -> None:
    around: dict[str, Any] = {}
    around["again"] = around
    for data in ({"x": object()}, around):
        made = Tool("t", OBJECT, lambda context, arguments, data=data: Failure("rejected", "no", data=data))
        async with Session([made]) as session:
            result = await session.call("t")
        assert not result.ok
        assert (result.kind, result.message, result.data) == ("rejected", "no", {})
        assert "no JSON form" in result.warnings[0]
        json.dumps(session.trace[-1].data)


@pytest.mark.anyio
async def test_the_context_is_not_in_the_schema_and_the_defaults_of_a_hand_written_one_are_not_injected() -> None:
    def mine(n: int, context: Context | None = None) -> str:
        assert context is not None
        return f"{context.call.name} {n}"

    shown = {"type": "object", "properties": {"n": {"type": "integer", "default": 7}}}
    async with Session([mine, Tool("by_hand", shown, body)]) as session:
        assert (await session.call("mine", {"n": 2})).value == "mine 2"
        assert (await session.call("by_hand")).value == {}
    assert list(tool(mine).parameters["properties"]) == ["n"]
    assert session.schemas("mcp")[0]["inputSchema"] == shown
