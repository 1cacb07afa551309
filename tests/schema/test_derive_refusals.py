"""What has no schema is refused where it is defined; what a function returns becomes a schema too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
import typing_extensions
from pydantic import Field

from handrail.contract.errors import BadSchema
from handrail.contract.result import ArtifactRef, Failure, Image, Result, Success
from handrail.schema.validate import Validator
from tests.schema.test_derive import Point, of


class Nothing:
    """A type without a schema."""


def no_annotation(good: int, bad): ...
def no_schema(good: int, bad: Nothing): ...
def a_function(good: int, bad: Callable[[], int]): ...
def many(good: int, *bad: int): ...
def any_names(good: int, **bad: int): ...
def by_position(bad: int, /, good: int): ...
def unknown_name(good: int, bad: NotThere): ...  # noqa: F821
def not_a_number(bad: float = float("nan")): ...
def deep_inside(good: int, bad: dict[str, list[Nothing]]): ...
def look_around(good: int, bad: Annotated[str, Field(pattern="(?=a)")]): ...
def back_reference(good: int, bad: Annotated[str, Field(pattern=r"(a)\1")]): ...
def open_bracket(good: int, bad: list[Annotated[str, Field(pattern="[")]]): ...
def bound_of_text(good: int, bad: Annotated[int, Field(ge="a")]): ...
def negative_length(good: int, bad: Annotated[list[int], Field(min_length=-1)]): ...
def multiple_of_nothing(good: int, bad: Annotated[int, Field(multiple_of=0)]): ...
def bound_that_is_no_number(good: int, bad: Annotated[float, Field(ge=float("nan"))]): ...
def length_of_a_number(good: int, bad: Annotated[int, Field(min_length=3)]): ...
def least_text(good: int, bad: Annotated[str, Field(ge=3)]): ...


REFUSED = [no_annotation, no_schema, a_function, many, any_names, by_position, unknown_name, not_a_number, deep_inside,
           look_around, back_reference, open_bracket, bound_of_text, negative_length, multiple_of_nothing,
           bound_that_is_no_number, length_of_a_number, least_text]  # fmt: skip


@pytest.mark.parametrize("function", REFUSED)
def test_what_has_no_schema_is_refused_at_definition_naming_the_parameter(function: Callable[..., Any]) -> None:
    with pytest.raises(BadSchema, match="'bad'"):
        of(function)


def test_the_reason_is_that_of_the_pattern_or_bound_not_the_name_of_a_validator() -> None:
    for function, reason in ((look_around, "look-around"), (bound_of_text, "'ge' must be"), (least_text, "a bound")):
        with pytest.raises(BadSchema, match=reason) as refused:
            of(function)
        assert "validator" not in str(refused.value)


def wrong_type(good: int = 1, bad: int = "no"): ...
def out_of_bounds(bad: Annotated[int, Field(ge=5)] = 3): ...
def no_member(bad: Literal["a", "b"] = "c"): ...
def wrong_items(bad: list[int] = ["a"]): ...  # noqa: B006
def truth(bad: int = True): ...
def number(bad: bool = 1): ...
def in_the_field(bad: str = Field(5)): ...
def in_the_annotation(bad: Annotated[str, Field(default=5)]): ...
def no_date(bad: date = "soon"): ...
def another_type(bad: int = Point(1)): ...


@pytest.mark.parametrize(
    "function",
    [wrong_type, out_of_bounds, no_member, wrong_items, truth, number, in_the_field, in_the_annotation, no_date,
     another_type],
)  # fmt: skip
def test_a_default_that_its_own_type_refuses_is_refused_at_definition(function: Callable[..., Any]) -> None:
    with pytest.raises(BadSchema, match="parameter 'bad' has a default"):
        of(function)


def test_a_default_that_its_type_accepts_is_not_and_none_means_absent() -> None:
    def function(a: float = 1, b: int = None, c: date = "2026-01-31", d: Literal["x"] = "x", e: list[str] = []): ...  # noqa: B006, RUF013

    written = {name: inner["default"] for name, inner in of(function).parameters["properties"].items()}
    assert written == {"a": 1, "b": None, "c": "2026-01-31", "d": "x", "e": []}


class Unset:
    """Says that nothing was given."""


UNSET = Unset()
MISSING = typing_extensions.Sentinel("MISSING")


def an_object(n: int = object()): ...
def an_instance(n: int = UNSET): ...
def a_class(n: int = Unset): ...
def an_ellipsis(n: int = ...): ...
def in_its_type(n: int | Unset = UNSET): ...
def a_sentinel(n: int | MISSING = MISSING): ...


@pytest.mark.parametrize("function", [an_object, an_instance, a_class, an_ellipsis, in_its_type, a_sentinel])
def test_a_sentinel_default_makes_the_parameter_optional_and_is_not_shown(function: Callable[..., Any]) -> None:
    derived = of(function)
    assert derived.parameters["properties"] == {"n": {"type": "integer"}}
    assert "required" not in derived.parameters
    assert derived.convert({}) == {}


def returning(annotation: Any) -> Any:
    def function(): ...

    function.__annotations__ = {"return": annotation}
    return of(function).output


def test_the_return_annotation_becomes_an_output_schema() -> None:
    assert returning(int) == {"type": "integer"}
    assert returning(None) == {"type": "null"}
    assert Validator(returning(list[Point]), of="result").is_valid([{"x": 1, "y": 2, "tags": []}])
    assert not Validator(returning(list[Point]), of="result").is_valid([{"x": "1"}])
    assert returning(Decimal)["type"] == "string"
    with pytest.raises(BadSchema, match="return type"):
        returning(Nothing)


@pytest.mark.parametrize("annotation", [Any, Success, Failure, Result, Image, ArtifactRef, list[Image], Success | int])
def test_what_speaks_for_itself_has_no_output_schema(annotation: Any) -> None:
    assert returning(annotation) is None
