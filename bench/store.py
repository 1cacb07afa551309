"""What keeping a session on disk costs: in a round, as it grows, with many at once, and when it is opened again."""

import json
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel

from bench.floor import add, texts
from bench.growth import SIZES, UNLIMITED, exponent
from bench.measure import Effort, Row, Stopwatch, Times, interleave, row
from handrail import Agent, Call, Event, Session, Store, TextDelta
from handrail.store.stored import StoredSession
from handrail.testing import ScriptedModel, Turn

ADDED: Final = 2.5
"""How many times as many bare INSERTs as the round writes events the store may add to it, digests and end marks too."""
EXPONENT: Final = 1.05
TOGETHER: Final = 64
LONG: Final = 100_000
PIECES: Final = 800
"""Pieces of a streamed answer."""
PIECES_AT_ONCE: Final = 8
"""Pieces that arrive together."""
EVENT: Final = json.dumps([0.0, "call_ended", "call_1", None, {"tool": "add", "status": "ok", "result": "x" * 200}])


def rows(effort: Effort) -> Iterator[Row]:
    sizes = [effort.count(size) for size in SIZES]
    with _directory() as directory:
        yield from _rounds(effort, sizes, directory)
        yield from _commits(directory)
        yield from _pieces(effort, directory)
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


def _commits(directory: Path) -> Iterator[Row]:
    """How often the database is written to: the first round, and the first call, also write the session itself."""
    for name, calls, rounds in (("a call", 0, 0), ("another call", 1, 0), ("a round", 0, 1), ("another round", 0, 2)):
        more = anyio.run(_commits_of, calls + (rounds == 0), rounds, directory)
        less = anyio.run(_commits_of, calls, max(0, rounds - 1), directory) if calls or rounds > 1 else 0
        yield Row(f"commits of {name}", float(more - less), "")


def _pieces(effort: Effort, directory: Path) -> Iterator[Row]:
    """A streamed answer, whose pieces are stored before anybody sees them."""
    count = effort.count(PIECES)
    for shown in ("nobody", "a reader", "a stream"):
        samples = {
            kind: lambda where=where, shown=shown: anyio.run(_answer, count, shown, where)[0]  # type: ignore[misc]
            for kind, where in (("memory", None), ("stored", directory))
        }
        taken = interleave(samples, effort.rounds)
        commits = anyio.run(_answer, count, shown, directory)[1]
        yield row(f"a piece of an answer, shown to {shown}, stored", taken["stored"], "µs", floor=taken["memory"])
        yield Row(f"commits of {count:,} of them, shown to {shown}", float(commits), "")


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


class _Counted(Store):
    """A store that counts how often it is written to."""

    commits = 0

    def claim(self, id: str, *, exists: bool = False) -> StoredSession:
        stored = super().claim(id, exists=exists)
        write = stored.append

        def append(events: Sequence[Event], changed: Sequence[Event] = ()) -> None:
            self.commits += 1
            write(events, changed)

        stored.append = append  # type: ignore[method-assign]
        return stored


async def _commits_of(calls: int, rounds: int, directory: Path) -> int:
    """Commits until the caller has the answer; a round is a run's, with one call and an answer after the last."""
    with _Counted(Path(tempfile.mkdtemp(dir=directory)) / "sessions.db") as store:
        agent = _agent(texts(rounds), store)
        async with agent.session as session:
            for text in texts(calls):
                await session.call("add", text)
            if rounds:
                await agent.run("Add.")
            return store.commits


async def _answer(count: int, shown: str, directory: Path | None) -> tuple[float, int]:
    """CPU time per piece, and commits. A provider sends a few pieces at a time."""
    store = None if directory is None else _Counted(Path(tempfile.mkdtemp(dir=directory)) / "sessions.db")
    seen: list[Event] = []
    readers = [seen.append] if shown == "a reader" else []
    async with Session(store=store, readers=readers) as session:
        agent = Agent(_Streams(count), session=session)
        with Stopwatch() as watch:
            if shown == "a stream":
                seen += [event async for event in agent.stream("Say it.")]
            else:
                await agent.run("Say it.")
        commits = 0 if store is None else store.commits
    if shown != "nobody" and len(seen) < count:
        raise AssertionError("pieces are missing, so their time means nothing")
    return watch.cpu / count, commits


class _Streams:
    """A model whose answer comes in pieces, several at a time."""

    name = "streams"

    def __init__(self, count: int) -> None:
        self._count = count

    async def ask(self, messages: object, tools: object, *, system: str) -> AsyncIterator[TextDelta | Turn]:
        for number in range(self._count):
            if number % PIECES_AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
            yield TextDelta("word ")
        yield Turn("word " * self._count)


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
