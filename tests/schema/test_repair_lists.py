"""One value where a list is wanted is put into a list only where it cannot be several, or nothing."""

from typing import Any

import pytest

from handrail.contract.result import Failure
from handrail.schema.prepare import Prepared, prepare
from handrail.schema.validate import Validator
from tests.schema.shapes import INTEGER, STRING, closed

EDIT = closed({"old": STRING, "new": STRING, "replace_all": {"type": "boolean"}}, "old", "new")
LISTS = Validator(
    closed(
        {
            "tags": {"type": "array", "items": STRING},
            "ids": {"type": "array", "items": INTEGER},
            "file_paths": {"type": "array", "items": STRING},
            "imageUrls": {"type": "array", "items": STRING},
            "links": {"type": "array", "items": {"type": "string", "format": "uri"}},
            "scopes": {"type": "array", "items": {"enum": ["read", "Write", "two words", "none", "a/b"]}},
            "mixed": {"type": "array", "items": {"enum": ["a", "b", "a b"]}},
            "maybe": {"anyOf": [{"type": "array", "items": STRING}, {"type": "null"}]},
            "edits": {"type": "array", "items": EDIT},
            "records": {"type": "array", "items": {"type": "object"}},
            "open": {"type": "array", "items": {"type": "object", "properties": {"name": STRING}}},
            "env": {"type": "object", "additionalProperties": STRING},
            "pairs": {"type": "array", "items": STRING, "minItems": 2},
        }
    )
)


def answer(name: str, value: Any) -> Any:
    return prepare({name: value}, LISTS, own=False, convert=None, cut=False, tool="t")


WRAPPED: list[tuple[str, Any, Any]] = [
    *[("tags", word, [word]) for word in ("bug", "v1.2", "C:\\x", "a:b", "größe", "日本", "*", "key=value", "x@y")],
    *[("tags", path, [path]) for path in ("/etc/hosts", "./a/b", "../a", "~/x", "http://x/y?z=1")],
    ("file_paths", "src/a.py", ["src/a.py"]),
    ("imageUrls", "x.org/a.png", ["x.org/a.png"]),
    ("links", "x.org/a", ["x.org/a"]),
    ("maybe", "bug", ["bug"]),
    ("ids", 7, [7]),
    ("ids", "7", [7]),
    ("scopes", "read", ["read"]),
    ("scopes", "WRITE", ["Write"]),
    ("scopes", "two words", ["two words"]),
    ("scopes", "none", ["none"]),
    ("scopes", "a/b", ["a/b"]),
    *[("scopes", f"read{mark}write", ["read", "Write"]) for mark in (",", ", ", ";", " | ", "/", "&", " ", "\n")],
    *[("scopes", f"read{mark}write", ["read", "Write"]) for mark in ("、", "，", "؛", "｜", "／")],
    ("scopes", "two words, read", ["two words", "read"]),
    ("edits", {"old": "a", "new": "b"}, [{"old": "a", "new": "b"}]),
    ("edits", {"Old": "a", "new": "b", "replace_all": "true"}, [{"old": "a", "new": "b", "replace_all": True}]),
    ("edits", '{"old": "a", "new": "b"}', [{"old": "a", "new": "b"}]),
    ("open", {"name": "x"}, [{"name": "x"}]),
    ("records", {"a": 1}, [{"a": 1}]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "sent", "meant"), WRAPPED, ids=str)
def test_one_thing_is_put_into_a_list_with_a_warning_and_counts_as_changed(name: str, sent: Any, meant: Any) -> None:
    found = answer(name, sent)
    assert isinstance(found, Prepared), found
    assert found.arguments == {name: meant}
    assert any("→" in warning for warning in found.warnings)
    assert found.doubtful


REFUSED: list[tuple[str, Any]] = [
    *[("tags", text) for text in (
        "a b", "a\tb", "a\u00a0b", "a\u3000b", "a\u200bb", " a", "a,b", "a, b", "a;b", "a|b", "a&b", "a/b", "and/or",
        "a，b", "a、b", "a؛b", "a；b", "a\u037eb", "a｜b", "a／b", "a＆b", "a،b", '"a"', "'a'", "`a`", "“a”", "„a“",
        "«a»", "「a」", "＂a＂", "(a)", "[a", "a]", "{a}", "<a>", "＜a＞", "（a）", "", " ",
        "-waitTime 2 -iterations 500",
        "width and height", "http://x/?a=1&b=2", "/a /b",
    )],
    *[("tags", word) for word in ("none", "None", "NULL", "n/a", "N/A", "undefined", "-", "--", "—", "nil")],
    ("file_paths", "n/a"), ("file_paths", "a.py,b.py"), ("file_paths", "a.py b.py"), ("imageUrls", "-"),
    ("ids", "seven"), ("ids", "1, 2"), ("tags", None), ("tags", True), ("pairs", "a"),
    ("scopes", "read and write"), ("scopes", "read, execute"), ("scopes", "read,"), ("scopes", "rea"),
    ("mixed", "a b"),
    ("edits", {"old": "a"}), ("edits", {}), ("edits", {"0": {"old": "a", "new": "b"}}), ("edits", {"path": "x"}),
    ("open", {"title": "x"}), ("open", {"key": "a", "value": "b"}),
    ("records", {"items": [{"a": 1}, {"a": 2}]}), ("records", {"a": {"b": 1}, "c": {"b": 2}}),
    ("tags", {"a": 1}),
    ("env", [{"key": "HOME", "value": "/root"}]), ("env", [["HOME", "/root"]]), ("env", [{"name": "A", "value": "b"}]),
    ("env", '[{"key": "HOME", "value": "/root"}]'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "sent"), REFUSED, ids=str)
def test_what_may_be_several_or_nothing_bounces(name: str, sent: Any) -> None:
    found = answer(name, sent)
    assert isinstance(found, Failure) or (found.arguments == {} and sent in ("", " ", None))


@pytest.mark.parametrize("sent", ['[{"key": "HOME", "value": "/root"}]', '[["HOME", "/root"]]'])
def test_a_list_of_pairs_is_not_the_arguments(sent: str) -> None:
    free = Validator({"type": "object", "properties": {"home": STRING}})
    assert isinstance(prepare(sent, free), Failure)
    found = prepare('[{"home": "/root"}]', free)  # the control
    assert isinstance(found, Prepared)
    assert found.arguments == {"home": "/root"}


PAIRS = [{"key": 1, "value": 2}, {"name": "A", "value": "1"}, {"name": "A", "value": "1", "type": "string"}, {"A": "1"}]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_an_object_without_a_declared_key_is_never_taken_out_of_its_list(pair: dict[str, Any]) -> None:
    variables, target = {"type": "object"}, {"type": "object", "properties": {"file": STRING}}
    checks = Validator(closed({"env": variables, "at": target}))
    control = prepare({"at": [{"file": "a"}]}, checks, tool="t")
    assert isinstance(control, Prepared)
    assert control.arguments == {"at": {"file": "a"}}
    for name in ("env", "at"):
        assert isinstance(prepare({name: [pair]}, checks, tool="t"), Failure)


@pytest.mark.parametrize(
    "text", ["read,,Write", "read, ,Write", ",read,Write", "read,Write,", "read; ;Write", "read,,Write none"]
)
def test_a_list_of_members_with_an_empty_part_bounces(text: str) -> None:
    control = answer("scopes", "read,Write")
    assert isinstance(control, Prepared)
    assert control.arguments == {"scopes": ["read", "Write"]}
    assert isinstance(answer("scopes", text), Failure)
