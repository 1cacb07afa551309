"""Deferred tools stay out of the model's sight until it searches for them."""

import pytest

from handrail import Agent, Call, Session, Tool, Toolbox, Turn
from handrail.testing import ScriptedModel
from handrail.tools.search_tools import rank, search_tools

pytestmark = pytest.mark.anyio
ABOUT = {
    "mail__send": "Send a message to a person.",
    "mail__list_folders": "List the folders of the mailbox.",
    "files__readFile": "Reads a file from the disk, with its line numbers.",
    "files__delete": "Delete a file for good.",
    "calendar__add_event": "Put an appointment into the calendar. Sends an invitation to each person.",
    "weather__forecast": "How warm it will be.",
}


def named(name: str, *, deferred: bool = True) -> Tool:
    async def body(context: object, arguments: object) -> str:
        return f"{name} ran"

    return Tool(name, {"type": "object"}, body, description=ABOUT.get(name, "Something else."), deferred=deferred)


def offered(session: Session) -> list[str]:
    return [schema["name"] for schema in session.schemas("mcp")]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("send an email message", "mail__send"),
        ("read files", "files__readFile"),
        ("appointment", "calendar__add_event"),
        ("how warm is it?", "weather__forecast"),
        ("FOLDER", "mail__list_folders"),
        ("I want weather__forecast to send a message", "weather__forecast"),
    ],
)
def test_the_best_match_is_first(query: str, first: str) -> None:
    assert rank(query, ABOUT)[0] == first


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    tools = {f"tool_{number}": "It handles a customer record." for number in range(50)}
    assert rank("delete a customer", {**tools, "remover": "It can delete a record."})[0] == "remover"


@pytest.mark.parametrize("query", ["", "zzz", "***", "\u0000", "日本"])
def test_what_matches_nothing_finds_nothing(query: str) -> None:
    assert rank(query, ABOUT) == []
    assert rank("anything", {}) == []


async def test_a_search_loads_the_tools_that_it_finds() -> None:
    async with Session([search_tools, *map(named, ABOUT)]) as session:
        assert offered(session) == ["search_tools"]
        result = await session.call("search_tools", {"query": "delete a file", "limit": 2})
        assert [each["name"] for each in result.value["loaded"]] == ["files__delete", "files__readFile"]
        assert result.value["not_loaded"] == 4
        assert offered(session) == ["files__delete", "files__readFile", "search_tools"]
        loaded = [event.data for event in session.trace if event.type == "tools_loaded"]
        assert loaded == [{"tools": ["files__delete", "files__readFile"]}]
        assert (await session.call("files__delete")).value == "files__delete ran"


async def test_a_search_without_a_match_says_how_many_tools_there_are() -> None:
    async with Session([named("mail__send")]) as session:
        result = await session.call("search_tools", {"query": "zzz"})
        assert result.kind == "not_found"
        assert "1 tools are not loaded" in result.message
        assert (await session.call("search_tools", {"query": ""})).kind == "invalid_args"


async def test_deferred_tools_can_be_searched_in_every_session() -> None:
    async with Session([named("mail__send")]) as session:
        assert offered(session) == []
        assert (await session.call("search_tools", {"query": "send"})).ok
        assert offered(session) == ["mail__send"]
    async with Session([named("mail__send", deferred=False)]) as session:
        assert (await session.call("search_tools", {"query": "send"})).kind == "tool_not_found"


async def test_what_one_session_loads_another_does_not_see() -> None:
    toolbox = Toolbox([search_tools, *map(named, ABOUT)])
    async with Session(toolbox) as one, Session(toolbox) as other:
        await one.call("search_tools", {"query": "send", "limit": 1})
        assert len(offered(one)) == 2
        assert offered(other) == ["search_tools"]


class Seeing(ScriptedModel):
    """Remembers which tools it was given."""

    searches = False

    def ask(self, messages, tools, *, system=""):  # type: ignore[no-untyped-def]
        self.given = [*getattr(self, "given", []), list(tools)]
        return super().ask(messages, tools, system=system)


def turns() -> list[Turn]:
    return [Turn(calls=(Call("1", "search_tools", {"query": "send", "limit": 1}),)), Turn("done")]


async def test_an_agent_sees_what_it_searched_for_in_its_next_round() -> None:
    model = Seeing(turns())
    async with Agent(model, tools=[named("mail__send"), named("weather__forecast")]) as agent:
        await agent.run("send it")
    assert [[tool["name"] for tool in given] for given in model.given] == [
        ["search_tools"],
        ["mail__send", "search_tools"],
    ]


async def test_a_provider_with_its_own_search_is_given_the_deferred_tools_marked() -> None:
    model = Seeing([Turn("done")])
    model.searches = True
    async with Agent(model, tools=[named("mail__send"), named("weather__forecast", deferred=False)]) as agent:
        await agent.run("send it")
    [given] = model.given
    marks = {tool["name"]: (tool.get("_meta") or {}).get("handrail/deferred") for tool in given}
    assert marks == {"mail__send": True, "weather__forecast": None}
