"""Laws of preflight that hold for any schema of ours and any input at all."""

import html
import json
import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail.contract.result import Failure
from handrail.schema.parse import canonical
from handrail.schema.prepare import Prepared, prepare
from handrail.schema.validate import Validator
from tests.schema.generate import instances
from tests.schema.shapes import SCHEMAS, VALIDATORS

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
names = st.sampled_from(sorted(SCHEMAS))
words = st.sampled_from(["n", "N", "s", "b", "tags", "where", "line", "edits", "mode", "count", "tree", "arguments"])
leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
    | st.sampled_from(["15", "30.0", "true", "yes", "", " ", "[1]", '{"line": "2"}', "FAST", "a, b", "null"])
)  # fmt: skip
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=3), inner, max_size=4)
)
pieces = st.sampled_from([*"{}[]\"':,\\tr1.5eN \n`", "```json\n", '"n"', "None", "true"])
nearly_json = st.lists(pieces, max_size=30).map("".join)


def preflight(arguments: Any, validator: Validator, *, own: bool = False) -> Prepared | Failure:
    return prepare(arguments, validator, own=own, convert=None, cut=False, tool="t")


def valid_for(name: str) -> st.SearchStrategy[Any]:
    return instances(SCHEMAS[name])


def is_plain(value: Any) -> bool:
    """Whether it has neither blanks nor whole floats, the two things that are tidied even in valid arguments."""
    text = canonical(value)
    return '""' not in text and ".0" not in text and "e" not in text.replace("true", "").replace("false", "")


@QUICK
@given(st.data(), names, st.booleans())
def test_valid_arguments_come_back_as_the_same_object(data: st.DataObject, name: str, own: bool) -> None:
    value = data.draw(valid_for(name))
    validator = VALIDATORS[name]
    if not validator.is_valid(value) or not is_plain(value):
        return
    given_as_mapping = preflight(value, validator, own=own)
    assert isinstance(given_as_mapping, Prepared)
    assert given_as_mapping.arguments is value
    assert given_as_mapping.repairs == ()
    given_as_text = preflight(json.dumps(value), validator, own=own)
    assert isinstance(given_as_text, Prepared)
    assert canonical(given_as_text.arguments) == canonical(value)


@QUICK
@given(values, names, st.booleans())
def test_repair_is_idempotent_and_what_is_accepted_validates(value: Any, name: str, own: bool) -> None:
    validator = VALIDATORS[name]
    once = preflight(value if isinstance(value, dict) else json.dumps(value), validator, own=own)
    if isinstance(once, Failure):
        return
    assert validator.is_valid(once.arguments)
    twice = preflight(once.arguments, validator, own=own)
    assert isinstance(twice, Prepared)
    assert twice.arguments is once.arguments
    assert twice.repairs == ()


@QUICK
@given(values, names)
def test_a_repair_never_changes_a_field_that_fits(value: Any, name: str) -> None:
    validator = VALIDATORS[name]
    if not isinstance(value, dict):
        value = {"n": value, "s": "kept", "tags": ["x"], "edits": [{"old": "123", "new": "true"}]}
    answer = preflight(value, validator)
    if isinstance(answer, Failure):
        return
    for key, location in validator.spec(("#",)).properties.items():
        if key in value and validator.fits(location, value[key]) and is_plain(value[key]):
            assert canonical(answer.arguments[key]) == canonical(value[key])


@settings(QUICK, max_examples=400)
@given(st.one_of(st.text(max_size=60), st.text(string.printable, max_size=60), nearly_json), names, st.booleans())
def test_no_text_raises_and_what_is_accepted_validates(text: str, name: str, own: bool) -> None:
    answer = preflight(text, VALIDATORS[name], own=own)
    assert isinstance(answer, Failure) or VALIDATORS[name].is_valid(answer.arguments)


@QUICK
@given(st.dictionaries(st.text(max_size=4) | st.integers(), values | st.binary(), max_size=4), names)
def test_no_mapping_raises(value: Any, name: str) -> None:
    answer = preflight(value, VALIDATORS[name])
    assert isinstance(answer, Failure) or VALIDATORS[name].is_valid(answer.arguments)


@QUICK
@given(values, names)
def test_every_bounce_is_short_and_its_example_validates(value: Any, name: str) -> None:
    answer = preflight(value if isinstance(value, dict) else json.dumps(value), VALIDATORS[name])
    if isinstance(answer, Prepared):
        return
    assert answer.kind == "invalid_args"
    assert len(answer.message) < 1_200
    assert answer.data is not None
    assert answer.data["errors"]
    assert VALIDATORS[name].is_valid(answer.data["example"])


plain_schemas: list[dict[str, Any]] = [
    {"type": "integer"}, {"type": "string"}, {"type": "boolean"}, {"enum": ["a", "B"]}, {},
    {"type": "string", "minLength": 1}, {"type": "string", "blank": "absent"}, {"type": "string", "aliases": ["A1"]},
    {"type": "string", "default": ""}, {"type": "number", "minimum": 2}, {"type": ["string", "null"], "default": None},
]  # fmt: skip
schemas = st.recursive(
    st.sampled_from(plain_schemas),
    lambda inner: (
        st.builds(lambda item: {"type": "array", "items": item}, inner)
        | st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner)
        | st.builds(lambda a, b: {"allOf": [a, b]}, inner, inner)
        | st.builds(lambda d: {"type": "object", "properties": d}, st.dictionaries(words, inner, max_size=3))
    ),
    max_leaves=6,
)


@QUICK
@given(st.dictionaries(words, schemas, max_size=4), st.dictionaries(words, values, max_size=4), st.booleans())
def test_the_laws_hold_for_any_schema(properties: Any, value: Any, own: bool) -> None:
    validator = Validator({"type": "object", "properties": properties, "additionalProperties": False})
    answer = preflight(value, validator, own=own)
    if isinstance(answer, Failure):
        assert answer.data is not None
        assert "example" not in answer.data or validator.is_valid(answer.data["example"])
        return
    assert validator.is_valid(answer.arguments)
    again = preflight(answer.arguments, validator, own=own)
    assert isinstance(again, Prepared)
    assert canonical(again.arguments) == canonical(answer.arguments)


@settings(QUICK, max_examples=400)
@given(
    st.dictionaries(words, schemas, max_size=4), st.sets(words, max_size=3), st.dictionaries(words, values, max_size=4),
    st.booleans(), st.booleans(), st.sampled_from([{}, {"blank": "absent"}, {"additionalProperties": False}]),
)  # fmt: skip
def test_every_example_in_a_bounce_passes_preflight_as_it_is(
    properties: Any, required: set[str], value: Any, own: bool, typed: bool, more: Any
) -> None:
    needed = sorted(required & properties.keys())
    schema = {"type": "object", "properties": properties, "required": needed, **more}
    validator = Validator(schema, typed=typed)
    answer = preflight(value, validator, own=own)
    if isinstance(answer, Prepared):
        return
    assert answer.data is not None
    example = answer.data.get("example")
    if example is not None:
        again = preflight(example, validator, own=own)
        assert isinstance(again, Prepared), again
        assert again.arguments is example
        assert again.repairs == again.warnings == ()


def as_text_values(value: dict[str, Any]) -> dict[str, Any]:
    """Every value that is no text as JSON text; where text fits too it would mean something else."""
    kept = {"either": value["either"]} if "either" in value else {}
    spoiled = {key: held if isinstance(held, str) or held is None else json.dumps(held) for key, held in value.items()}
    return {**spoiled, **kept}


SPOILED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "fenced": lambda value: f"```json\n{json.dumps(value)}\n```",
    "double-encoded": lambda value: json.dumps(json.dumps(value)),
    "wrapped": lambda value: {"arguments": value},
    "with text after it": lambda value: f"{json.dumps(value)}\nThat is all.",
    "as Python": repr,
    "with a trailing comma": lambda value: json.dumps(value)[:-1] + ",}",
    "with other keys": lambda value: {key.upper().replace("_", "-"): held for key, held in value.items()},
    "with values as text": as_text_values,
    "with raw line breaks": lambda value: json.dumps(value).replace("\\n", "\n"),
    "in a list": lambda value: [value],
    "with nulls": lambda value: {"b": None, "f": "", **value},
    "with comments": lambda value: "/* the call */ " + json.dumps(value, indent=1).replace("\n", " // so\n"),
    "with odd spaces": lambda value: (
        "\ufeff" + json.dumps(value, indent=1, separators=(",\u00a0", "\u2003:")) + "\u200b"
    ),
    "with odd spaces around keys": lambda value: {f"\u00a0{key}\ufeff": held for key, held in value.items()},
    "in doubled braces": lambda value: "{" + json.dumps(value) + "}",
    "with every brace doubled": lambda value: json.dumps(value).replace("{", "{{").replace("}", "}}"),
    "as a call": lambda value: {"name": "t", "arguments": value},
    "as a provider's call": lambda value: {
        "type": "function",
        "function": {"name": "t", "arguments": json.dumps(value)},
    },
    "as a schema": lambda value: {"type": "object", "properties": value},
    "in a tag": lambda value: f"<tool_call>\n{json.dumps(value)}\n</tool_call>",
    "with a label": lambda value: f"Here are the arguments: {json.dumps(value)}",
    "in parentheses": lambda value: f"t({json.dumps(value)});",
    "in smart quotes": lambda value: json.dumps(value, ensure_ascii=False).replace('"', "”"),
    "in entities": lambda value: html.escape(json.dumps(value)),
    "with quotes escaped": lambda value: json.dumps(json.dumps(value))[1:-1],
    "with tuples": lambda value: repr(
        {key: (*held,) if isinstance(held, list) else held for key, held in value.items()}
    ),
}


@settings(QUICK, max_examples=300)
@given(st.data(), names, st.sampled_from(sorted(SPOILED)))
def test_a_spoiled_call_is_refused_or_means_what_it_meant(data: st.DataObject, name: str, spoiler: str) -> None:
    value = data.draw(instances(SCHEMAS[name]))
    whole = preflight(value, VALIDATORS[name])
    if isinstance(whole, Failure):
        return
    spoiled = SPOILED[spoiler](value)
    answer = preflight(json.dumps(spoiled) if isinstance(spoiled, list) else spoiled, VALIDATORS[name])
    if isinstance(answer, Prepared) and not VALIDATORS[name].is_valid(spoiled):
        assert canonical(answer.arguments) == canonical(whole.arguments)


@pytest.mark.parametrize("spoiler", sorted(SPOILED))
def test_each_way_to_spoil_a_plain_call_is_repaired(spoiler: str) -> None:
    value = {"n": 1, "s": "a\nb", "tags": ["x"], "max_depth": 3}
    answer = preflight(
        json.dumps(SPOILED[spoiler](value)) if spoiler == "in a list" else SPOILED[spoiler](value), VALIDATORS["flat"]
    )
    assert isinstance(answer, Prepared)
    assert answer.arguments == value
    assert answer.repairs


CUT_SHORT: dict[str, Callable[[str], str]] = {
    "a key after an early brace": lambda text: text.replace(', "', '}, "', 1),
    "a key after an early brace in other quotes": lambda text: text.replace(', "', "}, '", 1).replace('":', "':", 1),
    "a key after an early brace on another line": lambda text: text.replace(', "', '}\n, "', 1),
    "a bare key after an early brace": lambda text: text.replace(', "', "} ", 1).replace('":', ":", 1),
}


@settings(QUICK, max_examples=300)
@given(st.data(), names, st.sampled_from(sorted(CUT_SHORT)), st.booleans())
def test_a_call_whose_brace_closes_early_never_runs_with_less(
    data: st.DataObject, name: str, spoiler: str, twice: bool
) -> None:
    value = data.draw(instances(SCHEMAS[name]))
    whole = preflight(value, VALIDATORS[name])
    text = CUT_SHORT[spoiler](json.dumps(value))
    answer = preflight(json.dumps(text) if twice else text, VALIDATORS[name])
    if isinstance(answer, Prepared) and isinstance(whole, Prepared):
        assert canonical(answer.arguments) == canonical(whole.arguments)
