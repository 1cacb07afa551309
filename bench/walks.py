"""Walks by a tracer: how many files of the package a task enters, and how often it goes from one room to another.

Run it with `python -m bench.walks`. A file counts once it is entered; a change of room is two calls in a row, of
functions of the package, whose rooms differ.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import handrail
from handrail import Agent, Call, Decision, Policy, Session, Store, Turn, builtin_tools, open_sandbox, tool
from handrail.testing import ScriptedModel

ROOT: Final = f"{Path(handrail.__file__).parent}/"
Work = Callable[[], Awaitable[Any]]


@tool(effects={"writes"}, risk="high")
async def send(text: str) -> str:
    """Send."""
    return text


async def walk(work: Work) -> tuple[int, int]:
    """Files that the work enters, and changes of room."""
    files: set[str] = set()
    changes, last = 0, ""

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal changes, last
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(ROOT):
            files.add(name)
            room = name.removeprefix(ROOT).split("/")[0]
            changes, last = changes + (bool(last) and room != last), room

    sys.setprofile(note)
    try:
        await work()
    finally:
        sys.setprofile(None)
    return len(files), changes


async def bash_in_the_loop() -> tuple[int, int]:
    turns = [Turn("", (Call(str(n), "bash", {"command": "true"}),), stop="tool_use") for n in range(2)]
    async with open_sandbox("host", allow_weaker=True) as sandbox:
        seen: list[tuple[int, int]] = []
        for lines in (turns, turns):  # the first run loads what is loaded lazily
            agent = Agent(
                ScriptedModel([lines[0], "Done."]), tools=builtin_tools(), sandbox=sandbox, policy=Policy(mode="open")
            )
            async with agent.session:
                seen.append(await walk(lambda agent=agent: agent.run("go")))  # type: ignore[misc]
        return seen[-1]


async def resume() -> tuple[int, int]:
    with tempfile.TemporaryDirectory() as directory, Store(Path(directory) / "s.db") as store:
        agent = Agent(
            ScriptedModel([Turn("", (Call("1", "send", {"text": "a"}),)), "Done."]), tools=[send], store=store
        )
        async with agent:
            await agent.run("go")

        async def again() -> None:
            resumed = Agent.resume(ScriptedModel(["Yes."]), store, agent.session.id, tools=[send])
            async with resumed:
                await resumed.run("And?")

        await again()
        return await walk(again)


async def script_call() -> tuple[int, int]:
    code = "import tools\nprint(tools.todo(items=[]))"
    async with open_sandbox("host", allow_weaker=True) as sandbox:
        session = Session(builtin_tools("all"), sandbox=sandbox, policy=Policy(mode="open"))
        async with session:
            await session.call("script", {"code": code})
            return await walk(lambda: session.call("script", {"code": code}))


async def pending_with_approval() -> tuple[int, int]:
    """A call as an MCP client makes it: begun, asked about, answered, waited for."""
    async with Session([send], policy=Policy(mode="strict")) as session:

        async def ask() -> None:
            pending = session.begin("send", {"text": "a"}, origin="mcp")
            while not hasattr(got := await pending.next(), "ok"):
                pending.answer(got.id, Decision.approve())  # type: ignore[union-attr]

        await ask()
        return await walk(ask)


async def chat_turn() -> tuple[int, int]:
    """A turn of a chat as the agent does it, without the terminal: its events are followed."""
    agent = Agent(ScriptedModel(["One.", "Two."]), tools=[send])

    async def turn() -> None:
        async for _ in agent.stream("Hello."):
            pass

    async with agent:
        await turn()
        return await walk(turn)


WALKS: Final[dict[str, Callable[[], Awaitable[tuple[int, int]]]]] = {
    "bash call in the loop": bash_in_the_loop,
    "resume": resume,
    "script call": script_call,
    "call with approval": pending_with_approval,
    "chat turn": chat_turn,
}


async def main() -> None:
    for name, measure in WALKS.items():
        files, changes = await measure()
        print(f"{name}: {files} files, {changes} changes of room")


if __name__ == "__main__":
    asyncio.run(main())
