"""A call that was cut is refused or is the whole call, wherever it was cut."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail.schema.extract import find
from handrail.schema.parse import canonical
from handrail.schema.prepare import Prepared, prepare
from handrail.schema.validate import Validator
from tests.schema.generate import instances
from tests.schema.shapes import SCHEMAS, VALIDATORS, closed

KNOWN = ("bash", "write", "read")
INNER = '{"name": "read", "arguments": {"path": "b"}}'
WRITTEN = [
    '{"command": "rm -rf /tmp/build/cache", "timeout": 10}',
    "{'command': 'rm -rf /tmp/build/cache', 'timeout': 10}",
    '```json\n{"command": "rm -rf /tmp/build/cache", "timeout": 10,}\n```',
    json.dumps('{"command": "rm -rf /tmp/build/cache", "timeout": 10}'),
    '{"arguments": {"command": "rm -rf /tmp/build/cache", "timeout": "10"}}',
    '{command: "rm -rf /tmp\n/build", timeout: 10} that is all',
    '<tool_call>{{"command": "rm -rf /tmp/build/cache", /* seconds */ "timeout": 10}}</tool_call>',
    '{"name": "t", "arguments": "{\\"command\\": \\"rm -rf /tmp/build/cache\\", \\"timeout\\": 10}"}',
    't({\\"command\\": \\"rm -rf /tmp/build/cache\\", \\"timeout\\": 10});',
    "Arguments:\n```json\n{“command”: “rm -rf /tmp/build/cache”, “timeout”: 10}\n```",
]
AS_TEXT = [
    '<tool_call>\n{"name": "write", "arguments": {"path": "a", "content": "x {y} \\"z\\""}}\n</tool_call>',
    f'```json\n{{"name": "write", "arguments": {{"path": "a", "content": {INNER}}}}}\n```',
    f"write(path=\"a\", content='{INNER}')",
    'write(path="a", content="""\nread(path="b")\n""")',
    'write(path="a", content="""\n```python\nread(path="b")\n```\n""")',
    f'I shall write.\n{{"name": "write", "arguments": {{"extra": {INNER}, "path": "a"}}}}',
    "{'name': 'write', 'arguments': {'path': 'a', 'content': 'it is'}}",
    f'[{{"name": "write", "arguments": {{"path": "a"}}}}, {INNER}]',
    f'write\n{{"path": "a", "content": {INNER}}}',
    f'write({{"path": "a", "content": {INNER}}});',
    '{{"name": "write", "params": {{"path": "a"}}}}',
    'write(path="a", content="x");',
]


def run(text: str, name: str) -> Any:
    answer = prepare(text, VALIDATORS[name], own=True, convert=None, cut=False, tool="t")
    return canonical(answer.arguments) if isinstance(answer, Prepared) else None


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.data(), st.sampled_from(sorted(set(SCHEMAS) - {"none"})), st.sampled_from([None, 1]), st.booleans())
def test_every_prefix_of_a_generated_call_is_refused_or_is_the_whole(
    data: st.DataObject, name: str, indent: int | None, twice: bool
) -> None:
    value = data.draw(instances(SCHEMAS[name]))
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    text = json.dumps(text) if twice else text
    whole = run(text, name)
    assert whole is not None or not VALIDATORS[name].is_valid(value)
    for end in range(len(text)):
        assert run(text[:end], name) in (None, whole)


@pytest.mark.parametrize("text", WRITTEN)
def test_every_prefix_of_a_call_that_needs_repair_is_refused_or_is_the_whole(text: str) -> None:
    schema = {"command": {"type": "string"}, "timeout": {"type": "integer"}, "dry": {"type": "boolean"}}
    validator = Validator(closed(schema, "command"))
    whole = prepare(text, validator, own=True, convert=None, cut=False, tool="t")
    assert isinstance(whole, Prepared)
    for end in range(len(text)):
        answer = prepare(text[:end], validator, own=True, convert=None, cut=False, tool="t")
        assert not isinstance(answer, Prepared) or answer.arguments == whole.arguments


@pytest.mark.parametrize("text", AS_TEXT)
def test_every_prefix_of_a_call_written_as_text_is_refused_or_is_the_whole(text: str) -> None:
    whole = find(text, KNOWN, cut=False)
    accepted = 0
    for end in range(len(text) + 1):
        found = find(text[:end], KNOWN, cut=False)
        accepted += found is not None
        assert found is None or (whole and (found.name, found.arguments) == (whole.name, whole.arguments))
    assert accepted or whole is None


def test_a_cut_call_is_never_run_even_when_it_looks_whole() -> None:
    answer = prepare('{"n": 1}', VALIDATORS["flat"], own=False, convert=None, cut=True, tool="t")
    assert not isinstance(answer, Prepared)
    assert "cut off" in answer.message
    assert isinstance(prepare('{"n": 1}', VALIDATORS["flat"], own=False, convert=None, cut=False, tool="t"), Prepared)
