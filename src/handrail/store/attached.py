"""An Attached: a session as another process of the same user sees it: its events, its questions, its end."""

from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import anyio
from anyio.lowlevel import checkpoint

from handrail.aio import Task, in_background
from handrail.contract.approval import Decision
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.event import Event
from handrail.contract.result import Image
from handrail.contract.wire import to_wire
from handrail.misuse import expect
from handrail.store.activity import ActivityName
from handrail.store.claim import door_of
from handrail.store.door import DOOR_VERSION, Frames, Gone, is_same_user, short_path
from handrail.store.summary import Summary

LOOK_SECONDS: Final = 0.2
"""Seconds between two looks into the store, where no door tells that there is more."""
HELLO_SECONDS: Final = 10.0
"""Seconds that a door has to say hello."""
ENDED: Final = "its process has ended, or closed its door"
EVENTS_PER_TURN: Final = 64
"""Events after which other tasks get a turn."""


class Readable(Protocol):
    """The part of a Store that an Attached reads."""

    def events(self, id: str, start: int = 0) -> Iterator[Event]: ...
    def summary(self, id: str) -> Summary: ...


class Attached:
    """A session that another process runs, or ran. Use it with `async with store.attach(id)`.

    Example:
        ```python
        def add(a: int, b: int) -> int:
            "Add two numbers."
            return a + b

        store = Store("sessions.db")
        async with Session([add], store=store, door=True) as session:
            await session.call("add", {"a": 40, "b": 2})
            attached: Attached
            async with store.attach(session.id) as attached:  # in any process of this user
                print(attached.state, await attached.terminate("call_9"))
        #> idle False
        ```
    """

    def __init__(self, store: Readable, claims: Path, id: str) -> None:
        self.id = id
        self._store, self._claims = store, claims
        self._opened: Frames | None = None
        self._frames: Frames | None = None
        """The same connection, while the session answers."""
        self._why = ""
        """Why the session cannot be reached; empty while it can."""
        self._state: ActivityName = "ended"
        self._count = 0
        self._news = anyio.Event()
        self._number = 0
        self._waiting: dict[int, Callable[[Mapping[str, Any]], None]] = {}
        self._task: Task | None = None

    async def __aenter__(self) -> Self:
        self._state = self._store.summary(self.id).activity
        door, held = door_of(self._claims, self.id)
        if not held:
            self._why = f"no process runs session {self.id}; `handrail chat --resume {self.id}` goes on with it"
            if door:
                (self._claims / door).unlink(missing_ok=True)  # its process was killed
        elif not door:
            self._why = f"session {self.id} was opened without a door: it can only be watched"
        else:
            await self._connect(door)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._opened is not None:
            await self._opened.close()
        self._gone("this Attached was closed")

    @property
    def state(self) -> ActivityName:
        """Whether the session works, waits for a person, is idle, or has ended."""
        return self._state

    async def events(self, start: int = 0) -> AsyncIterator[Event]:
        """Yield every stored event from number `start`, then each new one, until the session ends."""
        while True:
            news, over, before = self._news, not self._is_held(), start
            for event in self._store.events(self.id, start):
                start = event.seq + 1
                yield event
                if start % EVENTS_PER_TURN == 0:
                    await checkpoint()
            if start > before:
                continue
            if over:
                self._state = "ended"
                return
            await self._wait(news, told=self._frames is not None and self._count <= start)

    async def answer(self, request_id: str, decision: Decision, *, arguments_hash: str, by: str = "attached") -> bool:
        """Answer an approval, for exactly the arguments of this hash. Whether the answer counted.

        It does not if the request is settled or expired, or is about other arguments. Raises Unavailable.
        """
        expect("the answer", decision, Decision, "a Decision such as Decision.approve()")
        wire = {"verdict": decision.verdict, "arguments": to_wire(decision.arguments), "message": decision.message}
        return await self._do("answer", request_id=request_id, decision=wire, arguments_hash=arguments_hash, by=by)

    async def reply(self, question_id: str, text: str, *, by: str = "attached") -> bool:
        """Answer a question of `ask_user`, which begins the next run. Whether it counted. Raises Unavailable."""
        return await self._do("reply", question_id=question_id, text=text, by=by)

    async def prompt(self, text: str, images: Sequence[Image] = ()) -> None:
        """Say something to the session; if it works, that comes after its turn. Raises Unavailable."""
        pictures = [{"data": b64encode(each.data).decode(), "media_type": each.media_type} for each in images]
        await self._do("prompt", text=text, images=pictures)

    async def stop(self) -> None:
        """End the session's run, as Ctrl-C does in its terminal. Raises Unavailable."""
        await self._do("stop")

    async def terminate(self, id: str) -> bool:
        """End a running call, task or job for a person. Whether there was one. Raises Unavailable."""
        return await self._do("terminate", id=id)

    async def set_mode(self, mode: str) -> bool:
        """Change the policy's mode. Whether the session allows that. Raises Unavailable."""
        return await self._do("mode", mode=mode)

    async def _connect(self, door: str) -> None:
        try:
            with short_path(self._claims, door) as path:
                stream = await anyio.connect_unix(path)
        except OSError as error:
            self._why = f"the door of session {self.id} cannot be opened: {error.strerror or error}"
            return
        self._opened = self._frames = Frames(stream)
        if not is_same_user(stream):
            self._gone("its door belongs to another user")
            return
        greeted = anyio.Event()
        self._task = in_background(self._listen(self._frames, greeted))
        with anyio.move_on_after(HELLO_SECONDS):
            await greeted.wait()
        if not greeted.is_set():
            self._gone("its door did not answer")

    async def _listen(self, frames: Frames, greeted: anyio.Event) -> None:
        try:
            async for frame in frames.read():
                if "hello" in frame and frame["hello"] != DOOR_VERSION:
                    self._gone("it runs another version of Handrail; upgrade the older one")
                    break
                self._take(frame)
                greeted.set()
        finally:
            if not self._why:
                self._gone(ENDED)
            greeted.set()

    def _take(self, frame: Mapping[str, Any]) -> None:
        if (number := frame.get("no")) in self._waiting:
            self._waiting.pop(number)(frame)
            return
        if "count" in frame:
            self._count, self._state = int(frame["count"]), frame["state"]
            self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    def _gone(self, why: str) -> None:
        self._frames, self._why = None, why
        while self._waiting:
            self._waiting.popitem()[1]({"error": why})
        self._tell()

    def _is_held(self) -> bool:
        """Whether a living process has the session."""
        return door_of(self._claims, self.id)[1]

    async def _wait(self, news: anyio.Event, *, told: bool) -> None:
        """Wait for more events; unless a door tells of them, only for a while."""
        if told:
            await news.wait()
            return
        with suppress(HandrailError, Unavailable):
            self._state = self._store.summary(self.id).activity
        with anyio.move_on_after(LOOK_SECONDS):
            await news.wait()

    async def _do(self, what: str, **given: Any) -> bool:
        """Ask the session to do something, and wait until it has."""
        if self._frames is None:
            raise Unavailable(self._why[:1].upper() + self._why[1:] + ".", retryable=False)
        self._number += 1
        done, answers = anyio.Event(), []

        def take(frame: Mapping[str, Any]) -> None:
            answers.append(frame)
            done.set()

        self._waiting[self._number] = take
        try:
            try:
                await self._frames.send({"no": self._number, "do": what, **given})
            except Gone:
                self._gone(ENDED)
            await done.wait()
        finally:
            self._waiting.pop(self._number, None)
        if "error" in answers[0]:
            raise Unavailable(str(answers[0]["error"]), retryable=False)
        return bool(answers[0].get("answer"))
