"""The interpreter of a script: the sandbox's own Python, a new one for each script, the next one waiting."""

import json
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio
from anyio.abc import TaskGroup
from pydantic_core import from_json, to_json

from handrail.aio import in_background
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.limits import FRAME_BYTES
from handrail.sandbox.conversation import CommandConversation
from handrail.sandbox.sandbox import Sandbox
from handrail.sandbox.views import converse, identity
from handrail.script._calls import BROKEN, Frame, ScriptCalls
from handrail.script._program import ARGV, program
from handrail.toolkit.context import Context
from handrail.toolkit.live_output import watcher

MAX_LEAVING_SECONDS: Final = 0.01
"""Seconds that an interpreter has to exit by itself after it has told how its script ended."""
MAX_OPEN_COUNT: Final = 256
"""Requests of a script that are not answered yet, from which on its next request is not read."""
MAX_ANSWER_BYTES: Final = FRAME_BYTES - 100
"""Bytes of an answer; the rest of the frame is for the number before it."""
TOO_LARGE: Final = {
    "kind": "execution_error", "message": f"The answer has many parts, and is above the limit of {FRAME_BYTES:,} bytes."
}  # fmt: skip
# Weak keys: a sandbox that nobody uses any more takes its waiting interpreter along.
_spares: "WeakKeyDictionary[object, CommandConversation]" = WeakKeyDictionary()
"""The interpreter that waits for its script, by sandbox."""


class Interpreter:
    """A Python inside the session's sandbox that runs one script, and is closed after it. CHANNEL.md says how."""

    def __init__(self, context: Context, conversation: CommandConversation) -> None:
        self._sandbox: Sandbox = context.sandbox
        self._watch = watcher(context)
        self._conversation = conversation
        self._has_ended = self._is_closed = False

    @classmethod
    async def open(cls, context: Context) -> "Interpreter":
        """Take the waiting interpreter, or start one. Raises Unavailable without a python3."""
        spare = _spares.pop(identity(context.sandbox), None)
        if spare is None or spare.ended:
            spare = await _started(context.sandbox)
        return cls(context, spare)

    @property
    def logs(self) -> str:
        """The text that the script has printed so far, cut like a command's output."""
        return self._conversation.logs

    async def run(self, code: str, calls: ScriptCalls) -> Frame:
        """Run the script; return how it ended: `{"value": …}`, or `{"error": {"message", "line"}}`.

        `media` beside them names the files under media/ that were made or changed. Requests of the script go to
        `calls.ask`. Raises ToolFailed, alone or in a group, when the interpreter ended or broke the channel.
        """
        if not await self._begin(code):  # it was killed while it waited, and has run nothing: take another one
            await self._conversation.kill()
            try:
                self._conversation = await _started(self._sandbox)
            except Unavailable as error:  # the sandbox is closed
                raise calls.failed(str(error), "unavailable") from None
            await self._begin(code)
        async with anyio.create_task_group() as group:
            ended = await self._serve(calls, group)
            group.cancel_scope.cancel()  # calls that the script has not waited for
        self._has_ended = True
        return ended if isinstance(ended, dict) else {"error": {"message": "no result", "line": None}}

    async def close(self) -> None:
        """End the script and all it started, and let the next interpreter start. Returns when they are gone."""
        if self._is_closed:
            return
        try:
            if self._has_ended:
                await self._conversation.until_ended(MAX_LEAVING_SECONDS)
        finally:
            await self._conversation.kill()
        self._is_closed = True
        in_background(_keep_spare(self._sandbox))  # not earlier: it would take the processor from the script

    async def _begin(self, code: str) -> bool:
        """Send the script; return False if the interpreter had ended before."""
        self._conversation.watch(self._watch)
        places = {"cwd": self._sandbox.cwd, "workspace": self._sandbox.workspace}
        return await self._send(b"0 " + encoded({"code": code, **places}))

    async def _serve(self, calls: ScriptCalls, group: TaskGroup) -> Any:
        """Answer each request in a task of its own, until the script says how it ended."""
        number, room = 0, anyio.Semaphore(MAX_OPEN_COUNT)
        while "ended" not in (frame := await self._receive(calls)):
            number += 1
            if type(frame.get("number")) is not int or frame["number"] != number:
                raise calls.failed(BROKEN)
            await room.acquire()  # lets other tasks run, too, beside a script that calls without a pause
            group.start_soon(self._answer, calls, calls.check(frame), room)
        return frame["ended"]

    async def _answer(self, calls: ScriptCalls, frame: Frame, room: anyio.Semaphore) -> None:
        try:
            await self._send(b"%d " % frame["number"] + encoded(await calls.ask(frame)))
        finally:
            room.release()

    async def _receive(self, calls: ScriptCalls) -> Frame:
        """The next frame. Raises ToolFailed if there is none, or if it is not JSON."""
        try:
            data = await self._conversation.receive()
        except HandrailError as error:
            raise calls.failed(f"{BROKEN}: {error}") from None
        if data is None:
            code = self._conversation.exit_code
            how = "" if code is None else f" (exit code {code})"
            raise calls.failed(f"The script's interpreter ended without a result{how}")
        try:
            frame = decoded(data)
        except (ValueError, RecursionError):
            raise calls.failed(BROKEN) from None
        if not isinstance(frame, dict):
            raise calls.failed(BROKEN)
        return frame

    async def _send(self, frame: bytes) -> bool:
        """Send a frame; return False if the interpreter has ended, which `_receive` explains."""
        try:
            await self._conversation.send(frame)
        except (OSError, Unavailable):
            return False
        return True


def encoded(frame: Frame) -> bytes:
    """The frame as JSON; for what is too large, the error that says so."""
    try:
        data = to_json(frame)
    except ValueError:  # half a pair of surrogates, or more levels than pydantic counts to
        data = json.dumps(frame, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return data if len(data) <= MAX_ANSWER_BYTES else to_json({"error": TOO_LARGE})


def decoded(data: bytes) -> Any:
    """The value of the JSON that an interpreter sent. Raises ValueError and RecursionError."""
    try:
        return from_json(data)
    except ValueError:  # half a pair of surrogates, or more levels than pydantic counts to
        return json.loads(data.decode())


async def _started(sandbox: Sandbox) -> CommandConversation:
    try:
        return await converse(sandbox, ARGV, cwd=sandbox.workspace, lasting=True, first=program())
    except FileNotFoundError as error:
        raise Unavailable(
            "python3 is not installed in this sandbox: call the tools directly.", retryable=False
        ) from error


async def _keep_spare(sandbox: Sandbox) -> None:
    """Start an interpreter for the next script; two scripts at once leave one."""
    try:
        spare = await _started(sandbox)
    except (OSError, ValueError, HandrailError, Unavailable):
        return  # the next script starts one itself, or says why it cannot
    if _spares.setdefault(identity(sandbox), spare) is not spare:
        await spare.kill()
