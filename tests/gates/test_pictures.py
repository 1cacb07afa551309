"""A picture in a result is an artifact: its reference is in the envelope, so that a model can pass it on."""

import json
from pathlib import Path
from typing import Any

import pytest

from handrail import Agent, Call, Image, Session, Store, Turn, tool
from handrail.testing import ScriptedModel
from tests.tools.test_script import PNG

pytestmark = pytest.mark.anyio


@tool
async def draw() -> Any:
    """Draw."""
    return {"title": "plot", "pictures": [Image(PNG), Image(PNG, "image/png")]}


@tool
async def weigh(picture: bytes) -> int:
    """Weigh what was drawn."""
    return len(picture)


async def test_a_model_can_pass_a_picture_on() -> None:
    async with Session([draw, weigh]) as session:
        result = await session.call("draw")
        wire = result.to_envelope("draw")["result"]["pictures"][0]
        assert (wire["kind"], wire["media_type"], wire["size"]) == ("image", "image/png", len(PNG))
        assert await session.artifacts.read(wire["$artifact"]) == PNG
        passed = await session.call("weigh", {"picture": {"$artifact": wire["$artifact"]}})
        assert passed.value == len(PNG), passed
        ended = next(event.data for event in session.trace if event.type == "call_ended")
        assert ended["result"]["result"]["pictures"][1] == wire, "the event has it too"
    assert Image(PNG).to_wire() == {"kind": "image", "media_type": "image/png", "size": len(PNG)}, "a control"
    assert result.value["pictures"][0] == Image(PNG), "where a picture is kept does not make it another"


async def test_a_resumed_session_tells_the_model_the_same(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    model = ScriptedModel([Turn(calls=(Call("c", "draw", {}),)), Turn(text="done")])
    async with Agent(model, tools=[draw], store=store) as agent:
        await agent.run("go")
        before = [_told(message) for message in agent.messages]
        id = agent.session.id
    async with Agent.resume(ScriptedModel([]), store, id, tools=[draw]) as again:
        assert [_told(message) for message in again.messages] == before
    assert "$artifact" in str(before)


def _told(message: Any) -> Any:
    return message.role, message.text, [json.dumps(result.to_envelope("t")) for result in message.results]
