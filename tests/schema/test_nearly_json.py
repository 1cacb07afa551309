"""Text around and inside one object: what is taken for spelling, and what is never dropped."""

import json
from typing import Any

import pytest

from handrail import Session, tool
from handrail.contract.result import Failure
from handrail.schema.prepare import Prepared, prepare
from handrail.schema.validate import Validator
from tests.schema.shapes import OPEN_SCHEMA, VALIDATORS, closed

TEXT = {"type": "string"}
SHELL = Validator(closed({"command": TEXT, "cwd": TEXT, "max_lines": {"type": "integer"}}, "command"))
CALL = '{"command": "ls"}'


def sent(text: Any, validator: Validator = SHELL, name: str = "shell") -> Prepared | Failure:
    return prepare(text, validator, tool=name)


def arguments(text: Any, validator: Validator = SHELL, name: str = "shell") -> Any:
    answer = sent(text, validator, name)
    return answer.arguments if isinstance(answer, Prepared) else None


NEVER_DROPPED = [
    ', "cwd": "sub"}', ', cwd: "sub"}', ", 'cwd': 'sub'}", '} "cwd": "sub"', "\n, cwd=sub}", " cwd sub", " in the CWD",
    " max lines 5", " maxLines 5", " Max-Lines", ",", ", true}", ", 5", " 5", " “cwd” sub", " cwd：sub",
    " sub：dir", " a = b", " note: x", ' say "x"', " `x`", " {", " [", ' {"command": "rm"}', " && rm -rf x", " | sh",
    " /tmp/x", " -la", " --force", " $HOME", " \\", " <tool_call>", " done}", ' // "cwd": "sub"}', "}, x", " it_is",
    "\nsub</cwd>", "</command>sub</cwd>", "<|cwd|>sub", "</max_lines>", "</tool:cwd>", " ｃｗｄ sub",
    " ＭＡＸ ＬＩＮＥＳ", "，sub", "、sub", "\u060c sub", "，cwd是sub", " 在cwd里", " sub\u02d0 dir", "}，sub",
]  # fmt: skip
DROPPED = [
    "}", "}}", "]", ")", ");", ";", "\n```", "```\n", "</tool_call>", "</arguments></tool_call>", "}</invoke>",
    "<|im_end|>", "\n```\n</tool_call>", " That is all.", "\nDone!", " and so on", " (as asked)", "; done",
    "} I hope this helps. \n```", " // done", " # done", "\u00a0", "\ufeff", " ✅", " Voilà, c est tout.",
]  # fmt: skip


@pytest.mark.parametrize("rest", NEVER_DROPPED)
@pytest.mark.parametrize("call", [CALL, "{'command': 'ls'}", f"[{CALL}]", f"```json\n{CALL}"])
def test_what_follows_an_early_closing_brace_is_never_dropped(call: str, rest: str) -> None:
    assert arguments(call) == {"command": "ls"}
    assert arguments(call + rest) is None
    assert arguments(json.dumps(call + rest)) is None


@pytest.mark.parametrize("rest", DROPPED)
def test_closers_fences_tags_and_plain_prose_after_the_object_are_dropped_with_a_warning(rest: str) -> None:
    answer = sent(CALL + rest)
    assert isinstance(answer, Prepared)
    assert answer.arguments == {"command": "ls"}
    assert answer.warnings or not rest.strip()
    assert answer.doubtful == ()


CHINESE = Validator(closed({"命令": TEXT, "目录": TEXT, "größe": TEXT}, "命令"))


@pytest.mark.parametrize(
    "rest", ["，目录是sub", " 目录sub", " 请在目录里", "\nsub</目录>", "。目 录", " GRÖSSE", " die Gro\u0308ße"]
)
def test_a_declared_key_in_a_text_without_spaces_is_never_dropped(rest: str) -> None:
    call = '{"命令": "ls"}'
    assert arguments(call + " 好的。", CHINESE) == {"命令": "ls"}  # the control: prose in the same script
    assert arguments(call + rest, CHINESE) is None


WHERE = '{"line": 1}'


@pytest.mark.parametrize("rest", [', "note": "x"}', " note x", " where x", ', "zz": 1}', ' {"line": 2}', ",", " = 2"])
def test_inside_a_field_nothing_is_dropped_either(rest: str) -> None:
    nested = VALIDATORS["nested"]
    assert arguments({"where": WHERE}, nested) == {"where": {"line": 1}}
    assert arguments({"where": WHERE + rest}, nested) is None
    assert arguments(json.dumps({"where": WHERE + rest}), nested) is None
    assert arguments({"where": WHERE + " that is all"}, nested) == {"where": {"line": 1}}


@pytest.mark.parametrize("rest", [', "c"]', ", c", ' "s"', " tags"])
def test_after_a_list_in_a_field_nothing_is_dropped_either(rest: str) -> None:
    flat = VALIDATORS["flat"]
    assert arguments({"n": 1, "ids": "[1, 2]]"}, flat) == {"n": 1, "ids": [1, 2]}
    assert arguments({"n": 1, "ids": "[1, 2]" + rest}, flat) is None


@pytest.mark.anyio
async def test_a_tool_never_runs_without_the_keys_after_an_early_brace() -> None:
    ran: list[tuple[str, str]] = []

    @tool(name="shell")
    async def shell(command: str, cwd: str = ".") -> None:
        ran.append((command, cwd))

    async with Session([shell]) as session:
        result = await session.call("shell", '{"command": "rm -rf build"}, "cwd": "sub"}')
        assert (await session.call("shell", '{"command": "rm -rf build", "cwd": "sub"}')).ok  # the control
        assert (await session.call("shell", '{"name": "shell", "arguments": {"command": "ls"}}')).ok
    assert getattr(result, "kind", None) == "invalid_args"
    assert ran == [("rm -rf build", "sub"), ("ls", ".")]


def test_the_bounce_shows_what_came_after_the_object() -> None:
    for text in ('{"command": "rm -rf build"}, "cwd": "sub"}', "{'command': 'rm -rf build'}, 'cwd': 'sub'}"):
        answer = sent(text)
        assert isinstance(answer, Failure)
        assert "after the end of the object" in answer.message
        assert "cwd" in answer.message.partition("example")[0]


LIST = Validator(closed({"pair": {"type": "array", "items": {"type": "integer"}}, "s": TEXT}))
ONE_MEANING: dict[str, tuple[str, Any]] = {
    "a line comment": ('{"command": "ls", // list\n "cwd": "a"}', {"command": "ls", "cwd": "a"}),
    "a block comment": ('/* x */ {"command": /* "rm" */ "ls"} /* done */', {"command": "ls"}),
    "a hash comment": ('{\n# the command\n"command": "ls" # list\n}', {"command": "ls"}),
    "what looks like a comment in a string": ('{"command": "a // b /* c */ # d",}', {"command": "a // b /* c */ # d"}),
    "a byte order mark": ("\ufeff" + CALL, {"command": "ls"}),
    "exotic white space between tokens": (
        '\u00a0{\u2003"command"\u00a0:\u3000"ls"\u200b,\u2028"cwd": "a\u00a0"}', {"command": "ls", "cwd": "a\u00a0"}
    ),
    "exotic white space around a key": ('{"\ufeffcommand\u00a0": "ls"}', {"command": "ls"}),
    "doubled braces": ('{{"command": "ls"}}', {"command": "ls"}),
    "doubled braces with spaces": ('{ {"command": "ls"} }', {"command": "ls"}),
    "an escaped single quote": ('{"command": "echo \'it\\\'s\'"}', {"command": "echo 'it's'"}),
    "smart quotes": ("{“command”: “ls -l”, “cwd”: ‘a’}", {"command": "ls -l", "cwd": "a"}),
    "entities for quotes": ("{&quot;command&quot;: &quot;ls -l&quot;}", {"command": "ls -l"}),
    "quotes escaped without need": ('{\\"command\\": \\"ls -l\\"}', {"command": "ls -l"}),
    "an opening tag": (f"<tool_call>{CALL}", {"command": "ls"}),
    "a tag around it": (f"<arguments>\n{CALL}\n</arguments>", {"command": "ls"}),
    "a tag that names the tool": (f"<function=shell>{CALL}</function>", {"command": "ls"}),
    "tags around a fence": (f"<tool_call>\n```json\n{CALL}\n```\n</tool_call>", {"command": "ls"}),
    "the word json": (f"json\n{CALL}", {"command": "ls"}),
    "a label": (f"Arguments: {CALL}", {"command": "ls"}),
    "an assignment": (f"arguments = {CALL};", {"command": "ls"}),
    "a polite prefix": (f"Sure, here are the arguments:\n```json\n{CALL}\n```\nDone.", {"command": "ls"}),
    "the tool's name": (f"shell\n{CALL}", {"command": "ls"}),
    "the tool's name and parentheses": (f"shell({CALL})", {"command": "ls"}),
}  # fmt: skip
COUNTED = {
    "entities in a value": ("{&quot;command&quot;: &quot;a &amp;&amp; b&quot;}", {"command": "a && b"}),
    "an apostrophe as an entity": ("{&quot;command&quot;: &quot;it&#x27;s&quot;}", {"command": "it's"}),
    "quotes inside smart quotes": ("{“command”: “echo 'a'”}", {"command": "echo 'a'"}),
    "a typographic apostrophe inside smart quotes": ("{“command”: “echo it’s”}", {"command": "echo it’s"}),
    "escapes in a value": ('{\\"command\\": \\"a\\\\tb\\"}', {"command": "a\tb"}),
    "quotes in a value": ('{\\"command\\": \\"echo \\\\\\"a\\\\\\"\\"}', {"command": 'echo "a"'}),
    "a quote inside single quotes": ("{'command': 'echo \"a\"'}", {"command": 'echo "a"'}),
    "an escape inside single quotes": (r"{'command': 'a\tb'}", {"command": "a\tb"}),
}
NOT_ONE_MEANING = {
    "a comment that is not closed": '{"command": "ls" /* }',
    "a comment that swallows the end": '{"command": "ls" // }',
    "a comment with a doubtful end": '{"command": "ls" // a\u2028, "cwd": "b"\n}',
    "three braces": '{{{"command": "ls"}}}',
    "doubled braces closed once": '{{"command": "ls"}',
    "two objects in braces": '{{"command": "ls"}, {"command": "rm"}}',
    "a key after doubled braces": '{{"command": "ls"}, "cwd": "a"}',
    "doubled braces in a value too": '{{"command": "echo {{x}}"}}',
    "smart quotes inside smart quotes": "{“command”: “echo “a””}",
    "smart quotes that are not closed": "{“command”: “ls}",
    "one kind of quote opened and another closed": '{“command": “ls”}',
    "entities and quotes": '{&quot;command&quot;: "ls"}',
    "an ampersand beside entities": "{&quot;command&quot;: &quot;a && b&quot;}",
    "entities that are cut": "{&quot;command&quot;: &quot;ls&quot;",
    "escaped quotes that are cut": '{\\"command\\": \\"ls',
    "a tag that names another tool": f"<function=other>{CALL}</function>",
    "a tag that is a declared key": f"<cwd>{CALL}</cwd>",
    "another tool's name": f"other\n{CALL}",
    "another tool's call": f"other({CALL})",
    "parentheses that are not closed": f"shell({CALL}",
    "a key before the object": f'"cwd": "sub", {CALL}',
    "a word before the object": f"cwd: {CALL}",
    "unknown words before the object": f"never do this: {CALL}",
    "duplicate keys": '{“command”: “a”, “command”: “b”}',
    "NaN": '{"command": "ls", "max_lines": NaN, /* x */}',
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_MEANING)
def test_a_spelling_with_one_meaning_is_repaired_with_a_warning_and_leaves_values_as_sent(name: str) -> None:
    text, meant = ONE_MEANING[name]
    answer = sent(text)
    assert isinstance(answer, Prepared), answer
    assert answer.arguments == meant
    assert any("→" in warning for warning in answer.warnings)
    assert not any(repair.changed_value for repair in answer.repairs)


@pytest.mark.parametrize("name", COUNTED)
def test_a_text_with_quotes_or_escapes_that_had_to_be_read_anew_counts_as_changed(name: str) -> None:
    text, meant = COUNTED[name]
    answer = sent(text)
    assert isinstance(answer, Prepared), answer
    assert answer.arguments == meant
    assert [repair.path for repair in answer.repairs if repair.loud and repair.changed_value] == ["command"]


@pytest.mark.parametrize("name", NOT_ONE_MEANING)
def test_a_spelling_with_two_meanings_or_none_is_refused(name: str) -> None:
    assert arguments(NOT_ONE_MEANING[name]) is None


@pytest.mark.parametrize("name", [*ONE_MEANING, *COUNTED])
def test_every_prefix_of_such_a_spelling_is_refused_or_is_the_whole(name: str) -> None:
    text, meant = {**ONE_MEANING, **COUNTED}[name]
    for end in range(len(text)):
        assert arguments(text[:end]) in (None, meant)


@pytest.mark.parametrize(
    ("text", "meant"), [("(1, 2)", [1, 2]), ("(1,)", [1]), ("()", []), ("(1)", None), ("(1, 2", None), ("(1, 2]", None)]
)
def test_a_tuple_is_a_list(text: str, meant: Any) -> None:
    expected = None if meant is None else {"pair": meant}
    assert arguments(f'{{"pair": {text}}}', LIST) == expected
    assert arguments({"pair": text}, LIST) == expected
    answer = sent('{"pair": (1, 2)}', LIST)
    assert isinstance(answer, Prepared)
    assert [(repair.rule, repair.changed_value) for repair in answer.repairs] == [("tuple", False)]


def test_words_for_python_literals_and_plain_single_quotes_leave_values_as_sent() -> None:
    answer = sent("{'n': 1, 'b': True, 's': 'plain'}", VALIDATORS["flat"])
    assert isinstance(answer, Prepared)
    assert answer.warnings
    assert not any(repair.changed_value for repair in answer.repairs)


WRAPPED = [
    *({first: "t", second: {"n": 1}} for first in ("name", "tool", "function")
      for second in ("arguments", "parameters", "input", "args")),
    {"name": "t", "arguments": '{"n": 1}'},
    {"name": "t", "arguments": "{'n': 1}"},
    {"name": "t", "arguments": {"n": "1"}},
    {"type": "function", "name": "t", "parameters": {"n": 1}},
    {"type": "function", "function": {"name": "t", "arguments": '{"n": 1}'}},
    {"name": "t", "arguments": {"name": "t", "arguments": {"n": 1}}},
    {"type": "object", "properties": {"n": 1}},
]  # fmt: skip
NOT_WRAPPED: list[Any] = [
    {"name": "other", "arguments": {"n": 1}},
    {"name": "T", "arguments": {"n": 1}},
    {"type": "function", "function": {"name": "other", "arguments": {"n": 1}}},
    {"name": "t", "arguments": {"n": 1}, "s": "x"},
    {"name": "t", "arguments": {"n": 1}, "args": {"n": 2}},
    {"type": "function", "function": {"name": "t", "arguments": {"n": 1}}, "s": "x"},
    {"name": "t", "arguments": "n"},
    {"name": "t", "arguments": [1]},
    {"name": "t", "arguments": '{"n": 1}, "s": "x"}'},
    {"type": "call", "name": "t", "arguments": {"n": 1}},
    {"type": "object", "properties": {"n": {"type": "integer"}}},
    {"type": "object", "properties": {"zz": 1}},
    {"type": "object", "properties": {"n": 1}, "required": ["n"]},
]
OPEN = Validator(OPEN_SCHEMA)
LOOSE = Validator({"type": "object", "properties": {"n": {"type": "integer"}}})


@pytest.mark.parametrize("wrapped", WRAPPED, ids=json.dumps)
@pytest.mark.parametrize("validator", [VALIDATORS["flat"], OPEN, LOOSE], ids=["closed", "open", "loose"])
def test_a_call_of_this_tool_inside_its_arguments_is_unwrapped(wrapped: Any, validator: Validator) -> None:
    for text in (wrapped, json.dumps(wrapped), json.dumps([wrapped])):
        answer = sent(text, validator, "t")
        assert isinstance(answer, Prepared), answer
        assert answer.arguments == {"n": 1}
        assert answer.repairs
        assert not any(repair.changed_value and repair.loud for repair in answer.repairs)


@pytest.mark.parametrize("wrapped", NOT_WRAPPED, ids=json.dumps)
def test_a_call_of_another_tool_or_with_something_beside_it_is_not_unwrapped(wrapped: Any) -> None:
    for text in (wrapped, json.dumps(wrapped)):
        assert arguments(text, VALIDATORS["flat"], "t") is None
        assert arguments(text, OPEN, "t") is None


def test_another_tools_name_bounces_even_where_anything_is_accepted() -> None:
    answer = sent({"name": "other", "arguments": {"n": 1}}, LOOSE, "t")
    assert isinstance(answer, Failure)
    assert "other" in answer.message
    said = Validator({**LOOSE.schema, "additionalProperties": True})
    kept = {"name": "other", "arguments": {"n": 1}}
    assert arguments(kept, said, "t") is kept


def test_a_declared_key_is_no_wrapper_unless_the_inner_object_has_it_too() -> None:
    named = Validator(closed({"name": TEXT, "n": {"type": "integer"}}, "name"))
    assert arguments({"name": "t", "arguments": {"name": "x", "n": 1}}, named, "t") == {"name": "x", "n": 1}
    assert arguments({"name": "t", "arguments": {"n": 1}}, named, "t") is None
    both = Validator(closed({"name": TEXT, "arguments": {"type": "object"}}))
    kept = {"name": "t", "arguments": {"name": "x"}}
    assert arguments(kept, both, "t") is kept


def test_a_call_without_arguments_inside_its_arguments_is_a_call_without_arguments() -> None:
    for inner in ({}, "{}", "", None):
        assert arguments({"name": "t", "arguments": inner}, VALIDATORS["none"], "t") == {}


@pytest.mark.parametrize("blank", ["", " "])
def test_a_blank_for_an_optional_choice_from_outside_is_left_out(blank: str) -> None:
    choice = {"type": "string", "enum": ["fast", "slow"]}
    assert arguments({"mode": blank}, Validator(closed({"mode": choice}))) == {}
    assert arguments({"mode": blank}, Validator(closed({"mode": {"anyOf": [choice, {"type": "null"}]}}))) == {}
    assert arguments({"mode": blank}, Validator(closed({"mode": choice}, "mode"))) is None
    assert arguments({"mode": blank}, Validator(closed({"mode": {**TEXT, "minLength": 2}}))) is None
    assert arguments({"mode": ""}, Validator(closed({"mode": {"enum": ["", "a"]}}))) == {"mode": ""}


@pytest.mark.parametrize("after", ["//4\n", "/*4*/", "#4\n", "/4", "// 4\n"])
def test_a_comment_that_touches_a_number_may_be_a_part_of_it_and_bounces(after: str) -> None:
    assert arguments('{"command": "ls", "max_lines": 3 ' + after.removeprefix("/4") + "}") is not None  # the control
    assert arguments('{"command": "ls", "max_lines": 3' + after + "}") is None
