"""A CommandStream: payloads that run in the order in which they were submitted, beside those of other streams."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

import anyio
from anyio.lowlevel import checkpoint

from handrail.aio import Task, call_on, finish, in_background, loop_here, running_loop
from handrail.contract.driver import Command
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.payload import FileExists, ListFiles, ReadFile, RunCode, WriteFile
from handrail.misuse import AsyncWith, refuse
from handrail.sandbox.checks import seconds
from handrail.sandbox.completed import CodeResult, Completed
from handrail.sandbox.dispatch import Listing, Written, check_payload

if TYPE_CHECKING:
    from handrail.sandbox.sandbox import Sandbox

T = TypeVar("T")


class _Queued(ABC, Generic[T]):
    """An item in a stream's queue, and its outcome."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.settled = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._changed: anyio.Event | None = None

    @abstractmethod
    async def perform(self) -> None:
        """Perform the item. Raises nothing but a cancellation."""

    def settle(self, value: T | None, error: BaseException | None) -> None:
        """Keep the outcome. An error is raised only where the outcome is awaited."""
        self.settled, self._value, self._error = True, value, error
        if self._changed is not None:
            self._changed.set()

    async def outcome(self) -> T:
        """Wait for the outcome, any number of times. A cancellation ends only the waiting."""
        check_loop(self.loop)
        if not self.settled:
            self._changed = self._changed or anyio.Event()
            await self._changed.wait()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class Submitted(_Queued[T]):
    """The outcome of a submitted payload or of a queued wait. Await it, or do not: no failure is reported elsewhere."""

    def __init__(self, loop: Any, work: Callable[[], Awaitable[T]]) -> None:
        super().__init__(loop)
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        return self.outcome().__await__()

    async def perform(self) -> None:
        try:
            self.settle(await self._work(), None)
        except Exception as error:  # noqa: BLE001 - raised where it is awaited; the stream goes on
            self.settle(None, error)


class StreamMark(_Queued[None]):
    """A point in a stream, made by `CommandStream.record_event`.

    The mark happens when everything that was submitted before it has ended.

    Example:
        ```python
        async with open_sandbox() as sandbox, sandbox.stream() as stream:
            begin: StreamMark = stream.record_event()
            stream.submit(Command(line="sleep 0.1"))
            end = stream.record_event()
            await end.wait()
        print(begin.elapsed_time(end) > 100)
        #> True
        ```
    """

    def __init__(self, loop: Any) -> None:
        super().__init__(loop)
        self._time: float | None = None

    def __repr__(self) -> str:
        return f"<StreamMark, {'done' if self.done else 'closed' if self.settled else 'waiting'}>"

    @property
    def done(self) -> bool:
        """Whether the mark has happened."""
        return self._time is not None

    async def wait(self) -> None:
        """Wait until the mark happens. Raises Unavailable if its stream is closed before."""
        await self.outcome()

    def elapsed_time(self, end: "StreamMark") -> float:
        """Milliseconds from this mark to `end`. Raises ValueError before both have happened."""
        _check_mark(end)
        if self._time is None or end._time is None:
            late = "this mark has" if self._time is None else "`end` has"
            raise ValueError(f"{late} not happened yet, so no time is known: await its wait() first.")
        return (end._time - self._time) * 1000

    async def perform(self) -> None:
        self.happen()

    def happen(self) -> None:
        self._time = perf_counter()
        self.settle(None, None)


class CommandStream(AsyncWith):
    """A queue of payloads that run one after the other, made by `Sandbox.stream`.

    A payload that fails does not stop its stream; closing ends everything that has not ended.

    Example:
        ```python
        async def write_and_read(stream: CommandStream) -> str:
            stream.submit(Command(line="echo 1 > a"))
            return (await stream.submit(Command(line="cat a"))).stdout

        async with open_sandbox() as sandbox, sandbox.stream() as stream:
            print(await write_and_read(stream))
        #> 1
        ```
    """

    def __init__(self, sandbox: "Sandbox") -> None:
        self._sandbox = sandbox
        self._loop = running_loop()
        self._queue: deque[_Queued[Any]] = deque()
        self._current: _Queued[Any] | None = None
        self._task: Task | None = None
        self._over: anyio.Event | None = None
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._queue)} waiting" if not self.query() else "idle"
        return f"<CommandStream at {self._sandbox.cwd}, {state}>"

    @overload
    def submit(self, payload: Command) -> Submitted[Completed]: ...
    @overload
    def submit(self, payload: ReadFile) -> Submitted[str | bytes]: ...
    @overload
    def submit(self, payload: WriteFile) -> Submitted[Written]: ...
    @overload
    def submit(self, payload: ListFiles) -> Submitted[Listing]: ...
    @overload
    def submit(self, payload: FileExists) -> Submitted[bool]: ...
    @overload
    def submit(self, payload: RunCode) -> Submitted[CodeResult]: ...
    def submit(self, payload: Any) -> Submitted[Any]:
        """Queue a payload and return at once; await the returned object for the answer of `Sandbox.dispatch`.

        Raises ValueError for any other value, Unavailable after `close`, HandrailError on another event loop.
        """
        check_payload(payload)
        return self._add(Submitted(self._loop, lambda: self._sandbox.dispatch(payload)))

    def record_event(self) -> StreamMark:
        """Mark this point of the stream. On an idle stream the mark happens at once."""
        self._check()
        mark = StreamMark(self._loop)
        if not self.query():
            return self._add(mark)
        mark.happen()
        return mark

    def wait_event(self, mark: StreamMark, timeout: float | None = None) -> Submitted[None]:
        """Queue a wait for a mark, of any stream on this event loop, and return at once.

        After `timeout` seconds of waiting, or when the mark's stream is closed, this stream goes on; awaiting
        then raises TimeoutError or Unavailable.
        """
        _check_mark(mark)
        check_loop(mark.loop)
        limit = seconds(timeout, "timeout")

        async def wait() -> None:
            with anyio.move_on_after(limit):
                return await mark.wait()
            raise TimeoutError(f"The mark did not happen within {limit:g} s; the stream went on without it.")

        return self._add(Submitted(self._loop, wait))

    def wait_stream(self, other: "CommandStream") -> Submitted[None]:
        """Queue a wait for all that was submitted to another stream until now, and return at once."""
        if not isinstance(other, CommandStream):
            refuse("what wait_stream() was given", other, "another stream: stream.wait_stream(sandbox.stream())")
        return self.wait_event(other.record_event())

    async def synchronize(self) -> None:
        """Wait until all that was submitted until now has ended, well or not. Raises Unavailable if it is closed."""
        await self.record_event().wait()

    def query(self) -> bool:
        """Whether all that was submitted has ended."""
        return not self._queue and (self._current is None or self._current.settled)

    async def close(self) -> None:
        """Cancel queued payloads and end the running one. May be called twice, and from any event loop."""
        call_on(self._loop, self._cancel)
        if self._loop is loop_here() and self._over is not None:
            await finish(self._over.wait)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check(self) -> None:
        check_loop(self._loop)
        if self._closed:
            raise Unavailable("The stream is closed; open another with sandbox.stream().", retryable=False)

    def _add(self, item: "Q") -> "Q":
        self._check()
        self._queue.append(item)
        if self._task is None:
            over = self._over = anyio.Event()
            self._task = in_background(self._work_off())
            self._task.add_done_callback(lambda task: self._ended(task, over))
        return item

    async def _work_off(self) -> None:
        """Perform the queued items one by one."""
        # One task for all of them: a task for each costs 0.5 ms (measured).
        while self._queue and not self._closed:
            self._current = self._queue.popleft()
            await self._current.perform()
            await checkpoint()  # other tasks get their turn even if nothing waits, as after the sandbox was closed
        self._task = self._current = None

    def _cancel(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        self._drop(self._queue)

    def _ended(self, task: Task, over: anyio.Event) -> None:
        """Clean up after the task, also after one that was cancelled before it began."""
        if self._task is task:  # it did not reach its end
            self._closed, self._task = True, None
            if self._current is not None:
                self._queue.appendleft(self._current)
            self._drop(self._queue)
        over.set()

    @staticmethod
    def _drop(items: deque[_Queued[Any]]) -> None:
        while items:
            item = items.popleft()
            if not item.settled:
                item.settle(None, Unavailable("The stream was closed before this was done.", retryable=False))


Q = TypeVar("Q", bound=_Queued[Any])


def check_loop(loop: Any) -> None:
    """Raise HandrailError in a thread or on an event loop that a stream does not belong to."""
    if loop is not loop_here():
        raise HandrailError(
            "this stream belongs to another event loop; use it there, or open one here with sandbox.stream()"
        )


def _check_mark(mark: object) -> None:
    if not isinstance(mark, StreamMark):
        refuse("the mark", mark, "what record_event() returned: stream.wait_event(other.record_event())")
