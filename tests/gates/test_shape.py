"""An answer is cut to a size the model can read: its beginning, its end, and how much is missing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import Failure, Session, Success, Tool
from handrail.gates.shape import CAP, cut

OBJECT = {"type": "object"}


def giving(value: Any, **options: Any) -> Tool:
    return Tool("t", OBJECT, lambda context, arguments: value, **options)


async def answer(tool: Tool) -> Any:
    async with Session([tool]) as session:
        return await session.call("t")


@given(st.text(max_size=200), st.integers(min_value=1, max_value=300))
def test_a_text_within_the_cap_is_whole_and_a_longer_one_keeps_40_and_60_percent(text: str, cap: int) -> None:
    shown = cut(text, cap)
    if len(text) <= cap:
        assert shown == text
        return
    head = int(cap * 0.4)
    assert shown.startswith(text[:head])
    assert shown.endswith(text[len(text) - (cap - head) :])
    assert f"[… {len(text) - cap:,} of {len(text):,} characters left out" in shown


@pytest.mark.anyio
async def test_the_default_cap_is_100_000_characters_and_a_tool_may_set_its_own() -> None:
    assert CAP == 100_000
    whole = await answer(giving("x" * CAP))
    assert whole == Success("x" * CAP)
    cut_one = await answer(giving("a" * 50_000 + "b" * 50_001))
    assert cut_one.value.startswith("a" * 40_000 + "\n[… 1 of 100,001 characters left out")
    assert cut_one.value.endswith("b" * 50_001)
    own = await answer(giving("0123456789" * 2, output_cap=10))
    assert own.value.startswith("0123\n[… 10 of 20 characters left out")
    assert own.value.endswith("456789")


@pytest.mark.anyio
async def test_what_was_cut_is_said_in_a_warning_and_what_was_not_is_not() -> None:
    (warning,) = (await answer(giving("x" * 50, output_cap=10))).warnings
    assert "50" in warning
    assert "10" in warning
    assert (await answer(giving("x" * 10, output_cap=10))).warnings == ()
    kept = await answer(giving(Success("x" * 50, ("mine",)), output_cap=10))
    assert kept.warnings[0] == "mine"
    assert len(kept.warnings) == 2


@pytest.mark.anyio
async def test_data_is_measured_as_json_and_kept_whole_or_shown_as_its_text() -> None:
    value = {"items": list(range(30))}
    size = len(json.dumps(value))
    assert (await answer(giving(value, output_cap=size))).value == value
    shown = await answer(giving(value, output_cap=size - 1))
    assert shown.value.startswith('{"items": [0, 1')
    assert shown.value.endswith("28, 29]}")
    for small in (5, None, True, 1.5):
        assert (await answer(giving(small, output_cap=1))).value == small


@pytest.mark.anyio
async def test_a_failure_is_cut_too_and_stays_a_failure() -> None:
    told = Failure("not_found", "m" * 500, field="f", data={"seen": "d" * 500}, retryable=True)
    shown = await answer(giving(told, output_cap=100))
    assert isinstance(shown, Failure)
    assert (shown.kind, shown.field, shown.retryable) == ("not_found", "f", True)
    assert "400 of 500 characters left out" in shown.message
    assert len(json.dumps(shown.data)) < 250
    assert await answer(giving(told)) == told
