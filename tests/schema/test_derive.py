"""A typed function becomes a schema: what the schema accepts, the function accepts."""

from __future__ import annotations

import datetime as dt
import enum
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict
from uuid import UUID

import pytest
import typing_extensions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import Doc

from handrail.contract.errors import BadSchema
from handrail.schema.derive import Derived, NotConvertible, derive
from handrail.schema.navigate import children
from handrail.schema.validate import Validator
from tests.schema.generate import instances


class Context:
    """Stands for the runtime's own parameter."""


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)


ORIGIN = Point(1, 2)


class Tree(TypedDict):
    leaves: list[Tree]


class Old(TypedDict):
    a: int
    b: NotRequired[str]


class New(typing_extensions.TypedDict, total=False):
    a: typing_extensions.Required[int]
    inner: Old


class Model(BaseModel):
    title: str
    point: Point
    colour: Color = Color.RED
    next: Model | None = None


class Wide(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


def of(function: Callable[..., Any], **names: Any) -> Derived:
    return derive(function, injected=Context, local_names=names)


TYPES: list[Any] = [
    int, float, bool, str, None, Any, list, dict, list[int], list[list[str]], dict[str, int], dict[int, str],
    dict[str, list[Point]], tuple[int, str], tuple[int, ...], set[int], frozenset[str], Literal["a", "b"],
    Literal[1, "x"], Color, Level, Optional[int],  # noqa: UP045 - the old spelling must work too
    int | str, int | float | None, list[int | str], Tree, Old, New, list[Old], Old | None,
    Point, list[Point], Point | None, Model, list[Model], dict[str, Model], Wide, Model | Point, bool | list[bool],
    Annotated[int, Field(ge=1, le=10)], Annotated[int, Field(gt=0, lt=5)], Annotated[float, Field(ge=0.5, lt=2)],
    Annotated[str, Field(min_length=2, max_length=4)], Annotated[str, Field(pattern=r"^[a-z]{2}[0-9]$")],
    Annotated[list[int], Field(min_length=1, max_length=3)], Annotated[int, Field(multiple_of=3)],
    list[Annotated[int, Field(ge=0)]], Annotated[dict[str, int], Field(max_length=2)], Path,
]  # fmt: skip


def taking(annotation: Any) -> Derived:
    def function(value): ...

    function.__annotations__ = {"value": annotation}
    return of(function)


DERIVED = [taking(annotation) for annotation in TYPES]


@pytest.mark.parametrize("number", range(len(TYPES)), ids=lambda number: str(TYPES[number]))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data())
def test_what_the_schema_accepts_the_function_accepts(number: int, data: st.DataObject) -> None:
    derived = DERIVED[number]
    value = data.draw(instances(derived.parameters))
    if Validator(derived.parameters).is_valid(value):
        assert set(derived.convert(value)) == {"value"}


def test_the_law_can_fail() -> None:
    with pytest.raises(NotConvertible):
        taking(int).convert({"value": "x"})


def objects(schema: Any) -> list[Any]:
    found = [schema] if "properties" in schema else []
    return found + [inner for child in children(schema) for inner in objects(child)]


@pytest.mark.parametrize("annotation", TYPES, ids=str)
def test_every_object_is_closed_unless_its_type_allows_more_and_no_titles_are_made(annotation: Any) -> None:
    schema = taking(annotation).parameters
    for level in objects(schema):
        allowed = level["properties"].keys() == {"name"}
        assert level["additionalProperties"] is allowed
        assert "title" not in level
    assert schema["additionalProperties"] is False


def test_a_property_called_title_is_kept_and_maps_stay_maps() -> None:
    assert "title" in taking(Model).parameters["$defs"]["Model"]["properties"]
    assert taking(dict[str, int]).parameters["properties"]["value"]["additionalProperties"] == {"type": "integer"}


def test_parameter_names_may_be_anything_python_allows() -> None:
    def function(schema: int, copy: str, _x: int, model_config: int, json: bool, self_: int, validate: int = 3): ...

    derived = of(function)
    given = {"schema": 1, "copy": "a", "_x": 2, "model_config": 3, "json": True, "self_": 4}
    assert Validator(derived.parameters).is_valid(given)
    assert derived.convert(given) == given


def test_defaults_are_written_into_the_schema() -> None:
    def function(
        a: int = 1, b: Color = Color.BLUE, c: Point = ORIGIN, d: Path = Path("x"), e: int | None = None,
        f: tuple[int, str] = (1, "a"), g: int = Field(5, ge=1), h: Annotated[int, Field(default=7)] = 8,
    ): ...  # fmt: skip

    derived = of(function)
    written = {name: inner["default"] for name, inner in derived.parameters["properties"].items()}
    point = {"x": 1, "y": 2, "tags": []}
    assert written == {"a": 1, "b": "blue", "c": point, "d": "x", "e": None, "f": [1, "a"], "g": 5, "h": 8}
    assert "required" not in derived.parameters
    assert derived.convert({})["g"] == 5


def test_field_words_and_our_own_are_kept() -> None:
    def function(path: Annotated[str, Field(description="Where.", json_schema_extra={"blank": "keep"})] = ""): ...

    assert of(function).parameters["properties"]["path"] == {
        "type": "string", "description": "Where.", "blank": "keep", "default": "",
    }  # fmt: skip


def test_text_beside_a_type_describes_the_parameter() -> None:
    def function(
        a: Annotated[int, "How many."],
        b: Annotated[int, "Here."] = 1,
        c: Annotated[str, Doc("Where.")] = "",
        d: Annotated[str, "First"] | None = None,
        e: Annotated[str, "Not this", Field(description="This.")] = "",
    ):
        """Do it.

        Args:
            b: There.
        """  # fmt: skip

    said = {name: inner["description"] for name, inner in of(function).parameters["properties"].items()}
    assert said == {"a": "How many.", "b": "Here.", "c": "Where.", "d": "First", "e": "This."}


def base(a: int, b: str, c: float = 1.0) -> str:
    """Do it.

    Args:
        b: The second.
    """
    return f"{a} {b} {c}"


def test_what_a_partial_has_bound_is_not_offered() -> None:
    for bound in (partial(base, 1), partial(base, a=1), partial(partial(base, c=2.0), 1)):
        derived = of(bound)
        assert derived.description == "Do it."
        assert derived.parameters["properties"]["b"] == {"type": "string", "description": "The second."}
        assert "a" not in derived.parameters["properties"]
        assert derived.parameters["required"] == ["b"]
        assert bound(**derived.convert({"b": "x"})).startswith("1 x")
    assert "c" not in of(partial(base, c=2.0)).parameters["properties"]


class Circle(BaseModel):
    """Round."""

    type: Literal["circle"]
    radius: float


class Box(BaseModel):
    type: Literal["box"]
    point: Point


def test_definitions_that_are_used_once_are_written_in_their_place() -> None:
    def once(
        shape: Annotated[Circle | Box, Field(discriminator="type")], of: Annotated[Point, Field(description="X.")]
    ): ...

    schema = of(once).parameters
    assert list(schema["$defs"]) == ["Point"]  # used twice
    shape = schema["properties"]["shape"]
    assert shape["discriminator"] == {"propertyName": "type"}
    assert [branch["properties"]["type"]["const"] for branch in shape["oneOf"]] == ["circle", "box"]
    assert shape["oneOf"][0]["description"] == "Round."
    validator = Validator(schema)
    assert validator.is_valid({"shape": {"type": "box", "point": {"x": 1}}, "of": {"x": 1}})
    assert not validator.is_valid({"shape": {"type": "box", "point": {"x": "1"}}, "of": {"x": 1}})


def test_definitions_that_refer_to_themselves_or_are_used_twice_stay() -> None:
    assert list(taking(Model).parameters["$defs"]) == ["Model"]
    assert list(taking(list[Tree]).parameters["$defs"]) == ["Tree"]
    assert taking(dict[str, Color]).parameters["properties"]["value"]["additionalProperties"]["enum"] == ["red", "blue"]

    def twice(a: Annotated[Circle | Box, Field(discriminator="type")], b: Circle): ...

    shape = of(twice).parameters["properties"]["a"]
    assert shape["discriminator"]["mapping"] == {"circle": "#/$defs/Circle"}


def test_what_is_said_beside_a_definition_and_in_it_are_both_kept() -> None:
    def function(a: Annotated[Circle, Field(description="The outer one.")]): ...

    assert of(function).parameters["properties"]["a"]["description"] == "The outer one.\n\nRound."


GOOGLE = """Do it.

More of it.

Args:
    a: The first,
        on two lines.
    b (str): The second.
"""
NUMPY = """Do it.

More of it.

Parameters
----------
a : int
    The first,
    on two lines.
b
    The second.
"""
REST = """Do it.

More of it.

:param a: The first,
    on two lines.
:param str b: The second.
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_descriptions_come_from_the_docstring_of_any_style(text: str) -> None:
    def function(a: int, b: str, c: int = 0): ...

    function.__doc__ = text
    derived = of(function)
    said = {name: inner.get("description") for name, inner in derived.parameters["properties"].items()}
    assert said == {"a": "The first, on two lines.", "b": "The second.", "c": None}
    assert derived.description == "Do it.\n\nMore of it."


def test_a_docstring_of_no_style_is_all_description_and_none_is_empty() -> None:
    def told(a: int):
        """Adds: one, two."""

    def untold(a: int): ...

    assert of(told).description == "Adds: one, two."
    assert of(untold).description == ""


def test_the_context_is_not_in_the_schema() -> None:
    def function(a: int, context: Context): ...
    def optional(context: Context | None = None): ...
    def two(a: Context, b: Context): ...

    assert of(function).context_parameter == "context"
    assert list(of(function).parameters["properties"]) == ["a"]
    assert of(optional).context_parameter == "context"
    with pytest.raises(BadSchema, match="'a' and 'b'"):
        of(two)


def test_types_defined_beside_the_function_are_found() -> None:
    class Local(BaseModel):
        z: int

    def function(value: Local) -> Local: ...

    derived = of(function, Local=Local)
    assert derived.convert({"value": {"z": 1}}) == {"value": Local(z=1)}


def test_values_arrive_in_the_functions_own_types() -> None:
    def function(a: Color, b: tuple[int, str], c: set[int], d: dt.date, e: UUID, f: Model): ...

    key = UUID(int=5)
    plain = {"a": "red", "b": [1, "x"], "c": [1, 2], "d": "2026-01-02", "e": str(key)}
    converted = of(function).convert({**plain, "f": {"title": "t", "point": {"x": 1}}})
    assert converted["f"] == Model(title="t", point=Point(1))
    del converted["f"]
    assert converted == {"a": Color.RED, "b": (1, "x"), "c": {1, 2}, "d": dt.date(2026, 1, 2), "e": key}


class Picky(BaseModel):
    even: int

    @field_validator("even")
    @classmethod
    def check(cls, value: int) -> int:
        if value == 13:
            raise KeyError("thirteen")
        if value % 2:
            raise ValueError("must be even")
        return value


def test_what_the_types_refuse_is_told_in_plain_words_with_its_place() -> None:
    derived = taking(list[Picky] | int)
    with pytest.raises(NotConvertible) as caught:
        derived.convert({"value": [{"even": 2}, {"even": 3}]})
    told = {problem.path: problem.message for problem in caught.value.problems}
    assert "must be even" in told["value[1].even"]
    assert "pydantic" not in str(caught.value).lower()
    with pytest.raises(NotConvertible, match="thirteen"):
        derived.convert({"value": [{"even": 13}]})
    assert typing.is_typeddict(Old)
