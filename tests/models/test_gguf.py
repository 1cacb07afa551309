"""A model from a file keeps to the tools' schemas, whatever its weights say."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import CallDelta, HandrailError, Message, ModelFailed, TextDelta, Turn
from handrail.contract.model import Model
from handrail.models import open_model
from tests.models.asking import ask
from tests.models.tiny import write_tiny_model

pytestmark = pytest.mark.anyio
PICK = {
    "name": "pick",
    "description": "Pick one.",
    "inputSchema": {
        "type": "object",
        "properties": {"color": {"enum": ["red", "green"]}, "count": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["color", "count"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


def opened(file: Path, **options: Any) -> Model:
    return open_model(f"gguf:{file}", **{"window": 2048, "max_tokens": 300, "temperature": 2.0, **options})


async def answers(file: Path, tools: list[Any], **options: Any) -> list[list[Any]]:
    """What it says to different seeds; noise that is no text at all is a failure that may pass."""
    got = []
    for seed in range(12):
        model = opened(file, seed=seed, **options)
        try:
            got.append([event async for event in model.ask([Message("user", "Go.")], tools, system="")])
        except ModelFailed as failed:
            assert failed.transient, failed  # noqa: PT017 - most of them do not fail
    return got


async def test_every_call_is_one_that_the_schema_accepts(file: Path) -> None:
    """The weights are noise, so every call that comes out was forced into its shape."""
    calls = 0
    for *pieces, turn in await answers(file, [PICK]):
        assert isinstance(turn, Turn)
        if turn.stop == "tool_use":
            [call] = turn.calls
            arguments = json.loads(str(call.arguments))
            assert call.name == "pick"
            assert arguments.keys() == {"color", "count"}
            assert arguments["color"] in ("red", "green")
            assert 0 <= arguments["count"] <= 9
            written = "".join(piece.text for piece in pieces if isinstance(piece, CallDelta))
            assert written.startswith(str(call.arguments))
            calls += 1
    assert calls, "the control: there were calls"


async def test_an_answer_that_is_cut_has_no_call(file: Path) -> None:
    for *_, turn in await answers(file, [PICK], max_tokens=12):
        assert (turn.stop, turn.calls) == ("max_tokens", ())


async def test_without_tools_its_text_comes_while_it_is_written(file: Path) -> None:
    *pieces, turn = (await answers(file, [], max_tokens=40))[0]
    assert len(pieces) > 1
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == turn.text
    assert turn.usage.output_tokens
    assert turn.usage.input_tokens


async def test_a_conversation_that_is_too_long_is_a_failure_of_its_kind(file: Path) -> None:
    with pytest.raises(ModelFailed) as failed:
        await ask(opened(file), Message("user", "x" * 9_000))
    assert failed.value.kind == "context"


async def test_leaving_early_stops_it_and_it_answers_again(file: Path) -> None:
    model = opened(file, max_tokens=1_500)
    with anyio.move_on_after(0.3):
        async for _ in model.ask([Message("user", "Go.")], [], system=""):
            pass
    answer = model.ask([Message("user", "Go.")], [], system="")
    await anext(aiter(answer))
    await answer.aclose()  # type: ignore[attr-defined]
    assert (await ask(opened(file, max_tokens=5), Message("user", "Go."))).usage.output_tokens


def test_what_is_wrong_is_said(file: Path, tmp_path: Path) -> None:
    with pytest.raises(HandrailError, match="no such file"):
        open_model("gguf:gone.gguf")
    with pytest.raises(HandrailError, match="temperature"):
        open_model(f"gguf:{file}", heat=1)
    (tmp_path / "bad.gguf").write_bytes(b"no")
    with pytest.raises(HandrailError, match="is not a GGUF file"):
        open_model(f"gguf:{tmp_path / 'bad.gguf'}")
