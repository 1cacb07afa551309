"""A run over each provider's own SDK makes exactly the requests that it promises, and no call of a cut answer runs."""

import socket
import struct
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import anyio
import pytest

from handrail import Agent, Outcome, Session, Store, tool
from handrail.testing import ScriptedModel
from tests.journeys.evidence import events_of
from tests.models.asking import PROVIDERS, called_and_answered, model_at
from tests.models.shapes import CALL, END, SHAPES
from tests.models.wire import STREAM, Answer, Seen, Wire, events, serving, status, stream

pytestmark = pytest.mark.anyio


@dataclass
class Ran:
    """One run of one provider."""

    outcome: Outcome
    session: Session
    wire: Wire
    looked: list[str]


def whole(provider: str, text: str = "", call: str = "") -> bytes:
    return stream(*SHAPES[provider](text=text, call=call), end=END.get(provider, "data: [DONE]\n\n"))


def reset(seen: Seen, out: BinaryIO, wire: Wire) -> None:
    """End the connection by a reset, without an answer."""
    seen.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    seen.connection.close()


def cut(provider: str, seen: Seen, out: BinaryIO, wire: Wire) -> None:
    """The first half of an answer with a call in it, then a reset."""
    pieces = SHAPES[provider](text="I look.", call=CALL)
    out.write(STREAM + events(*pieces[: max(1, len(pieces) - 2)], end=""))
    out.flush()
    reset(seen, out, wire)


def hang(seen: Seen, out: BinaryIO, wire: Wire) -> None:
    """No answer, as long as the test runs."""
    wire.release.wait()


async def run(provider: str, *answers: bytes | Answer, **options: Any) -> Ran:
    """A run whose first request gets the first answer, and so on; the last one is repeated."""
    looked: list[str] = []

    @tool
    def look(path: str) -> str:
        """Look at a file."""
        looked.append(path)
        return "seen"

    def answer(seen: Seen, out: BinaryIO, wire: Wire) -> None:
        given = answers[min(len(wire.seen), len(answers)) - 1]
        if isinstance(given, bytes):
            out.write(given)
        else:
            given(seen, out, wire)

    with serving(answer) as wire, TemporaryDirectory() as directory, Store(Path(directory) / "s.db") as store:
        agent = Agent(model_at(wire, provider, **options), tools=[look], store=store)
        async with agent:
            outcome = await agent.run("Go.")
        await can_be_resumed(agent, store)
    return Ran(outcome, agent.session, wire, looked)


async def can_be_resumed(agent: Agent, store: Store) -> None:
    """Whatever the provider did, no event is lost, and the conversation goes on."""
    assert list(store.events(agent.session.id)) == list(agent.session.trace)
    async with Agent.resume(ScriptedModel(["Resumed."]), store, agent.session.id) as resumed:
        assert resumed.messages == [replace(message, keep=None) for message in agent.messages], "by another model"
        assert (await resumed.run("Go on.")).text == "Resumed."


async def together(*answers: bytes | Answer, last: str = "Done.", **options: Any) -> dict[str, Ran]:
    """The same with every provider at the same time; at last each answers with a text."""
    ran: dict[str, Ran] = {}

    async def work(provider: str) -> None:
        given = [partial(each, provider) if each is cut else each for each in answers]  # type: ignore[arg-type]
        ran[provider] = await run(provider, *given, *([whole(provider, last)] if last else []), **options)

    async with anyio.create_task_group() as group:
        for provider in PROVIDERS:
            group.start_soon(work, provider)
    return ran


def requests(ran: dict[str, Ran]) -> dict[str, int]:
    return {provider: len(each.wire.seen) for provider, each in ran.items()}


def asked(ran: Ran) -> list[int]:
    return [event.data["try"] for event in events_of(ran.session, "model_asked")]


async def test_three_failures_of_the_server_are_four_requests() -> None:
    ran = await together(*[status(500)] * 3)
    assert requests(ran) == dict.fromkeys(PROVIDERS, 4)
    for each in ran.values():
        assert (each.outcome.reason, each.outcome.text) == ("done", "Done.")
        assert asked(each) == [1, 2, 3, 4]
        bodies = [seen.raw for seen in each.wire.seen]
        assert bodies.count(bodies[0]) == 4, "the same question each time"


@pytest.mark.long
async def test_failures_without_end_are_five_requests() -> None:
    ran = await together(status(503), last="")
    assert requests(ran) == dict.fromkeys(PROVIDERS, 5)
    assert {each.outcome.reason for each in ran.values()} == {"model_error"}


async def test_a_wait_that_the_provider_asks_for_is_kept_and_asked_once_more() -> None:
    ran = await together(status(429, Retry_After="2"))
    assert requests(ran) == dict.fromkeys(PROVIDERS, 2)
    for each in ran.values():
        assert each.outcome.reason == "done"
        assert [event.data["wait"] for event in events_of(each.session, "retried")] == [2]


async def test_a_wait_of_an_hour_is_one_request_and_is_said() -> None:
    ran = await together(status(429, Retry_After="3600"))
    assert requests(ran) == dict.fromkeys(PROVIDERS, 1)
    for each in ran.values():
        assert each.outcome.reason == "model_error"
        assert "3,600 s" in each.outcome.text


async def test_a_refused_key_is_one_request() -> None:
    assert requests(await together(status(401))) == dict.fromkeys(PROVIDERS, 1)


async def test_a_provider_that_hangs_is_asked_once_more() -> None:
    ran = await together(hang, timeout=2)
    assert {each.outcome.reason for each in ran.values()} == {"done"}
    for each in ran.values():
        first, *_ = events_of(each.session, "retried")
        assert "silent" in first.data["why"]


async def test_a_reset_connection_is_asked_once_more() -> None:
    ran = await together(reset)
    assert requests(ran) == dict.fromkeys(PROVIDERS, 2)
    assert {each.outcome.reason for each in ran.values()} == {"done"}


async def test_an_answer_cut_in_the_middle_is_asked_once_more_and_its_call_never_runs() -> None:
    ran = await together(cut)  # type: ignore[arg-type]
    assert requests(ran) == dict.fromkeys(PROVIDERS, 2)
    for provider, each in ran.items():
        assert (each.outcome.reason, each.looked) == ("done", [])
        (retried,) = events_of(each.session, "retried")
        void = [
            event.seq for event in each.session.trace if event.type in ("text", "call_text") and event.seq < retried.seq
        ]
        assert void, "something of it was shown"
        assert retried.data["taken_back"] == void
        assert called_and_answered(provider, each.wire.seen[1].body) == ([], [])
    done = await run("anthropic", whole("anthropic", "I look.", CALL), whole("anthropic", "Done."))
    assert (done.looked, len(done.wire.seen)) == (["a.txt"], 2), "the control: a whole answer runs it"
