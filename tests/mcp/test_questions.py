"""A server that asks its user for something is answered by the program, or told that nobody can be asked."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Policy, Session
from handrail.mcp.client import connect
from tests.mcp.commands import TOKEN, http_server
from tests.mcp.test_client import raw

pytestmark = pytest.mark.anyio
OPEN = Policy(mode="open")


class Person:
    """Answers every question in one way, and remembers them."""

    def __init__(self, says: Mapping[str, Any] | None) -> None:
        self.says = says
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def __call__(self, question: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        self.asked.append((question, schema))
        return self.says


@asynccontextmanager
async def asking(ask: Any) -> AsyncIterator[Session]:
    async with connect("raw", command=raw("Asks"), ask=ask) as server, Session(server.tools, policy=OPEN) as session:
        yield session


async def told(ask: Any, what: str = "form") -> Any:
    """What the server was told."""
    async with asking(ask) as session:
        return json.loads((await session.call("raw__echo", {"text": what})).value)


async def test_the_program_s_answer_is_passed_on_with_the_defaults_that_it_leaves_out() -> None:
    person = Person({"name": "Ada"})
    assert await told(person) == {"action": "accept", "content": {"name": "Ada", "age": 30}}
    [(question, schema)] = person.asked
    assert question == "Who are you?", "without what a person does not see"
    assert schema["properties"]["name"] == {"type": "string"}


async def test_the_time_that_a_person_takes_to_answer_is_not_the_call_s() -> None:
    async def slow(question: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        await anyio.sleep(3)
        return {"name": "Ada"}

    async with (
        connect("raw", command=raw("Asks"), ask=slow, timeout=2.5) as server,
        Session(server.tools, policy=OPEN) as session,
    ):
        result = await session.call("raw__echo", {"text": "form"})
    assert "Ada" in result.value, result


async def test_no_answer_and_a_page_that_is_to_be_opened_are_declined() -> None:
    assert await told(Person(None)) == {"action": "decline"}
    person = Person({})
    assert (await told(person, "page"))["action"] == "decline"
    assert person.asked == []


async def test_without_anybody_to_ask_the_server_is_told_so() -> None:
    assert await told(None) == "nobody"


async def test_a_person_who_fails_to_answer_does_not_end_the_connection() -> None:
    async def broken(question: str, schema: Mapping[str, Any]) -> None:
        raise RuntimeError("no screen")

    async with asking(broken) as session:
        for text in ("one", "two"):
            assert json.loads((await session.call("raw__echo", {"text": text})).value) == "nobody"


async def test_on_2026_07_28_the_call_is_made_again_with_the_answer(tmp_path: Path) -> None:
    place = tmp_path / "work"
    place.mkdir()
    person = Person(None)
    with http_server(place, "--mode", "ask") as server:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            connect("other", url=server.url, headers=headers, ask=person) as other,
            Session(other.tools, policy=OPEN) as session,
        ):
            assert other.protocol == "2026-07-28"
            for person.says, kind in (({"decision": "deny"}, "execution_error"), ({"decision": "approve"}, None)):
                result = await session.call("other__bash", {"command": "echo once >> f"})
                assert result.kind == kind, result
                assert (place / "f").exists() == (kind is None)
    assert len(person.asked) == 2
