"""What has no schema is refused where it is defined; what a function returns becomes a schema too."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

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
def odd_default(good: int = 1, bad: int = object()): ...
def not_a_number(bad: float = float("nan")): ...
def deep_inside(good: int, bad: dict[str, list[Nothing]]): ...


REFUSED = [no_annotation, no_schema, a_function, many, any_names, by_position, unknown_name, odd_default,
           not_a_number, deep_inside]  # fmt: skip


@pytest.mark.parametrize("function", REFUSED)
def test_what_has_no_schema_is_refused_at_definition_naming_the_parameter(function: Callable[..., Any]) -> None:
    with pytest.raises(BadSchema, match="'bad'"):
        of(function)


def returning(annotation: Any) -> Any:
    def function(): ...

    function.__annotations__ = {"return": annotation}
    return of(function).output


def test_the_return_annotation_becomes_an_output_schema() -> None:
    assert returning(int) == {"type": "integer"}
    assert returning(None) == {"type": "null"}
    assert Validator(returning(list[Point]), any_root=True).is_valid([{"x": 1, "y": 2, "tags": []}])
    assert not Validator(returning(list[Point]), any_root=True).is_valid([{"x": "1"}])
    assert returning(Decimal)["type"] == "string"
    with pytest.raises(BadSchema, match="return type"):
        returning(Nothing)


@pytest.mark.parametrize("annotation", [Any, Success, Failure, Result, Image, ArtifactRef, list[Image], Success | int])
def test_what_speaks_for_itself_has_no_output_schema(annotation: Any) -> None:
    assert returning(annotation) is None
