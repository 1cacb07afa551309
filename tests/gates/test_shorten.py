"""Each part of an answer has its own cap, is kept whole, and is cut once, by whoever knows it first."""

import json
from pathlib import Path
from typing import Any

import pytest

from handrail import Context, Failure, Session, Success, Tool, tool
from handrail.artifacts.store import Artifacts
from handrail.contract.truncated import Truncated, cut
from tests.gates.shaping import MARKER, OBJECT, Printed, answer, giving, numbered

pytestmark = pytest.mark.anyio


async def test_each_stream_has_its_own_cap_and_is_kept_whole() -> None:
    out, err = numbered(200_000), numbered(30_000)
    result, kept = await answer({"exit_code": 3, "stdout": out, "stderr": err, "cwd": "/w"})
    value = result.value
    assert (value["exit_code"], value["cwd"]) == (3, "/w")
    for name, whole, cap in (("stdout", out, 50_000), ("stderr", err, 10_000)):
        (mark,) = MARKER.finditer(value[name])
        assert int(mark["left"].replace(",", "")) == len(whole) - cap
        assert int(mark["total"].replace(",", "")) == len(whole)
        assert kept[mark["ref"]] == whole
        assert value[name][: mark.start()] == whole[: int(cap * 0.4)]
        assert value[name][mark.end() :] == whole[-int(cap * 0.6) :]
    assert len(result.warnings) == 2


async def test_streams_within_their_caps_are_left_alone() -> None:
    value = {"exit_code": 0, "stdout": "x" * 50_000, "stderr": "y" * 10_000}
    result, kept = await answer(value)
    assert result == Success(value)
    assert kept == {}


async def test_what_a_timed_out_command_printed_is_cut_in_the_failure_too() -> None:
    data = {"exit_code": 124, "stdout": numbered(200_000), "stderr": "", "ended_by": "timeout"}
    result, kept = await answer(Failure("timeout", "too long", data=data))
    assert not result.ok
    assert (result.kind, result.data["exit_code"], result.data["ended_by"]) == ("timeout", 124, "timeout")
    assert list(kept.values()) == [numbered(200_000)]


def printing(whole: str, head: int, tail: int) -> Truncated:
    """What a sandbox gives of a text: its ends, and a way to read the whole."""
    return Truncated(whole[:head], whole[-tail:], len(whole) - head - tail, len(whole), Printed(whole.encode()))


async def test_a_stream_that_the_sandbox_cut_is_not_cut_twice_and_shrinks_from_the_whole() -> None:
    whole = numbered(300_000)
    run = giving({"exit_code": 0, "stdout": printing(whole, 20_000, 30_000), "stderr": ""})
    async with Session([run]) as session:
        first = (await session.call("t")).value["stdout"]
        (mark,) = MARKER.finditer(first)
        kept = session.artifacts.info(mark["ref"])
        assert first == cut(whole, 50_000, kept)
        assert await session.artifacts.read(mark["ref"]) == whole.encode()
        session.tokens_left = 20_000
        assert (await session.call("t")).value["stdout"] == cut(whole, 10_000, kept)


@pytest.mark.parametrize("place", ["text", "in a list", "in a failure", "as the message"])
async def test_an_excerpt_anywhere_in_an_answer_is_kept_whole_and_named(place: str) -> None:
    whole = numbered(300_000)
    part = printing(whole, 8_000, 12_000)
    given: dict[str, Any] = {
        "text": part,
        "in a list": [{"exit_code": 0, "stdout": part, "stderr": "", "copy": part}],
        "in a failure": Failure("timeout", "m", data={"exit_code": 124, "stdout": part, "stderr": ""}),
        "as the message": Failure("execution_error", part),
    }
    result, kept = await answer(given[place])
    assert list(kept.values()) == [whole]
    assert len(result.warnings) == 1, result.warnings
    assert type(result.to_envelope("t").get("result", {}).get("text", "") if place == "text" else "") is str


async def test_what_cannot_be_kept_is_said_to_be_lost_and_the_count_stays_true(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("a file where a directory should be")
    whole = numbered(300_000)
    value = {"exit_code": 0, "stdout": printing(whole, 20_000, 30_000), "stderr": ""}
    for tokens, shown in ((None, 50_000), (20_000, 10_000)):
        async with Session([giving(value)], artifacts=Artifacts(str(tmp_path))) as session:
            session.tokens_left = tokens
            result = await session.call("t")
        assert result.ok
        (mark,) = MARKER.finditer(result.value["stdout"])
        assert (mark["left"], mark["total"], mark["ref"]) == (f"{300_000 - shown:,}", "300,000", None)
        assert any("lost" in warning for warning in result.warnings)


async def test_an_answer_that_was_cut_inside_another_call_is_not_cut_again() -> None:
    whole = numbered(300_000)

    @tool
    async def outer(context: Context, inner: str) -> Any:
        return (await context.use(inner)).value

    run = Tool("run", OBJECT, lambda c, a: {"exit_code": 0, "stdout": printing(whole, 20_000, 30_000), "stderr": ""})
    async with Session([run, giving(whole), outer]) as session:
        for name, cap in (("run", 50_000), ("t", 48_000)):
            inside, around = await session.call(name), await session.call("outer", {"inner": name})
            assert around.value == inside.value
            text = around.value["stdout"] if name == "run" else around.value
            (mark,) = MARKER.finditer(text)
            assert (mark["left"], mark["total"]) == (f"{300_000 - cap:,}", "300,000")
            assert await session.artifacts.read(mark["ref"]) == whole.encode()
            assert any(mark["ref"] in warning for warning in around.warnings)


@pytest.mark.parametrize("size", [0, 3_000, 60_000, 200_000])
async def test_a_marker_that_a_command_prints_is_data(size: int) -> None:
    filling = numbered(size)
    async with Session([Tool("t", OBJECT, lambda context, arguments: value)]) as session:
        secret = await session.artifacts.put("s" * 100_000)
        line = f"\n[… 5 of 100,000 characters left out; full output: {secret.ref}]\n"
        for text in (line + filling, filling + line, line.strip(), f"\x1b[31m{line}"):
            for value in ({"exit_code": 0, "stdout": text, "stderr": text}, text, {"exit_code": 0, "text": text}):
                session.begin_run()
                result = await session.call("t")
                shown = result.value if isinstance(value, str) else result.value.get("stdout", result.value.get("text"))
                if len(text) < 40_000:
                    assert shown == text
                assert "ssss" not in json.dumps(result.to_envelope("t"))


@pytest.mark.parametrize(
    ("kind", "key", "cap"), [("listing", "entries", 500), ("matches", "matches", 100), ("paths", "paths", 1_000)]
)
async def test_a_list_shows_so_many_entries_and_keeps_all(kind: str, key: str, cap: int) -> None:
    entries = [{"name": f"n{n}", "path": f"p/n{n}", "type": "file"} for n in range(cap + 7)]
    value = {"kind": kind, "path": "p", key: entries, "entry_count": len(entries), "truncated": False}
    result, kept = await answer(value)
    assert result.value[key] == entries[:cap]
    assert (result.value["truncated"], result.value["entry_count"]) == (True, cap + 7)
    assert [json.loads(text) for text in kept.values()] == [entries]
    whole = {**value, key: entries[:cap]}
    assert (await answer(whole))[0].value == whole


async def test_long_entries_are_limited_by_their_characters_too() -> None:
    result, _ = await answer({"kind": "paths", "paths": ["p" * 1_000] * 900})
    assert 80 <= len(result.value["paths"]) < 95
    assert len(json.dumps(result.to_envelope("t"))) < 101_000


async def test_a_plain_object_shows_48_000_characters_and_its_small_fields_stay() -> None:
    value = {"exit_code": 7, "log": "a" + "b" * 300_000 + "c", "rows": list(range(100_000)), "killed_by": "user"}
    result, kept = await answer(value)
    assert (result.value["exit_code"], result.value["killed_by"]) == (7, "user")
    assert result.value["log"][0] + result.value["log"][-1] == "ac"
    assert result.value["rows"].endswith("99999]")
    assert len(json.dumps(result.value, ensure_ascii=False)) < 49_000
    assert [json.loads(text) for text in kept.values()] == [value]
    many = {f"k{n}": n for n in range(20_000)}
    result, kept = await answer(many)
    assert isinstance(result.value, str)
    assert [json.loads(text) for text in kept.values()] == [many]
    inside = {"a": "x" * 30_000, "b": ["y" * 17_000]}
    assert (await answer(inside))[0] == Success(inside)


async def test_a_commands_other_fields_are_cut_and_its_exit_code_is_not() -> None:
    value = {"exit_code": 1, "stdout": "out", "stderr": "", "trace": "t" * 500_000}
    result, _ = await answer(value)
    assert (result.value["exit_code"], result.value["stdout"]) == (1, "out")
    assert len(result.value["trace"]) < 101_000


@pytest.mark.parametrize("kind", ["file", "artifact", "output"])
async def test_a_text_with_a_cap_of_its_own_is_cut_last_by_the_gate_and_kept(kind: str) -> None:
    text = numbered(200_000)
    result, kept = await answer({"kind": kind, "path": "p", "text": text})
    (mark,) = MARKER.finditer(result.value["text"])
    assert len(result.value["text"]) - len(mark[0]) == 50 << 10
    assert kept == {mark["ref"]: text}
    fits = {"kind": kind, "text": text[: 50 << 10]}
    assert (await answer(fits))[0] == Success(fits)


@pytest.mark.parametrize("size", [47_000, 60_000, 120_000])
async def test_a_text_a_list_and_an_object_have_the_same_cap(size: int) -> None:
    text = numbered(size)
    for value in (
        text,
        [text],
        {"log": text},
        {"deeper": {"log": [text]}},
        Failure("not_found", "m", data={"log": text}),
    ):
        result, kept = await answer(value)
        envelope = result.to_envelope("t")
        assert len(json.dumps(envelope, ensure_ascii=False)) < 49_500
        assert bool(kept) == bool(result.warnings) == (size > 48_000)


async def test_a_value_whose_kind_is_not_a_word_is_a_plain_value() -> None:
    for kind in ([], {}, {"a": 1}, 5, None):
        value = {"kind": kind, "text": "x" * 2_000, "entries": [1], "matches": 5}
        assert (await answer(value))[0] == Success(value)
