"""What a model can do to the program around it: requests, waits, memory and silence of the event loop, at the worst."""

import gc
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from bench.floor import add
from bench.measure import Effort, Row
from handrail import Agent, Budget, Call, Message, ModelEvent, Session, Store, TextDelta, Turn, tool
from handrail.contract.limits import DEFAULT_BUDGET
from handrail.testing import ScriptedModel
from handrail.tools.task import task

BATCH: Final = 32
"""Tasks of one call, which is the most that `task` takes."""
WAITING: Final = 2_000
"""Children that wait when the run is cancelled."""
PIECE: Final = "x" * 65_536
ENDLESS_PIECES: Final = 1_024
"""Pieces of an answer of 64 MiB, where nobody ends it before."""
MANY_CALLS: Final = 10_000
MANY_NAMES: Final = 1_000
LONG_NAME: Final = 500
MANY_TOOLS: Final = 400
DEEP: Final = 5_000


def rows(effort: Effort) -> list[Row]:
    return [*anyio.run(_tasks, effort), *anyio.run(_answers, effort)]


async def _tasks(effort: Effort) -> list[Row]:
    bomb, waiting = Bomb(), effort.count(WAITING)
    agent = Agent(bomb, tools=[task], budget=Budget(calls=effort.count(100)), rounds=2)
    await agent.run("go")
    return [
        Row(f"task bomb, Budget(calls={effort.count(100)}): requests", float(bomb.asked), "", bound=201),
        Row("the same: requests out at once", float(bomb.most), "", bound=32),
        Row("the same, cancelled in its midst: until all ended", await _cancelled_bomb(), "s", bound=2),
        Row(f"{waiting:,} children that wait: cancelled until all ended", await _cancelled(waiting), "s", bound=2),
        Row("Budget(seconds=0.2): a tool with its own clock ends so much later", await _late(), "s", bound=1),
    ]


class Bomb:
    """A model that starts 32 tasks in each of its answers, as deep as it may; each request takes a moment."""

    def __init__(self) -> None:
        self.asked = self.out = self.most = 0

    async def ask(self, messages: Sequence[Message], tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
        self.asked += 1
        self.out += 1
        self.most = max(self.most, self.out)
        try:
            await anyio.sleep(0.01)
        finally:
            self.out -= 1
        batch = [{"prompt": f"part {n}"} for n in range(BATCH)]
        yield Turn("done") if len(messages) > 1 else Turn("", (Call("t", "task", {"batch": batch}),), "tool_use")


class Waiting:
    """A model that gives so many tasks, then calls a tool that never ends."""

    def __init__(self, tasks: int) -> None:
        self.left = tasks

    async def ask(self, messages: Sequence[Message], tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
        given, self.left = min(BATCH, self.left), max(0, self.left - BATCH)
        batch = [{"prompt": f"part {n}"} for n in range(given)]
        yield Turn("", (Call("t", "task", {"batch": batch}) if given else Call("w", "waits", "{}"),), "tool_use")


async def _cancelled(tasks: int) -> float:
    """Seconds from the cancellation of a run, in which so many children wait, until all of it has ended."""

    @tool
    async def waits() -> None:
        """Wait."""
        await anyio.sleep(inf)

    model = Waiting(tasks)
    agent = Agent(model, tools=[task, waits], budget=Budget(calls=None))
    known = -1

    def waiting() -> bool:
        nonlocal known
        before, known = known, agent.session.event_count
        return not model.left and before == known

    return await _until_ended(agent, waiting)


async def _cancelled_bomb() -> float:
    """The same of a bomb that goes off meanwhile."""
    bomb = Bomb()
    return await _until_ended(Agent(bomb, tools=[task], rounds=2), lambda: bomb.asked >= 2 * BATCH)


async def _until_ended(agent: Agent, ready: Callable[[], bool]) -> float:
    began = 0.0

    async def cancel() -> None:
        nonlocal began
        while not ready():  # noqa: ASYNC110 - it is asked rarely, so that it costs nothing
            await anyio.sleep(0.1)
        began = perf_counter()
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(cancel)
        await agent.run("go")
    return perf_counter() - began


async def _late() -> float:
    @tool(timeout=None)
    async def naps() -> None:
        """Sleep."""
        await anyio.sleep(60)

    async with Session([naps], budget=Budget(seconds=0.2)) as session:
        began = perf_counter()
        await session.call("naps")
        return perf_counter() - began - 0.2


async def _answers(effort: Effort) -> list[Row]:
    many, names, pieces = effort.count(MANY_CALLS), effort.count(MANY_NAMES), effort.count(ENDLESS_PIECES)
    tools = effort.count(MANY_TOOLS)
    calls = tuple(Call(f"c{n}", "add", '{"a": 1, "b": 2}') for n in range(many))
    unknown = tuple(Call(f"c{n}", f"{n:04}" + "ab_c" * (LONG_NAME // 4 - 1), "{}") for n in range(names))
    written, disk = await _endless(pieces)
    return [
        Row(f"an answer of {pieces // 16} MiB: MiB in the transcript", written, "MiB", bound=49),
        Row("the same: MiB in the store", disk, "MiB", bound=100),
        Row(f"{many:,} calls in one answer: longest silence of the loop", await _silence(calls), "s", bound=0.1),
        Row("the same, all within the budget", await _silence(calls, Budget(calls=None)), "s", bound=0.1),
        Row("the same, in a store", await _silence(calls, stored=True), "s", bound=0.25),
        Row(f"{names:,} unknown names of 500 characters: longest silence", await _silence(unknown), "s", bound=0.1),
        Row(f"an unknown name among {tools} tools", 1000 * await _unknown(tools, effort), "ms", bound=5),
        Row(f"runs that end by arguments nested {DEEP:,} deep", float(await _deep()), "", bound=0),
    ]


class Streaming:
    """A model that writes so many pieces before it ends its answer."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces

    async def ask(self, messages: Sequence[Message], tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
        for _ in range(self.pieces):
            yield TextDelta(PIECE)
            await checkpoint()
        yield Turn(PIECE * self.pieces)


async def _endless(pieces: int) -> tuple[float, float]:
    """MiB that an answer leaves in the transcript, and in the file of a store."""
    with tempfile.TemporaryDirectory() as place:
        store = Store(Path(place) / "sessions.db")
        async with Agent(Streaming(pieces), store=store) as agent:
            await agent.run("go")
            written = sum(len(str(event.data.get("text", ""))) for event in agent.session.trace)
        return written / (1 << 20), _size(Path(place)) / (1 << 20)


def _size(place: Path) -> int:
    return sum(file.stat().st_size for file in place.iterdir())


async def _silence(calls: tuple[Call, ...], budget: Budget = DEFAULT_BUDGET, *, stored: bool = False) -> float:
    """The longest time for which nobody else on the event loop had a turn; Python's own collector is left out."""
    gc.collect()
    gc.disable()
    try:
        return await _longest_silence(calls, budget, stored=stored)
    finally:
        gc.enable()


async def _longest_silence(calls: tuple[Call, ...], budget: Budget, *, stored: bool) -> float:
    with tempfile.TemporaryDirectory() as place:
        store = Store(Path(place) / "sessions.db") if stored else None
        model = ScriptedModel([Turn("", calls, "tool_use"), "done"])
        async with Agent(model, tools=[add, *_tools(30)], budget=budget, store=store) as agent, _beating() as longest:
            await agent.run("go")
        if agent.session.call_count != len(calls):
            raise AssertionError("not every call was taken, so the time means nothing")
        return longest()


@asynccontextmanager
async def _beating() -> AsyncIterator[Callable[[], float]]:
    """Notice how long it takes until this task gets its turns. Yields what says the longest time so far."""
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            began = perf_counter()
            await anyio.sleep(0.001)
            longest = max(longest, perf_counter() - began - 0.001)

    async with anyio.create_task_group() as group:
        group.start_soon(beat)
        await anyio.sleep(0.01)
        longest = 0.0
        yield lambda: longest
        await anyio.sleep(0.005)  # the silence that has just ended counts too
        group.cancel_scope.cancel()


def _tools(count: int) -> list[Any]:
    def named(number: int) -> Any:
        @tool(name=f"service_{number % 20}_find_record_{number}")
        async def finds(key: str) -> str:
            """Find a record."""
            return key

        return finds

    return [named(number) for number in range(count)]


async def _unknown(tools: int, effort: Effort) -> float:
    count = effort.count(100)
    async with Session(_tools(tools), budget=Budget(calls=None, refusals=None)) as session:
        began = perf_counter()
        for number in range(count):
            await session.call(f"service_{number}_find_recrods")
        return (perf_counter() - began) / count


async def _deep() -> int:
    """How many of the runs ended, of one for each form in which such arguments come."""
    value: Any = 1
    for _ in range(DEEP):
        value = [value]
    text = '{"a": ' + "[" * DEEP + "1" + "]" * DEEP + ', "b": 1}'
    reasons = []
    for arguments in (text, {"a": value, "b": 1}):
        model = ScriptedModel([Turn("", (Call("1", "add", arguments),), "tool_use"), "done"])
        reasons.append((await Agent(model, tools=[add]).run("go")).reason)
    return sum(reason != "done" for reason in reasons)
