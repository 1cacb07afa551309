"""What keeping a session on disk costs: in a round, as it grows, with many at once, and when it is opened again."""

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio

from bench.floor import add, texts
from bench.growth import SIZES, UNLIMITED, exponent
from bench.measure import Effort, Row, Stopwatch, Times, interleave, row
from handrail import Agent, Call, Session, Store
from handrail.testing import ScriptedModel, Turn

ADDED: Final = 2.0
"""How many times as many bare INSERTs as the round writes events the store may add to it."""
EXPONENT: Final = 1.05
TOGETHER: Final = 64
LONG: Final = 100_000
EVENT: Final = json.dumps([0.0, "call_ended", "call_1", None, {"tool": "add", "status": "ok", "result": "x" * 200}])


def rows(effort: Effort) -> Iterator[Row]:
    sizes = [effort.count(size) for size in SIZES]
    with _directory() as directory:
        yield from _rounds(effort, sizes, directory)
        yield from _many(effort, directory)
        yield from _reopened(effort, directory)


def _rounds(effort: Effort, sizes: list[int], directory: Path) -> Iterator[Row]:
    most = sizes[-1]
    events = anyio.run(_events_of_a_round, directory)
    samples: dict[str, Callable[[], float]] = {"insert": lambda: _inserts(directory, most * events)}
    for size in sizes:
        times = max(1, most // size)
        for kind, where in (("stored", directory), ("memory", None)):
            samples[f"{kind} {size}"] = lambda size=size, times=times, where=where: (  # type: ignore[misc]
                sum(anyio.run(_run, texts(size), where) for _ in range(times)) / times
            )
    taken = interleave(samples, effort.rounds)
    floor = Times(tuple(each * events for each in taken["insert"].rounds))
    added = taken[f"stored {most}"].minus(taken[f"memory {most}"])
    best = Times((taken[f"stored {most}"].least - taken[f"memory {most}"].least,))
    yield row("a bare autocommit INSERT of an event", taken["insert"], "µs")
    yield Row("events that a round writes", float(events), "")
    yield row("a round in memory", taken[f"memory {most}"], "µs", floor=floor)
    yield row("a stored round", taken[f"stored {most}"], "µs", floor=floor)
    yield Row(
        "what the store adds, against as many INSERTs", best.least * 1e6, "µs", added.against(floor),
        at_best=best.least / floor.least, bound=ADDED,
    )  # fmt: skip
    for kind in ("memory", "stored"):
        totals = [taken[f"{kind} {size}"].least * size for size in sizes]
        yield Row(f"{kind}: growth exponent", exponent(sizes, totals), "", bound=EXPONENT)


def _many(effort: Effort, directory: Path) -> Iterator[Row]:
    calls = effort.count(200)
    numbers = [anyio.run(_together, calls, directory) for _ in range(effort.rounds)]
    yield Row(f"{TOGETHER} sessions together, wall: stored events", max(numbers), "per s")


def _reopened(effort: Effort, directory: Path) -> Iterator[Row]:
    count = effort.count(LONG)
    path = directory / "long.db"
    with Store(path) as store:
        store.load(_export(count))
        lines = [EVENT] * count
        samples = {
            "parse": lambda: _parsed(lines),
            "resume": lambda: anyio.run(_resume, store, count),
            "list": lambda: _listed(store),
        }
        taken = interleave(samples, effort.rounds)
    yield row(f"json.loads of {count:,} events", taken["parse"], "ms")
    yield row(f"Session.resume of {count:,} events", taken["resume"], "ms", floor=taken["parse"])
    yield row("the list of sessions, with that one", taken["list"], "ms")


@contextmanager
def _directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="handrail-bench-"))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def _inserts(directory: Path, count: int) -> float:
    path = Path(tempfile.mkdtemp(dir=directory)) / "bare.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE events (key INTEGER PRIMARY KEY, event TEXT NOT NULL)")
    with Stopwatch() as watch:
        for key in range(count):
            connection.execute("INSERT INTO events VALUES (?, ?)", (key, EVENT))
    connection.close()
    return watch.cpu / count


def _agent(arguments: list[str], store: Store | None) -> Agent:
    turns = [Turn(calls=(Call(f"call_{n}", "add", text),), stop="tool_use") for n, text in enumerate(arguments)]
    model = ScriptedModel([*turns, "done"])
    return Agent(model, tools=[add], budget=UNLIMITED, rounds=len(arguments) + 1, store=store)


async def _run(arguments: list[str], directory: Path | None) -> float:
    store = None if directory is None else Store(Path(tempfile.mkdtemp(dir=directory)) / "sessions.db")
    agent = _agent(arguments, store)
    async with agent.session:
        with Stopwatch() as watch:
            outcome = await agent.run("Add.")
    if outcome.reason != "done":
        raise AssertionError("the run was not what it should be, so its time means nothing")
    if store is not None:
        store.close()
        shutil.rmtree(store.path.parent)
    return watch.cpu / len(arguments)


async def _events_of_a_round(directory: Path) -> int:
    agent = _agent(texts(12), None)
    async with agent.session:
        await agent.run("Add.")
        answered = [event.seq for event in agent.session.trace if event.type == "model_answered"]
    return answered[10] - answered[9]


async def _together(calls: int, directory: Path) -> float:
    """Events per second that were stored before their callers had the answer."""
    home = Path(tempfile.mkdtemp(dir=directory))
    with Store(home / "sessions.db") as store:
        sessions = [Session([add], store=store, budget=UNLIMITED) for _ in range(TOGETHER)]

        async def use(session: Session) -> None:
            async with session:
                for text in texts(calls):
                    await session.call("add", text)

        with Stopwatch() as watch:
            async with anyio.create_task_group() as group:
                for session in sessions:
                    group.start_soon(use, session)
        events = sum(len(list(store.events(session.id))) for session in sessions)
    shutil.rmtree(home)
    return events / watch.wall


def _export(count: int) -> Iterator[str]:
    yield json.dumps({"handrail": 1, "session": "long"})
    for seq in range(count):
        yield json.dumps({"event": [seq, 1.0, "warning", None, None, {"message": "x" * 200}]})


def _parsed(lines: list[str]) -> float:
    with Stopwatch() as watch:
        kept = [json.loads(line) for line in lines]
    del kept
    return watch.cpu


async def _resume(store: Store, count: int) -> float:
    with Stopwatch() as watch:
        session = Session.resume(store, "long", tools=[add])
    async with session:
        if session.event_count < count:
            raise AssertionError("events are missing, so its time means nothing")
    return watch.cpu


def _listed(store: Store) -> float:
    with Stopwatch() as watch:
        store.sessions()
    return watch.cpu
