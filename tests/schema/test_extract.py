"""A call written as text is found when exactly one candidate names a known tool."""

import pytest

from handrail.schema.extract import FoundCall, find

KNOWN = frozenset({"read", "write"})
CALL = '{"name": "read", "arguments": {"path": "a"}}'
READ = ("read", '{"path": "a"}')

FOUND = {
    "tagged": f"<tool_call>\n{CALL}\n</tool_call>",
    "tagged without an end": f"<tool_call>{CALL}",
    "fenced": f"```json\n{CALL}\n```",
    "fenced with prose": f"I will look.\n```json\n{CALL}\n```\nThen I go on.",
    "bare": CALL,
    "bare with prose around": f"Let me see: {CALL} - that is it.",
    "parameters for arguments": '{"tool": "read", "parameters": {"path": "a"}}',
    "a list of one": f"[{CALL}]",
    "a provider's shape": '{"tool_calls": [{"function": {"name": "read", "arguments": "{\\"path\\": \\"a\\"}"}}]}',
    "python": 'read(path="a")',
    "python in a fence": '```python\nread(path="a")\n```',
    "python on its own line": 'I will look.\nread(path="a")\nThen I go on.',
    "python in a list": '[read(path="a")]',
    "another object names no known tool": f'{{"name": "delete", "arguments": {{}}}} {CALL}',
    "its name above its arguments": 'read\n{"path": "a"}',
    "its name above its arguments in a tag": '<tool_call>read\n{"path": "a"}\n</tool_call>',
    "its name above its arguments after prose": 'I will look.\n\nread\n\n{"path": "a"}\n\nThen: "I go on".',
    "its name above a whole call": f"read\n{CALL}",
    "arguments in parentheses": 'read({"path": "a"})',
    "arguments in parentheses in a fence": '```js\nread({"path": "a"});\n```',
    "params for arguments": '{"name": "read", "params": {"path": "a"}}',
    "params and a missing brace": '{"name": "read", "params": {"path": "a"}',
    "python and a semicolon": 'read(path="a");',
    "python and a semicolon on its own line": 'I will look.\nread(path="a") ;\nThen I go on.',
    "with an id and a thought": '{"thought": "x", "id": "1", "type": "function", ' + CALL[1:],
    "the missing brace of the call": CALL[:-1],
    "the missing brace in a tag": f"<tool_call>{CALL[:-1]}</tool_call>",
    "the missing brace in a fence": f"```json\n{CALL[:-1]}\n```",
}
NOT_FOUND = {
    "no call": "I have read the file (path a).",
    "an unknown tool": '{"name": "delete", "arguments": {"path": "a"}}',
    "a near name": '{"name": "Read", "arguments": {"path": "a"}}',
    "two calls": f"{CALL} {CALL}",
    "two calls of two kinds": f'{CALL}\nwrite(path="b")',
    "two python calls": 'read(path="a")\nwrite(path="b")',
    "no arguments": '{"name": "read"}',
    "arguments that are not whole": CALL[:-2],
    "something after the missing brace": CALL[:-1] + ", and so on",
    "python by position": 'read("a")',
    "python that computes": "read(path=input())",
    "python inside a sentence": 'Use read(path="a") for that.',
    "python that is not closed": 'read(path="a"',
    "a list that is not closed": f"[{CALL}, ",
    "inside an object that is not closed": f'{{"plan": {CALL}',
    "inside a python call that is not closed": f"write(content='{CALL}', path=",
    "an attribute": 'file.read(path="a")',
    "a key beside the arguments": CALL[:-1] + ', "limit": 3}',
    "a key before the arguments": '{"limit": 3, ' + CALL[1:],
    "a key after an early brace": CALL + ', "limit": 3}',
    "a bare key after an early brace": CALL + "}, limit: 3}",
    "a key after an early brace and a line": CALL + '\n, "limit": 3}',
    "a key beside the function": f'{{"function": {CALL}, "limit": 3}}',
    "a name above one call and another below": 'read\n{"path": "a"}\nwrite\n{"path": "b"}',
    "a name above the call of another": f"write\n{CALL}",
    "a name above arguments with a key after them": 'read\n{"path": "a"}, "limit": 3}',
    "a name above arguments that are cut": 'read\n{"path": "a"',
    "an unknown name above arguments": 'delete\n{"path": "a"}',
    "a fence in the language of a tool": '```read\n{"path": "a"}\n```',
    "a name inside a sentence above an object": 'This is what I read\n{"path": "a"}',
    "two arguments in parentheses": 'read({"path": "a"}, {"limit": 3})',
    "something beside the parentheses": 'read({"path": "a"}, limit=3)',
    "parentheses that are not closed": 'read({"path": "a"}',
    "duplicate keys in parentheses": 'read({"path": "a", "path": "b"})',
    "duplicate keys in a python dict": 'read(path={"a": 1, "a": 2})',
    "keys that are no text in a python dict": "read(path={1: 2})",
    "two python calls and semicolons": 'read(path="a"); write(path="b");',
    "python after an early parenthesis": 'read(path="a")\n, limit=3)',
}


@pytest.mark.parametrize("name", FOUND)
def test_a_call_is_found_in_each_form(name: str) -> None:
    found = find(FOUND[name], KNOWN, cut=False)
    assert found is not None
    assert (found.name, found.arguments.replace('":"', '": "')) == READ


@pytest.mark.parametrize("name", NOT_FOUND)
def test_what_is_not_exactly_one_whole_call_is_left_alone(name: str) -> None:
    assert find(NOT_FOUND[name], KNOWN, cut=False) is None


@pytest.mark.parametrize("name", FOUND)
def test_the_last_call_of_a_cut_answer_is_never_taken(name: str) -> None:
    assert find(FOUND[name], KNOWN, cut=True) is None


def test_a_supplied_brace_is_a_warning() -> None:
    supplied, whole = find(CALL[:-1], KNOWN, cut=False), find(CALL, KNOWN, cut=False)
    assert supplied is not None
    assert whole is not None
    assert "brace" in supplied.warnings[0]
    assert whole.warnings == ()


def test_what_a_call_holds_is_not_a_call_of_its_own() -> None:
    written = '{"name": "write", "arguments": {"content": "x = f.read(1)\\nread(path=\\"a\\")", "more": %s}}'
    found = find(written % CALL, KNOWN, cut=False)
    assert found is not None
    assert found.name == "write"


def test_arguments_are_given_as_they_were_written_for_preflight_to_judge() -> None:
    found = find("{'name': 'read', 'arguments': {'path': 1.10}}", KNOWN, cut=False)
    assert found == FoundCall("read", "{'path': 1.10}")


@pytest.mark.parametrize(
    "text", ["{" * 50_000, '{"a":' * 50_000, "read(" * 20_000, "[" * 50_000, "```" * 20_000, '{"a":1} ' * 50_000,
             'read(path="a")\n' * 20_000, "(" * 50_000 + "read(path=1)", "x" * 2_000_000, "read(path=" + "[" * 20_000]
)  # fmt: skip
def test_hostile_text_finds_nothing_and_does_not_raise(text: str) -> None:
    assert find(text, KNOWN, cut=False) is None
    assert find(text, (), cut=False) is None
