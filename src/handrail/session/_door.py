"""The session's side of its door: tells watchers that there is more to read, and takes their answers."""

import os
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

import anyio
from anyio.abc import SocketStream

from handrail.aio import OwnLoop, Task, call_on, in_background
from handrail.contract.approval import Decision
from handrail.contract.errors import HandrailError, Unavailable, describe_error
from handrail.contract.event import Event
from handrail.contract.result import Image
from handrail.contract.version import __version__
from handrail.policy.approvers import HeldApprovals, first_of, wait_of
from handrail.session._transcript import Transcript
from handrail.store.activity import Activity
from handrail.store.claim import DOOR_ENDING, Claim, sweep_doors
from handrail.store.door import DOOR_VERSION, Frames, is_same_user, short_path
from handrail.store.stored import StoredSession
from handrail.toolkit.gate import SessionState

MAX_WATCHERS_COUNT: Final = 64
"""Connections of one door; a further one is closed at once."""
MAX_BY_CHARS: Final = 40
"""Characters of the name of a person or program that answers."""

Request = Literal["prompt", "stop", "reply", "mode"]
Handler = Callable[..., Awaitable[bool]]


class Door:
    """One session's door. Nothing is done for watchers while there are none.

    `takes` has the functions of the program around the session, by request: `prompt(text, images)`, `stop()`,
    `reply(question_id, text, by)`, `mode(mode)`. A request that nobody takes is answered with a reason.
    """

    def __init__(
        self, transcript: Transcript, claim: Claim, held: HeldApprovals, terminate: Callable[[str], Awaitable[bool]]
    ) -> None:
        self.takes: dict[Request, Handler] = {}
        self.held = held
        """Approvals that a watcher may answer."""
        self._transcript, self._claim, self._terminate = transcript, claim, terminate
        self._loop = OwnLoop()
        self._watchers: set[_Watcher] = set()
        self._activity, self._folded = Activity(), 0
        self._listener: anyio.abc.Listener[SocketStream] | None = None
        self._serving: Task | None = None
        self._name = ""

    async def open(self) -> str:
        """Open the door. Returns why that is not possible; empty if it is open."""
        sweep_doors(self._claim.directory)
        name = f"{self._claim.stem}-{os.urandom(4).hex()}{DOOR_ENDING}"
        try:
            with short_path(self._claim.directory, name) as path:
                self._listener = await anyio.create_unix_listener(path, mode=0o600)
            self._name = name
            self._claim.name_door(name)
        except (OSError, ValueError) as error:
            await self.close()
            return f"other processes cannot reach the session: {describe_error(error)}"
        self._serving = in_background(self._serve(self._listener))
        return ""

    async def close(self) -> None:
        """Close the door and every connection. May be called twice."""
        if self._serving is not None:
            self._serving.cancel()
        if self._listener is not None:
            await self._listener.aclose()
        if self._name:
            (self._claim.directory / self._name).unlink(missing_ok=True)
        for watcher in list(self._watchers):
            await watcher.close()

    def news(self) -> dict[str, Any]:
        """The frame that tells how many events there are, and what the session does."""
        for event in self._transcript.since(self._folded):
            self._activity = self._activity.after(event)
        self._folded = self._transcript.count
        return {"count": self._folded, "state": self._activity.name}

    async def _serve(self, listener: anyio.abc.Listener[SocketStream]) -> None:
        try:
            await listener.serve(self._welcome)
        except (anyio.ClosedResourceError, OSError):
            pass  # the door was closed

    async def _welcome(self, stream: SocketStream) -> None:
        watcher = _Watcher(self, Frames(stream))
        if not is_same_user(stream) or len(self._watchers) >= MAX_WATCHERS_COUNT:
            await watcher.close()
            return
        self._watchers.add(watcher)
        if len(self._watchers) == 1:  # the transcript pays for a listener only while somebody watches
            self._transcript.listeners.append(self._heard)
        try:
            await watcher.serve()
        finally:
            self._watchers.discard(watcher)
            if not self._watchers:
                self._transcript.listeners.remove(self._heard)
            await watcher.close()

    def _heard(self, event: Event) -> None:
        """Wake the watchers, once for all events of one turn of the loop. Called in any thread."""
        for watcher in self._watchers:
            if not watcher.woken:
                watcher.woken = True
                call_on(self._loop.loop, watcher.more.set)

    async def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a watcher asks. The answer is whether it counted, or an error."""
        try:
            return {"answer": await self._do(request)}
        except (KeyError, TypeError, ValueError, BadBase64) as error:
            return {"error": f"the request is not complete: {describe_error(error)}"}
        except (Unavailable, HandrailError) as error:
            return {"error": str(error)}

    async def _do(self, request: Mapping[str, Any]) -> bool:
        match request["do"]:
            case "answer":
                wire, by = request["decision"], str(request["by"])[:MAX_BY_CHARS]
                decision = Decision(wire["verdict"], wire.get("arguments"), wire.get("message", ""), by)
                return self.held.answer(request["request_id"], decision, arguments_hash=str(request["arguments_hash"]))
            case "terminate":
                return await self._terminate(str(request["id"]))
            case "prompt":
                images = [Image(b64decode(each["data"]), str(each["media_type"])) for each in request["images"]]
                return await self._taker("prompt")(str(request["text"]), images)
            case "reply":
                by = str(request["by"])[:MAX_BY_CHARS]
                return await self._taker("reply")(str(request["question_id"]), str(request["text"]), by)
            case "stop":
                return await self._taker("stop")()
            case "mode":
                return await self._taker("mode")(str(request["mode"]))
            case other:
                raise Unavailable(f"this version's door knows no {other!r}", retryable=False)

    def _taker(self, request: Request) -> Handler:
        if (handler := self.takes.get(request)) is None:
            raise Unavailable(f"the program that runs this session takes no {request} from elsewhere", retryable=False)
        return handler


def open_door(
    wanted: bool,
    transcript: Transcript,
    stored: StoredSession | None,
    shared: SessionState,
    terminate: Callable[[str], Awaitable[bool]],
) -> Door | None:
    """A door that is still closed, if one is wanted. Its watchers may then answer what the session's approver is asked.

    Without an approver, what asks is refused as before: a door alone asks nobody.
    """
    if not wanted:
        return None
    if stored is None:
        raise HandrailError("a door needs a store: Session(…, store=Store('sessions.db'), door=True)")
    held = HeldApprovals()
    if shared.approver is not None:
        held = HeldApprovals(wait_of(shared.approver))
        shared.approver = first_of(shared.approver, held)
    return Door(transcript, stored.claim, held, terminate)


class _Watcher:
    """One connection. A client that reads nothing makes only its own tasks wait."""

    def __init__(self, door: Door, frames: Frames) -> None:
        self._door, self._frames = door, frames
        self.woken = False
        self.more = anyio.Event()

    async def serve(self) -> None:
        """Tell of news and answer requests until the client goes."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tell)
            async for request in self._frames.read():
                answer = await self._door.answer(request)
                with suppress(Unavailable):
                    await self._frames.send({"no": request.get("no"), **answer})
            tasks.cancel_scope.cancel()

    async def _tell(self) -> None:
        with suppress(Unavailable):
            await self._frames.send({"hello": DOOR_VERSION, "version": __version__, **self._door.news()})
            while True:
                await self.more.wait()
                self.more, self.woken = anyio.Event(), False
                await self._frames.send(self._door.news())

    async def close(self) -> None:
        await self._frames.close()
