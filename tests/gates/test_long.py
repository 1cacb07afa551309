"""A long answer is read once, in turns with others, and what is cut of it is stored whole."""

import json
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from handrail import ArtifactRef, Caps, Completed, Context, Failure, Image, Session, Success, Tool, Truncated, tool
from handrail.artifacts.store import Artifacts
from handrail.gates._plain import plain
from tests.gates.shaping import MARKER, OBJECT, Printed, answer, giving, numbered

pytestmark = pytest.mark.anyio
ROWS = [{"id": n, "name": f"row {n}", "tags": ["a", "b"], "at": {"x": n / 7, "y": None}} for n in range(20_000)]


@dataclass
class Row:
    id: int
    day: date


class Model(BaseModel):
    id: int
    names: list[str]


def long_values() -> dict[str, Callable[[], Any]]:
    """Values with many parts, of every kind that a body may return."""
    nested: Any = 1
    for _ in range(150):
        nested = [nested, "x"]
    return {
        "rows": lambda: ROWS,
        "numbers": lambda: list(range(200_000)),
        "tuples": lambda: tuple((n, str(n)) for n in range(30_000)),
        "a wide object": lambda: {f"key {n}": {"n": n} for n in range(30_000)},
        "keys that are numbers": lambda: {n: [n] for n in range(30_000)},
        "one long list deep inside": lambda: [{"a": [{"b": list(range(150_000))}, "é"]}, {"a": []}, 5],
        "dataclasses": lambda: [Row(n, date(2024, 1, 1)) for n in range(20_000)],
        "models": lambda: [Model(id=n, names=["é", "\n"]) for n in range(20_000)],
        "mappings": lambda: [OrderedDict(id=n, name="x") for n in range(30_000)],
        "texts": lambda: ["é" * 300_000, "x" * 700_000, '"\\\x00', ""],
        "one long text in a list": lambda: [["ü" * 3_000_000]],
        "odd ones": lambda: [{"n": float("nan"), "big": 10**30, "s": {n}, "half": "\ud800"} for n in range(20_000)],
        "deep ones": lambda: [nested] * 300,
        "empty ones": lambda: [[], {}, (), ""] * 60_000,
    }


@pytest.mark.parametrize("name", long_values())
async def test_what_is_stored_of_a_long_answer_is_exactly_its_json(name: str) -> None:
    value = long_values()[name]()
    expected = json.dumps(plain(value), ensure_ascii=False)
    result, kept = await answer(value)
    assert result.ok
    (text,) = kept.values()
    assert text == expected
    assert result.value.startswith(expected[:1_000])
    assert result.value.endswith(expected[-1_000:])
    assert f"of {len(expected):,} characters left out" in result.value
    assert f"was cut from {len(expected):,} to 48,000 characters" in result.warnings[-1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=8)
        | st.lists(inner, max_size=8).map(tuple)
        | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=8)
    ),
    max_leaves=60,
)


@settings(max_examples=15, deadline=None)
@given(st.lists(JSON, min_size=1, max_size=12))
def test_any_value_many_times_is_stored_as_its_json(values: list[Any]) -> None:
    value = values * max(5_001 // len(values) + 1, 320_000 // len(json.dumps(plain(values))))
    result, kept = anyio.run(answer, value)
    assert result.ok
    assert list(kept.values()) == [json.dumps(plain(value), ensure_ascii=False)]


async def test_a_long_value_within_its_cap_comes_back_as_it_is() -> None:
    picture, made = Image(b"png"), {"n": [list(range(10_000))], "x": {"é": None, "y": 1.5}}
    for value in (list(range(10_000)), made, [{"n": n} for n in range(6_000)], [[picture], *range(10_000)]):
        result, kept = await answer(value, output_cap=200_000)
        kept = {ref: data for ref, data in kept.items() if data != "png"}  # a picture is always kept
        assert (result.value, result.warnings, kept) == (value, (), {})
    shared = [[n] for n in range(6_000)]
    result, _ = await answer(shared, output_cap=200_000)
    assert result.value == shared
    assert result.value is not shared
    assert result.value[0] is not shared[0]


async def test_a_long_object_keeps_its_small_fields_and_is_stored_whole() -> None:
    value = {"count": 3, "rows": ROWS, "log": "a" * 2_000_000 + "z", "who": {"name": "x"}}
    result, kept = await answer(value)
    assert (result.value["count"], result.value["who"]) == (3, {"name": "x"})
    assert result.value["rows"].startswith('[{"id": 0, "name": "row 0"')
    assert result.value["log"].endswith("az")
    assert 40_000 < len(result.value["rows"]) + len(result.value["log"]) <= 48_000
    assert list(kept.values()) == [json.dumps(value, ensure_ascii=False)]
    (warning,) = result.warnings
    assert f"The answer was cut from {len(json.dumps(value)):,} to 48,000" in warning


async def test_a_long_listing_shows_its_first_entries_and_stores_all() -> None:
    entries = [{"name": f"n{n}", "path": f"p/n{n}"} for n in range(50_000)]
    result, kept = await answer({"kind": "listing", "path": "p", "entries": entries})
    assert result.value["entries"] == entries[:500]
    assert (result.value["truncated"], result.value["path"]) == (True, "p")
    assert json.loads(kept[result.value["full"].ref]) == entries
    assert any("500 of 50,000 entries are shown" in warning for warning in result.warnings)


async def test_streams_of_a_long_answer_keep_their_own_caps() -> None:
    out = numbered(3_000_000)
    result, kept = await answer({"exit_code": 3, "stdout": out, "stderr": "", "rows": ROWS})
    (mark,) = MARKER.finditer(result.value["stdout"])
    assert kept[mark["ref"]] == out
    assert len(MARKER.sub("", result.value["stdout"])) == 50_000
    assert result.value["exit_code"] == 3


async def test_notes_name_the_place_in_the_whole_value() -> None:
    rows: list[Any] = [{"n": n} for n in range(30_000)]
    rows[20_000] = {"n": {"x": float("inf")}}
    rows[25_000] = Completed(0, notes=("a note of the sandbox",))
    result, _ = await answer(rows)
    assert any("`[20000].n.x` is infinity" in warning for warning in result.warnings)
    assert "a note of the sandbox" in result.warnings
    assert not any("[19999]" in warning for warning in result.warnings)
    same, _ = await answer({"rows": {**{n: n for n in range(30_000)}, "7": "seven"}})
    assert any("`rows.7` stands for several keys" in warning for warning in same.warnings)


async def test_artifacts_and_excerpts_in_a_long_answer_stay_readable() -> None:
    whole = numbered(300_000)

    @tool
    async def many(context: Context) -> Any:
        inside = await context.artifacts.put("kept")
        context.artifacts.pin(gone := await context.artifacts.put("gone"))
        context.artifacts.unpin(gone)
        part = Truncated(whole[:50], whole[-50:], len(whole) - 100, len(whole), Printed(whole.encode()))
        return [*ROWS, inside, gone, part]

    async with Session([many]) as session:
        result = await session.call("many")
        rows = json.loads(await session.artifacts.read(result.value.whole))
        assert rows[-3]["$artifact"]
        assert await session.artifacts.read(rows[-3]["$artifact"]) == b"kept"
        assert rows[-2] is None
        named = MARKER.search(rows[-1])["ref"]  # type: ignore[index]
        assert (await session.artifacts.read(named)).decode() == whole
        assert result.value.whole.incomplete, "a text in it lacks its middle"
        assert session.artifacts.sweep() == 0


@dataclass
class Held:
    rows: list[Any]


async def test_a_value_that_others_change_meanwhile_is_still_whole_json() -> None:
    shared: list[Any] = [{"n": n, "more": {"a": n}} for n in range(60_000)]
    changed = 0

    async def others(scope: anyio.CancelScope) -> None:
        nonlocal changed
        with scope:
            while True:
                await checkpoint()
                shared.pop()
                shared[changed % 1_000] = {"n": "changed"}
                for row in shared[50_000:50_500]:
                    row[f"new {changed}"] = changed
                changed += 1

    async with Session([giving(shared)]) as session, anyio.create_task_group() as group:
        group.start_soon(others, scope := anyio.CancelScope())
        result = await session.call("t")
        scope.cancel()
        assert result.ok, result
        assert changed > 10, "the control: others did run"
        rows = json.loads(await session.artifacts.read(result.value.whole))
        assert len(rows) > 10_000
        assert all(row["n"] in (n, "changed") for n, row in enumerate(rows))


async def ticks_during(work: Callable[[], Any]) -> tuple[Any, list[float]]:
    """The result, and how long others waited for each of their turns meanwhile."""
    waits: list[float] = []

    async def others(scope: anyio.CancelScope) -> None:
        with scope:
            while True:
                began = perf_counter()
                await checkpoint()
                waits.append(perf_counter() - began)

    async with anyio.create_task_group() as group:
        group.start_soon(others, scope := anyio.CancelScope())
        await checkpoint()
        result = await work()
        scope.cancel()
    return result, waits


@pytest.mark.parametrize("kind", ["a list", "an object", "a failure", "models", "a long text", "for a script"])
async def test_others_run_while_a_long_answer_is_read(kind: str) -> None:
    rows = ROWS * 5
    value: Any = {
        "a list": rows,
        "an object": {"rows": rows, "n": 1},
        "a failure": Failure("not_found", "no", data={"rows": rows}),
        "models": [Model(id=n, names=["x"]) for n in range(40_000)],
        "a long text": {"text": "é" * 20_000_000},
        "for a script": rows,
    }[kind]

    async with Session([giving(value, timeout=None)]) as session:
        await session.call("t")  # imports, and the first files
        began = perf_counter()
        origin: Any = "script" if kind == "for a script" else "model"
        result, waits = await ticks_during(lambda: session.call("t", origin=origin))
        took = perf_counter() - began
        assert result.ok is (kind != "a failure")
        assert len(waits) > 20
        assert max(waits) < took / 3, (took, sorted(waits)[-5:])  # a busy machine stops us too, but not for so long


async def test_a_long_list_costs_little_more_than_writing_it() -> None:
    rows = ROWS * 5
    async with Session([giving(rows, timeout=None)]) as session:
        ratios = []
        for _ in range(3):
            began = perf_counter()
            text = json.dumps(rows)
            written = perf_counter() - began
            began = perf_counter()
            assert (await session.call("t")).ok
            ratios.append((perf_counter() - began) / written)
    assert len(text) > 5_000_000
    assert min(ratios) < 4, ratios  # 9 and more when it was copied and walked by each gate


async def test_the_deadline_is_for_the_body_and_not_for_reading_its_answer() -> None:
    slow = Tool("slow", OBJECT, lambda context, arguments: anyio.sleep(60), timeout=0.05)
    async with Session([giving(ROWS * 10, timeout=0.05), slow]) as session:
        assert (await session.call("t")).ok
        assert (await session.call("slow")).kind == "timeout", "the control"


async def test_a_call_can_be_cancelled_while_its_answer_is_read() -> None:
    async with Session([giving(ROWS * 50, timeout=None)]) as session:
        with anyio.move_on_after(0.05) as scope:
            await session.call("t")
        assert scope.cancelled_caught
        assert session.artifacts.own() == []
        (ended,) = [event for event in session.trace if event.type == "call_ended"]
        assert ended.data["kind"] == "cancelled"


async def test_a_long_answer_is_held_to_its_schema_and_the_item_is_named() -> None:
    schema = {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}}
    whole = {"type": "object", "properties": {"rows": schema}}
    wrong = [*ROWS]
    wrong[15_000] = {"id": "x"}
    for value, output in (
        (ROWS, schema),
        ({"rows": ROWS}, whole),
        ([Row(n, date(2024, 1, 1)) for n in range(9_000)], schema),
    ):
        assert (await answer(value, output=output))[0].ok
    for value, output in ((wrong, schema), ({"rows": wrong}, whole)):
        result, _ = await answer(value, output=output)
        assert (result.ok, result.kind) == (False, "execution_error")
        assert "[15000].id" in result.message
    assert not (await answer([{"id": float("nan")}] * 9_000, output=schema))[0].ok


async def test_a_long_answer_that_has_no_json_form_is_an_error() -> None:
    circle: list[Any] = list(range(9_000))
    circle.append(circle)
    twice: list[Any] = []
    twice += [twice, twice, *range(9_000)]
    for value in (circle, twice, [*ROWS, object()], {"rows": [*ROWS, {"x": object()}]}):
        result, kept = await answer(value)
        assert (result.ok, result.kind, kept) == (False, "execution_error", {})
        assert "JSON" in result.message


async def test_the_data_of_a_failure_is_stored_whole_too() -> None:
    result, kept = await answer(Failure("not_found", "no", data={"code": 5, "rows": ROWS}))
    assert (result.ok, result.kind, result.data["code"]) == (False, "not_found", 5)
    assert [json.loads(text) for text in kept.values()] == [{"code": 5, "rows": ROWS}]


async def test_an_envelope_of_many_rows_is_read_as_any_other_answer() -> None:
    result, kept = await answer({"ok": True, "result": ROWS}, returns="envelope")
    assert result.ok
    assert [json.loads(text) for text in kept.values()] == [ROWS]


def isolated_rows() -> list[dict[str, Any]]:
    """Rows, from another process."""
    return ROWS


async def test_a_long_answer_from_another_process_is_kept_whole() -> None:
    async with Session([tool(isolate=True)(isolated_rows)]) as session:
        result = await session.call("isolated_rows")
        assert json.loads(await session.artifacts.read(result.value.whole)) == ROWS


async def test_a_secret_is_not_stored_though_it_is_written_in_two_pieces() -> None:
    secret = "s3cr3t-" + "k" * 40
    text = "x" * ((1 << 20) - 20) + secret + "y" * 3_000_000
    for value in (text, "é" + text, {"text": text}, [text] * 3, [{"a": secret, "n": n} for n in range(30_000)]):
        async with Session([giving(value)], secrets=(secret,)) as session:
            result = await session.call("t")
            assert result.ok
            for kept in session.artifacts.own():
                data = await session.artifacts.read(kept)
                assert secret[:20].encode() not in data
                assert b"[secret]" in data
            assert secret[:20] not in json.dumps(result.to_envelope("t"))


async def test_a_secret_is_not_shown_though_a_field_is_cut_in_the_middle_of_it() -> None:
    secret = "".join(chr(ord("a") + n) for n in range(26)) * 20
    for shift in range(0, 500, 50):  # wherever the cut is, it goes through one of them
        value = {"pad": "-" * shift, "rows": [secret] * 20_000, "log": secret * 8_000}
        async with Session([giving(value)], secrets=(secret,)) as session:
            shown = json.dumps((await session.call("t")).to_envelope("t"))
        assert "[secret]" in shown
        assert "abcdefgh" not in shown, shift
        assert "stuvwxyz" not in shown, shift


FULL_DISK = """
import anyio, json, resource, sys
from handrail import Session, Tool
rows = [{"id": n, "name": f"row {n}"} for n in range(200_000)]
values = {"rows": rows, "object": {"rows": rows}, "text": "x" * 20_000_000, "wide": "\\u00e9" * 9_000_000}

async def main():
    async with Session([Tool("t", {"type": "object"}, lambda c, a: values[a["which"]])]) as session:
        for which in values:
            result = await session.call("t", {"which": which})
            script = await session.call("t", {"which": which}, origin="script")
            shown = json.dumps(result.to_envelope("t"), ensure_ascii=False)
            print(json.dumps([which, result.ok, len(shown), result.warnings, script.ok, script.kind, script.message,
                              len(session.artifacts.own()), session.artifacts.sweep()]))

resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))
anyio.run(main)
"""


def test_where_the_disk_takes_no_more_the_answer_says_so_and_nothing_poses_as_whole() -> None:
    ended = subprocess.run([sys.executable, "-c", FULL_DISK], capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [line[0] for line in lines] == ["rows", "object", "text", "wide"]
    for which, ok, size, warnings, script_ok, kind, message, *left in lines:
        assert ok, which
        assert size < 60_000
        assert any("could not be kept" in warning and "lost" in warning for warning in warnings), (which, warnings)
        assert any("ask for a smaller part" in warning for warning in warnings), (which, warnings)
        assert (script_ok, kind) == (False, "execution_error"), which
        assert "File too large" in message
        assert left == [0, 0], which


async def test_a_value_for_a_script_is_stored_whole_and_pictures_stay_beside() -> None:
    async with Session([giving(ROWS), Tool("p", OBJECT, lambda c, a: [*ROWS, Image(b"png")])]) as session:
        result = await session.call("t", origin="script")
        assert isinstance(result.value, ArtifactRef)
        assert json.loads(await session.artifacts.read(result.value)) == ROWS
        assert not result.value.incomplete
        pictured = await session.call("p", origin="script")
        assert pictured.value[-1] == Image(b"png")


async def test_small_caps_hold_for_long_answers_too() -> None:
    async with Session([giving({"rows": ROWS, "n": 1})], caps=Caps(value=500, other=500, stdout=500)) as session:
        result = await session.call("t")
        assert result.ok
        assert len(json.dumps(result.to_envelope("t"))) < 1_500
        assert isinstance(result, Success)


async def test_in_a_given_directory_only_the_whole_is_there_afterwards(tmp_path: Path) -> None:
    with Artifacts(tmp_path) as store:
        async with Session([giving(ROWS)], artifacts=store) as session:
            result = await session.call("t")
            sizes = [path.stat().st_size for path in (tmp_path / "objects").iterdir()]
            assert sizes == [result.value.whole.size]
            assert list((tmp_path / "incoming").iterdir()) == []
