"""A model that writes its calls as text works as any other; a call that was cut never runs."""

import json
from typing import Any

import pytest

from handrail import Agent, Call, Image, Message, Success, Turn, tool
from handrail.contract.model import Stop
from handrail.models import open_model
from handrail.models.text import TextCalls
from handrail.testing import ScriptedModel
from tests.models.asking import LOOK, ask, everything, model_at
from tests.models.shapes import SHAPES
from tests.models.wire import always, serving, stream

pytestmark = pytest.mark.anyio
WRITTEN = 'I look.\n<tool_call>\n{"name": "look", "arguments": {"path": "a.txt"}}\n</tool_call>'
FORMS = {
    "tagged": WRITTEN,
    "fenced": '```json\n{"name": "look", "arguments": {"path": "a.txt"}}\n```',
    "bare": '{"name": "look", "arguments": {"path": "a.txt"}}',
    "python": 'look(path="a.txt")',
    "without its last brace": '<tool_call>\n{"name": "look", "arguments": {"path": "a.txt"}\n</tool_call>',
}


@pytest.mark.parametrize("written", FORMS.values(), ids=FORMS)
async def test_a_call_is_found_however_it_is_written(written: str) -> None:
    turn = await ask(TextCalls(ScriptedModel([written])), Message("user", "Go."))
    assert [(call.name, json.loads(str(call.arguments))) for call in turn.calls] == [("look", {"path": "a.txt"})]
    assert turn.stop == "tool_use"


@pytest.mark.parametrize("written", ["Done.", "", '{"name": "gone", "arguments": {}}', WRITTEN + WRITTEN])
async def test_what_is_not_one_call_to_a_known_tool_is_text(written: str) -> None:
    turn = await ask(TextCalls(ScriptedModel([written])), Message("user", "Go."))
    assert (turn.calls, turn.text, turn.stop) == ((), written, "end")


@pytest.mark.parametrize("stop", ["max_tokens", "refused", "paused", "other"])
@pytest.mark.parametrize("written", FORMS.values(), ids=FORMS)
async def test_a_call_in_an_answer_that_was_cut_is_not_found(written: str, stop: Stop) -> None:
    assert (await ask(TextCalls(ScriptedModel([Turn(written, stop=stop)])), Message("user", "Go."))).calls == ()


async def test_the_tools_are_described_in_the_system_text() -> None:
    inner = ScriptedModel(["Done."])
    await ask(TextCalls(inner), Message("user", "Go."), system="Be brief.")
    [request] = inner.requests
    assert not request.tools
    assert request.system.startswith("Be brief.")
    assert json.loads(request.system.splitlines()[-1]) == LOOK


async def test_calls_and_results_go_back_as_text_once() -> None:
    ran: list[str] = []

    @tool
    def look(path: str) -> Any:
        """Look."""
        ran.append(path)
        return {"seen": path, "picture": Image(b"\x89PNG")}

    inner = ScriptedModel([WRITTEN, "Done."])
    outcome = await Agent(TextCalls(inner), tools=[look]).run("Go.")
    assert (outcome.reason, outcome.text, ran) == ("done", "Done.", ["a.txt"])
    _, said, result = inner.requests[1].messages
    assert (said.text, said.calls, result.role, result.results) == (WRITTEN, (), "user", ())
    assert result.text.startswith('<tool_result>\n{"ok":true,"tool":"look","result":{"seen":"a.txt"')
    assert [image.data for image in result.images] == [b"\x89PNG"]


async def test_calls_that_another_model_made_are_written_out() -> None:
    inner = ScriptedModel(["Done."])
    talk = (Message("assistant", "So.", (Call("1", "look", '{"path": "b"}'),)), Message("tool", results=(Success(1),)))
    await ask(TextCalls(inner), Message("user", "Go."), *talk)
    said = inner.requests[0].messages[1]
    assert said.text == 'So.\n<tool_call>\n{"name":"look","arguments":{"path":"b"}}\n</tool_call>'


async def test_what_the_model_behind_it_wants_back_goes_back() -> None:
    inner = ScriptedModel([Turn(WRITTEN, keep={"signature": "x"}), "Done."])
    model = TextCalls(inner)
    turn = await ask(model, Message("user", "Go."))
    keep = json.loads(json.dumps(turn.keep))
    await ask(model, Message("user", "Go."), Message("assistant", turn.text, turn.calls, keep=keep),
              Message("tool", results=(Success(1),)))  # fmt: skip
    assert inner.requests[1].messages[1].keep == {"signature": "x"}


async def test_a_provider_s_model_is_opened_with_calls_as_text() -> None:
    with serving(always(stream(*SHAPES["openai-chat"](WRITTEN)))) as wire:
        model = model_at(wire, "openai-chat", calls="text", window=5_000)
        events = await everything(model, Message("user", "Go."))
    assert isinstance(events[-1], Turn)
    assert events[-1].calls[0].name == "look"
    assert "tools" not in wire.seen[0].body
    assert model.window == 5_000  # type: ignore[attr-defined]


def test_calls_are_native_or_text() -> None:
    with pytest.raises(Exception, match="'native' or 'text'"):
        open_model("ollama:x", calls="json")


async def test_arguments_that_nobody_can_read_go_back_as_they_were_written() -> None:
    deep = '{"path": ' + "[" * 5_000 + "]" * 5_000 + "}"
    inner = ScriptedModel(["Done."])
    failed = Success("refused")
    history = [
        Message("user", "Go."),
        Message("assistant", calls=(Call("1", "look", deep),)),
        Message("tool", results=(failed,)),
    ]
    turn = await ask(TextCalls(inner), *history)
    assert turn.text == "Done."
    assert json.dumps(deep)[1:-1] in inner.requests[0].messages[1].text
