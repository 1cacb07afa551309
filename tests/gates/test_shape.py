"""An answer is cut to a size the model can read: its beginning, its end, and how much is missing."""

import json
import re
from typing import Any

import pytest

from handrail import Failure, Session, Success, Tool

pytestmark = pytest.mark.anyio
OBJECT = {"type": "object"}
MARK = re.compile(r"\[… ([\d,]+) of ([\d,]+) characters left out")


def giving(value: Any, **options: Any) -> Tool:
    return Tool("t", OBJECT, lambda context, arguments: value, **options)


async def answer(tool: Tool) -> Any:
    async with Session([tool]) as session:
        return await session.call("t")


@pytest.mark.parametrize("cap", [10, 100, 999])
async def test_a_text_at_its_cap_is_whole_and_a_longer_one_keeps_40_and_60_percent(cap: int) -> None:
    text = "".join(chr(0x4E00 + n) for n in range(cap))
    assert await answer(giving(text, output_cap=cap)) == Success(text)
    longer = text + "end"
    shown = (await answer(giving(longer, output_cap=cap))).value
    head = int(cap * 0.4)
    assert shown.startswith(f"{text[:head]}\n[…")
    assert shown.endswith(f"]\n{longer[-(cap - head) :]}")
    (mark,) = MARK.findall(shown)
    assert mark == ("3", f"{len(longer):,}")


async def test_there_is_a_cap_also_where_the_tool_sets_none() -> None:
    cut = await answer(giving("a" * 100_000 + "b" * 100_000))
    assert len(cut.value) <= 100_200
    assert MARK.findall(cut.value)[0][1] == "200,000"
    assert cut.value[0] + cut.value[-1] == "ab"
    small = "x" * 40_000
    assert (await answer(giving(small))).value == small


async def test_what_was_cut_is_said_in_a_warning_and_what_was_not_is_not() -> None:
    (warning,) = (await answer(giving("x" * 50, output_cap=10))).warnings
    assert "50" in warning
    assert "10" in warning
    assert (await answer(giving("x" * 10, output_cap=10))).warnings == ()
    kept = await answer(giving(Success("x" * 50, ("mine",)), output_cap=10))
    assert kept.warnings[0] == "mine"
    assert len(kept.warnings) == 2


async def test_data_within_its_cap_as_json_is_whole_and_beyond_it_is_made_smaller() -> None:
    value = list(range(1_000))
    size = len(json.dumps(value))
    assert (await answer(giving(value, output_cap=size))).value == value
    shown = (await answer(giving(value, output_cap=size // 2))).to_envelope("t")
    assert len(json.dumps(shown)) < size * 0.8
    for small in (5, None, True, 1.5):
        assert (await answer(giving(small, output_cap=1))).value == small


async def test_a_failure_is_cut_too_and_stays_a_failure() -> None:
    told = Failure("not_found", "m" * 5_000, field="f", data={"seen": "d" * 5_000}, retryable=True)
    shown = await answer(giving(told, output_cap=1_000))
    assert isinstance(shown, Failure)
    assert (shown.kind, shown.field, shown.retryable) == ("not_found", "f", True)
    assert MARK.findall(shown.message) == [("4,000", "5,000")]
    assert len(json.dumps(shown.data)) < 1_500
    assert await answer(giving(told)) == told  # the control: within the usual cap it is whole
