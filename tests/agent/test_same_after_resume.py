"""Each request holds, byte for byte, what a fresh reading of the session's events gives; so does a resumed session."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from handrail import Agent, Call, Image, Message, ModelFailed, Session, Store, Turn, tool
from handrail.agent.conversation import Conversation
from handrail.agent.window import Window
from handrail.contract.event import Event
from handrail.contract.result import images_in
from handrail.testing import ScriptedModel

pytestmark = pytest.mark.anyio
SECRET = "sk-very-secret-0123"


class Log:
    """The first events of a session."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events, self.count = list(events), len(events)

    def since(self, start: int) -> list[Event]:
        return self._events[start:]


def sent(messages: Sequence[Message]) -> bytes:
    """Everything that a provider could be sent of the messages, pictures too."""
    pictures = [image for message in messages for image in message.images]
    for message in messages:
        pictures += [image for result in message.results for _, image in images_in(result.value)]
    return "\n".join(map(repr, messages)).encode() + b"".join(repr((each.ref, each.data)).encode() for each in pictures)


@tool
async def tell(text: str, times: int = 1) -> str:
    """Tell."""
    return text * times


@tool
async def listing(n: int) -> dict[str, Any]:
    """List."""
    return {"kind": "listing", "path": ".", "entries": [{"path": f"file-{n}-{i}.txt"} for i in range(200)]}


@tool
async def draw() -> dict[str, Any]:
    """Draw."""
    return {"seen": [Image(b"\x89PNG-drawn")], "note": "a picture"}


@tool
async def missing(path: str) -> str:
    """Miss."""
    raise FileNotFoundError(2, "No such file", path)


class Answer(BaseModel):
    """The number of files."""

    count: int


def turn(name: str, arguments: str | Mapping[str, Any], *, text: str = "", **more: Any) -> Turn:
    return Turn(text, (Call("c", name, arguments),), **more)


def many(count: int) -> list[Any]:
    return [turn("listing", {"n": n}) for n in range(count)]


class Keeping(ScriptedModel):
    """A model that wants its own data back."""

    name = "keeping"


class Small(ScriptedModel):
    window = 12_000
    max_tokens = 1_000


Script = tuple[type[ScriptedModel], list[Any], dict[str, Any], set[str]]
STORIES: dict[str, Script] = {
    "plain": (ScriptedModel, [turn("tell", {"text": "a"}), "Done."], {}, {"call_ended"}),
    "secrets": (
        Keeping,
        [
            turn("tell", {"text": f"it is {SECRET}"}, text=f"I say {SECRET}.", keep={"signed": SECRET}),
            turn("tell", f'{{"text": "{SECRET}"}}', keep={"signed": "plain"}),
            f"Done with {SECRET}.",
        ],
        {"secrets": [SECRET]},
        {"call_ended"},
    ),
    "pictures": (ScriptedModel, [turn("draw", {}), turn("draw", "{}"), "Done."], {}, {"call_ended"}),
    "repairs": (
        ScriptedModel,
        [turn("tell", '{"text": "a", "times": "3"}'), turn("tell", {"text": "b", "times": "2"}), "Done."],
        {},
        {"call_repaired"},
    ),
    "a failed request": (
        ScriptedModel,
        [ModelFailed("busy", transient=True, retry_after=0.001), turn("tell", {"text": "x"}), "Done."],
        {},
        {"retried"},
    ),
    "steering": (
        ScriptedModel,
        [turn("listing", {"n": 1}), turn("missing", {"path": "file-1-7.tx"}), Turn(), "Done."],
        {},
        {"steered"},
    ),
    "collapsed results": (Small, [*many(12), "Done."], {}, {"collapsed"}),
    "summarised rounds": (
        Small, [*(turn("tell", {"text": "word " * 600}) for _ in range(30)), "Done."], {}, {"summarised"},
    ),
    "typed answers": (
        ScriptedModel,
        ["In words.", turn("answer", {"count": "many"}), turn("answer", {"count": 3})],
        {"output": Answer},
        {"steered", "call_ended"},
    ),
    "odd names and half characters": (
        ScriptedModel,
        [turn("no such tool!" * 9, '{"a": "\ud800"}'), turn("tell", {"text": "\ud800 x"}), "D\ud800ne."],
        {},
        {"call_ended"},
    ),
    "several calls": (
        ScriptedModel,
        [
            Turn("", (Call("a", "tell", {"text": "1"}), Call("a", "draw", {}), Call("b", "missing", {"path": "q"}))),
            "Done.",
        ],
        {},
        {"call_ended"},
    ),
}  # fmt: skip


class Requests:
    """Notes, at each request, what is sent, and how many events there are."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model, self.noted = model, list[tuple[int, bytes]]()
        self.session: Session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def ask(self, messages: Sequence[Message], tools: Any, *, system: str) -> Any:
        if tools:  # else it is asked for a summary
            self.noted.append((self.session.event_count, sent(messages)))
        return self.model.ask(messages, tools, system=system)


@pytest.mark.parametrize("name", STORIES)
async def test_every_request_is_what_the_events_give(name: str, tmp_path: Path) -> None:
    kind, lines, options, expected = STORIES[name]
    model = Requests(kind(lines))
    tools = [tell, listing, draw, missing]
    with Store(tmp_path / "s.db") as store:
        agent = Agent(model, tools=tools, store=store, **options)
        model.session = agent.session
        async with agent:
            await agent.run("Go.", images=[Image(b"\x89PNG-given")])
            events = agent.session.trace
            assert expected <= {event.type for event in events}  # the control: the story is told
            for count, given in model.noted:
                fresh = Conversation(
                    Log(events[:count]), agent.session.artifacts, window=Window(model), model=agent.model_name
                )
                assert sent(fresh.messages) == given
            live = sent(agent.messages)
        again = Agent.resume(Requests(kind([])), store, agent.session.id, tools=tools, **options)
        async with again:
            assert sent(again.messages) == live
    assert SECRET.encode() not in live


async def test_a_turn_instead_of_its_event_would_be_found() -> None:
    """The control: a secret is in the Turn, and in no event."""
    said = Turn(f"I say {SECRET}.")
    agent = Agent(ScriptedModel([said]), secrets=[SECRET])
    await agent.run("Go.")
    assert sent([*agent.messages[:-1], Message("assistant", said.text)]) != sent(agent.messages)
