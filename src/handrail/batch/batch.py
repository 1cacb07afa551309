"""Run a batch: hand tasks to a crew, try lost ones again, and commit one line for each result."""

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol

import anyio

from handrail.batch._ledger import SESSIONS, Ledger
from handrail.batch._pace import MAX_ALIKE_COUNT, Pace
from handrail.batch.task import LOST, Done, Lost, Task
from handrail.batch.totals import Totals
from handrail.contract.errors import HandrailError, describe_error
from handrail.contract.model import Usage
from handrail.log import report
from handrail.misuse import expect, expect_number, nearest
from handrail.store.store import Store
from handrail.threads import Work

Show = Callable[[Mapping[str, Any], Totals], object]
"""Called with each event of a batch (`event` is begun, done, again, slowed or stopped) and the totals then."""
TRIES: Final = 3
"""Times that a sample is begun before it is given up as lost."""


class Crew(Protocol):
    """Does tasks, somewhere. It may have `about`, the options that every result of one batch has in common."""

    slots: int
    """Tasks that it does at the same time."""

    async def start(self, out: Path) -> None:
        """Get ready for the batch of this directory. Raises HandrailError."""

    async def do(self, task: Task, sample: int, session_id: str) -> tuple[Done, Iterable[str]]:
        """Do one task. Returns its result, and the lines of its session where they are not in the batch's store yet.

        Raises Lost, and HandrailError for what stops the batch.
        """

    async def close(self) -> None:
        """Release everything."""


@dataclass(slots=True)
class _Item:
    """A sample of a task that has no result yet."""

    task: Task
    sample: int
    tries: int = 0
    began: float = 0.0
    session: str = ""
    sandbox_ended: bool = False
    """Whether its sandbox ended under it before."""
    errors: list[str] = field(default_factory=list)


async def run_batch(
    tasks: Iterable[Task], crew: Crew, out: str | Path, *, jobs: int, tries: int = TRIES, samples: int = 1,
    only: Collection[str] = (), limit: int | None = None, retry_lost: bool = False, show: Show | None = None,
    stop: anyio.Event | None = None,
) -> Totals:  # fmt: skip
    """Do every task that has no line in OUT/results.jsonl yet, and write the lines.

    Args:
        tasks: each id once.
        crew: does the tasks: `Here(model)`.
        out: directory of the batch, made if it is not there; the same one goes on where it was.
        jobs: tasks at the same time, as far as the crew has slots.
        tries: how often a lost sample is begun.
        samples: how often each task is done.
        only: ids of the tasks to do; all of them if it is empty.
        limit: do only the first so many tasks.
        retry_lost: do again what has a line `lost`.
        show: called with each event of the batch, and the totals.
        stop: when it is set nothing new is begun, and the running tasks finish.

    Raises HandrailError for a directory of another batch, a damaged line or an unknown id, and OSError if a result
    cannot be written.
    """
    for name, value in (("jobs", jobs), ("tries", tries), ("samples", samples), ("limit", limit)):
        expect_number(f"run_batch's {name}", value, "a whole number above 0", least=0, above=True, whole=True)
    every = _distinct(tasks)
    chosen = _chosen(every, only, limit)
    ledger = Ledger(Path(out), {"tasks": _hash(every), "samples": samples, **getattr(crew, "about", {})})
    try:
        batch = _Batch(crew, ledger, Path(out), tries, show)
        batch.fill(chosen, samples, retry_lost)
        await crew.start(Path(out))
        try:
            await batch.run(min(jobs, crew.slots), stop)
        finally:
            await crew.close()
    finally:
        ledger.close()
    return batch.totals


class _Batch:
    """One start of a batch."""

    def __init__(self, crew: Crew, ledger: Ledger, out: Path, tries: int, show: Show | None) -> None:
        self.totals = Totals(0)
        self._crew, self._ledger, self._out, self._tries, self._show = crew, ledger, out, tries, show
        self._queue: deque[_Item] = deque()
        self._held: list[Done] = []
        """Lines `lost` of an unbroken row of losses: should the batch stop for it, they are not written."""
        self._pace = Pace(1)
        self._news = anyio.Event()
        self._stop: anyio.Event | None = None
        self._broken: Exception | None = None

    def fill(self, tasks: Sequence[Task], samples: int, retry_lost: bool) -> None:
        """Queue what has no result yet, and count what has one."""
        self.totals.tasks = len(tasks) * samples
        for task in tasks:
            for sample in range(samples):
                known = self._ledger.results.get((task.id, sample))
                if known is None or (retry_lost and known.reason == LOST):
                    self._queue.append(_Item(task, sample))
                else:
                    self.totals.add(known, new=False)

    async def run(self, slots: int, stop: anyio.Event | None) -> None:
        """Work until nothing is left, somebody stops it, or it stops by itself."""
        self._stop, self._pace = stop, Pace(slots)
        async with anyio.create_task_group() as outer:
            if stop is not None:
                outer.start_soon(self._heed, stop)
            async with anyio.create_task_group() as workers:
                for _ in range(min(slots, len(self._queue))):
                    workers.start_soon(self._work, workers.cancel_scope)
            outer.cancel_scope.cancel()
        if self._broken is not None:
            raise self._broken
        self.totals.interrupted = stop is not None and stop.is_set()
        if not self.totals.stopped:
            self._write_held()

    async def _heed(self, stop: anyio.Event) -> None:
        await stop.wait()
        self._tell()

    def _tell(self) -> None:
        """Wake every worker that waits."""
        self._news.set()
        self._news = anyio.Event()

    async def _work(self, everybody: anyio.CancelScope) -> None:
        try:
            while (item := await self._next()) is not None:
                try:
                    await self._try(item)
                finally:
                    self.totals.running -= 1
                    self._tell()
        except Exception as error:  # noqa: BLE001 - a result cannot be written, so nobody's can; raised by `run`
            self._broken = error
            everybody.cancel()

    async def _next(self) -> _Item | None:
        """The next sample to begin, when it may begin; None if there will be none."""
        while not self.totals.stopped and not (self._stop is not None and self._stop.is_set()):
            wait = self._pace.wait(self.totals.running) if self._queue else inf
            if wait <= 0:
                self.totals.running += 1
                return self._queue.popleft()
            if not self._queue and not self.totals.running:
                return None
            news = self._news
            with anyio.move_on_after(wait):
                await news.wait()
        return None

    async def _try(self, item: _Item) -> None:
        """Begin a sample once."""
        item.tries += 1
        item.began = monotonic()
        item.session = f"{item.task.id}.{item.sample}.{os.urandom(3).hex()}"
        self._say("begun", item)
        try:
            done, lines = await self._crew.do(item.task, item.sample, item.session)
        except Lost as lost:
            self._lose(item, lost)
        except HandrailError as error:
            self._halt(str(error))
        except Exception as error:  # noqa: BLE001 - a crew may be anybody's; the others go on
            report(f"The crew, over task {item.task.id!r},", error)
            self._lose(item, Lost(describe_error(error)))
        else:
            if given := list(lines):
                stored = await Work(lambda: _load(self._out, given)).wait()
                done = replace(done, session=stored)
            self._pace.good()
            self._write_held()
            self._record(item, done)

    def _lose(self, item: _Item, lost: Lost) -> None:
        if lost.kind == "configuration":
            self._halt(lost.why)
            return
        item.errors.append(lost.why)
        self.totals.errors[lost.why] += 1
        if lost.done is not None:  # by the model's doing, perhaps: once is forgiven, and no other task suffers from it
            if item.sandbox_ended:
                item.errors.pop()
                self._record(item, lost.done)
            else:
                item.sandbox_ended = True
                self._again(item, lost.why, 0.0)
            return
        wait = self._pace.bad(lost, item.task.id, item.began)
        if self._pace.hopeless:
            self._halt(f"{MAX_ALIKE_COUNT} times in a row a task was lost in the same way: {lost.why}")
        elif item.tries < self._tries:
            self._again(item, lost.why, wait)
        else:
            self._held.append(self._as_lost(item))

    def _again(self, item: _Item, why: str, wait: float) -> None:
        self._queue.append(item)
        self._say("again", item, why=why, wait=wait)

    def _as_lost(self, item: _Item) -> Done:
        return Done(
            item.task.id, item.sample, item.tries, LOST, "", None, None, Usage(), 0, 0.0, item.session,
            os.uname().nodename, tuple(item.errors),
        )  # fmt: skip

    def _record(self, item: _Item, done: Done) -> None:
        """Commit a result."""
        self.totals.errors.update(set(done.errors))
        self._commit(replace(done, tries=item.tries, errors=(*item.errors, *done.errors)))

    def _commit(self, done: Done) -> None:
        self._ledger.append(done)
        self.totals.add(done)
        if self._show is not None:
            self._show({"event": "done", "line": done}, self.totals)

    def _write_held(self) -> None:
        held, self._held = self._held, []
        for done in held:
            self._commit(done)

    def _halt(self, why: str) -> None:
        """Begin nothing more; what runs may finish."""
        if not self.totals.stopped:
            self.totals.stopped = why
            if self._show is not None:
                self._show({"event": "stopped", "why": why}, self.totals)
        self._tell()

    def _say(self, event: str, item: _Item, **more: Any) -> None:
        if self._show is not None:
            about = {"id": item.task.id, "sample": item.sample, "try": item.tries, "session": item.session}
            self._show({"event": event, **about, **more}, self.totals)


def _load(out: Path, lines: list[str]) -> str:
    with Store(out / SESSIONS) as store:
        return store.load(lines)


def _distinct(tasks: Iterable[Task]) -> dict[str, Task]:
    found: dict[str, Task] = {}
    for task in tasks:
        expect("one of run_batch's tasks", task, Task, "Task('id', 'prompt')")
        if task.id in found:
            raise HandrailError(f"two tasks have the id {task.id!r}; to do a task several times give samples")
        found[task.id] = task
    return found


def _chosen(tasks: Mapping[str, Task], only: Collection[str], limit: int | None) -> list[Task]:
    for id in only:
        if id not in tasks:
            raise HandrailError(f"there is no task {id!r}; {nearest(id, tasks)}")
    chosen = [task for id, task in tasks.items() if not only or id in only]
    return chosen if limit is None else chosen[:limit]


def _hash(tasks: Mapping[str, Task]) -> str:
    """A digest of all tasks; the place of an archive does not count, because a directory may be moved."""
    digest = sha256()
    for task in tasks.values():
        archive = None if task.archive is None else os.path.basename(task.archive)
        digest.update(replace(task, archive=archive).to_json().encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()
