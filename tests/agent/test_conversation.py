"""What the model reads: one message of the user's at a time, and the same bytes after a resume."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from handrail import Agent, Call, Image, Message, ModelFailed, Session, Store, Turn
from handrail.agent.conversation import Conversation
from handrail.agent.window import Window
from handrail.contract.event import Event
from handrail.testing import ScriptedModel
from tests.agent.test_compaction import rendered
from tests.agent.test_loop import paired

pytestmark = pytest.mark.anyio
LOOK = Turn("", (Call("c", "look", {}),))


async def look() -> str:
    """Look around."""
    return "a wall"


def steer(_: Any) -> str:
    return "Look behind you."


def check(messages: Sequence[Message]) -> None:
    """Neither two messages of the user's in a row, nor one after results."""
    if any(message.calls for message in messages):
        paired(messages)
    roles = [message.role for message in messages]
    assert not {("user", "user"), ("tool", "user"), ("assistant", "assistant")} & set(pairwise(roles)), roles


def test_two_texts_in_a_row_would_be_found() -> None:
    for messages in ([Message("user", "a"), Message("user", "b")], [Message("tool", ""), Message("user", "b")]):
        with pytest.raises(AssertionError):
            check(messages)


BROKEN = ModelFailed("no answer")
STORIES: dict[str, tuple[list[Any], int, list[tuple[str, str]]]] = {
    "advice after results": ([LOOK, "Done."], 64, [("user", "1."), ("tool", "Look behind you.")]),
    "a prompt after a failed turn": ([BROKEN, "Done."], 64, [("user", "1.\n\n2.")]),
    "three prompts after two failed turns": ([BROKEN, BROKEN, "Done."], 64, [("user", "1.\n\n2.\n\n3.")]),
    "a prompt after an answer": (["Done.", "Done."], 64, [("user", "1."), ("user", "2.")]),
    "a prompt after the last round's results": (
        [LOOK, "Done."],
        1,
        [("user", "1."), ("tool", "Look behind you.\n\n2.")],
    ),
    "an answer that was empty": (
        [Turn(), "Done."],
        64,
        [("user", "1.\n\nYour last answer was empty. Go on with the work, or say what you have found.")],
    ),
}


@pytest.mark.parametrize("name", STORIES)
async def test_no_two_messages_of_the_users_follow_each_other(name: str, tmp_path: Path) -> None:
    lines, rounds, told = STORIES[name]
    model = ScriptedModel(lines)
    with Store(tmp_path / "s.db") as store:
        agent = Agent(model, tools=[look], store=store, rounds=rounds, steer=steer)
        async with agent:
            number = 1
            while (await agent.run(f"{number}.")).reason != "done" or len(model.requests) < len(lines):
                number += 1
        for request in model.requests:
            check(request.messages)
        texts = [(message.role, message.text) for message in agent.messages if message.role != "assistant"]
        assert texts == told
        again = Agent.resume(ScriptedModel([]), store, agent.session.id, tools=[look], steer=steer)
        async with again:
            assert rendered(again.messages) == rendered(agent.messages)


async def test_pictures_are_joined_with_their_texts() -> None:
    agent = Agent(ScriptedModel([BROKEN, "Two."]))
    await agent.run("This.", images=[Image(b"\x89PNG1")])
    await agent.run("And this.", images=[Image(b"\x89PNG2")])
    first = agent.messages[0]
    assert (first.text, [image.data for image in first.images]) == ("This.\n\nAnd this.", [b"\x89PNG1", b"\x89PNG2"])


async def test_a_summary_is_joined_with_what_comes_after_it_wherever_it_ends() -> None:
    async with Session() as session:
        events = list((await _told(session)).values())
        for count in (1, 3, 4, 6):  # before an answer, and before each text of the user's
            after = Event(len(events), 0.0, "summarised", None, None, {"messages": count, "text": "In short."})
            conversation = Conversation(_Log([*events, after]), session.artifacts, window=Window(object()))
            check(conversation.messages)
            assert conversation.messages[0].text.startswith("In short.")
            assert conversation.messages[-1].text.endswith("Last.")


class _Log:
    """The events of a session that has ended."""

    def __init__(self, events: list[Event]) -> None:
        self._events, self.count = events, len(events)

    def since(self, start: int) -> list[Event]:
        return self._events[start:]


async def _told(session: Session) -> dict[int, Event]:
    """A run with advice, an answer, and two prompts, as its events."""
    agent = Agent(ScriptedModel([LOOK, "Seen.", BROKEN, BROKEN]), session=session, steer=steer)
    session.toolbox.add(look)
    for text in ("First.", "Second.", "Last."):
        await agent.run(text)
    assert [message.role for message in agent.messages] == ["user", "assistant", "tool", "assistant", "user"]
    return {event.seq: event for event in session.trace}
