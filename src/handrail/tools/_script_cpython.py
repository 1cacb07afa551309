"""The engine of the full language: the sandbox's own Python, one interpreter for each script, the next one waiting."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel
from pydantic_core import from_json, to_json

from handrail.aio import context_for_callbacks, in_background, running_loop, when_waiting
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.limits import FRAME_BYTES
from handrail.sandbox.conversation import CommandConversation
from handrail.sandbox.sandbox import Sandbox
from handrail.sandbox.views import converse, identity
from handrail.toolkit.context import Context
from handrail.tools._script_engine import BROKEN, Frame, ScriptCalls
from handrail.tools._script_program import ARGV, program
from handrail.tools.bash import watcher

GO: Final = b'0 {"go": true}'
LEAVING: Final = 0.01
"""Seconds that an interpreter has to end by itself after it has told how its script ended."""
MAX_AT_ONCE_COUNT: Final = 256
"""Requests of a script that are not answered yet, from which on its next one waits."""
TURN_EVERY: Final = 64
"""Requests after which other tasks get a turn."""
MAX_ANSWER_BYTES: Final = FRAME_BYTES - 100
"""Bytes of an answer; its number is before it in the frame."""
TOO_LARGE: Final = {
    "kind": "execution_error", "message": f"The answer has many parts, and is above the limit of {FRAME_BYTES:,} bytes."
}  # fmt: skip
_spares: "WeakKeyDictionary[object, CommandConversation]" = WeakKeyDictionary()
"""By sandbox: an interpreter that waits for its script."""


class CPython:
    """A script in an interpreter inside the session's sandbox. Its requests are numbered from 1 without gaps."""

    name = "cpython"

    def __init__(self, context: Context, conversation: CommandConversation) -> None:
        self._sandbox: Sandbox = context.sandbox
        self._watch = watcher(context)
        self._conversation = conversation
        self._has_read = False
        self._last = 0
        self._closed = False
        self._open = 0
        """Requests that are not answered yet."""
        self._is_unheard = False
        """Whether no task takes the next request, because too many are open."""
        self._ended: Any = None

    @classmethod
    async def open(cls, context: Context) -> "CPython":
        """Take the waiting interpreter, or start one. Raises Unavailable without a python3."""
        return cls.waiting(context) or cls(context, await _started(context.sandbox))

    @classmethod
    def waiting(cls, context: Context) -> "CPython | None":
        """Take the waiting interpreter, if there is one."""
        spare = _spares.pop(identity(context.sandbox), None)
        return None if spare is None or spare.ended else cls(context, spare)

    def read(self, code: str) -> None:
        """Let the interpreter read a short script, which it runs later, or never. A long one is sent by `run`."""
        self._has_read = self._push(self._order(code))

    def _order(self, code: str) -> bytes:
        places = {"cwd": self._sandbox.cwd, "workspace": self._sandbox.workspace}
        return b"0 " + encoded({"code": code, **places})

    async def give_back(self) -> None:
        """The script that was read is not run: the interpreter waits for the next."""
        await _keep(self._sandbox, self._conversation)

    @property
    def logs(self) -> str:
        return self._conversation.logs

    async def close(self) -> None:
        """The next interpreter is started now: beside a script it would take the processor from it."""
        if self._closed:
            return
        try:
            if self._ended is not None:
                await self._conversation.until_ended(LEAVING)
        finally:
            await self._conversation.kill()
        self._closed = True
        in_background(_keep_spare(self._sandbox))

    async def run(self, code: str, calls: ScriptCalls) -> Frame:
        if not await self._begin(code):  # it ended while it waited, and has run nothing
            await self._conversation.kill()
            try:
                self._conversation, self._has_read = await _started(self._sandbox), False
            except Unavailable as error:  # the sandbox is closed
                raise calls.failed(str(error), "unavailable") from None
            await self._begin(code)
        async with anyio.create_task_group() as group:
            context, cancel = context_for_callbacks(), group.cancel_scope.cancel

            def more() -> None:
                context.run(group.start_soon, self._listen, calls, more, cancel)

            await self._listen(calls, more, cancel)
        ended = self._ended
        return ended if isinstance(ended, dict) else {"error": {"message": "no result", "line": None}}

    async def _begin(self, code: str) -> bool:
        """Let the interpreter run the script; False if it had ended before."""
        self._conversation.watch(self._watch)
        if not self._has_read and not await self._send(self._order(code)):
            return False
        return self._push(GO) or await self._send(GO)

    async def _listen(self, calls: ScriptCalls, more: Callable[[], None], stop: Callable[[], None]) -> None:
        """Take and answer requests, until a call waits and `more` has started another task that takes the next ones.

        So a call that waits for nothing needs no task of its own.
        """
        loop, me, pass_on = running_loop(), object(), partial(self._pass_on, more)
        waiting = when_waiting(loop)
        take = self._conversation.take
        while "ended" not in (frame := await self._receive(calls) if (data := take()) is None else _read(calls, data)):
            self._last += 1
            number = frame.get("number")
            if type(number) is not int or number != self._last:
                raise calls.failed(BROKEN)
            self._open += 1
            when_waiting(loop)[me] = pass_on
            try:
                answer = b"%d " % number + encoded(await calls.ask(calls.check(frame)))
                if not self._push(answer):
                    await self._send(answer)
            finally:
                self._open -= 1
                is_alone = waiting.pop(me, None) is not None
            if not is_alone and not self._is_unheard:
                return
            self._is_unheard = False
            if number % TURN_EVERY == 0:
                await anyio.lowlevel.checkpoint()
        self._ended = frame["ended"]
        if self._open:  # the script has not waited for them
            stop()

    def _pass_on(self, more: Callable[[], None]) -> None:
        if self._open < MAX_AT_ONCE_COUNT:
            more()
        else:
            self._is_unheard = True

    async def _receive(self, calls: ScriptCalls) -> Frame:
        """Wait for the next frame, of which nothing is here yet."""
        try:
            data = await self._conversation.receive()
        except HandrailError as error:
            raise calls.failed(f"{BROKEN}: {error}") from None
        if data is None:
            code = self._conversation.exit_code
            how = "" if code is None else f" (exit code {code})"
            raise calls.failed(f"The script's interpreter ended without a result{how}")
        return _read(calls, data)

    def _push(self, frame: bytes) -> bool:
        """Whether it was sent without waiting."""
        try:
            return self._conversation.push(frame)
        except OSError:
            return False

    async def _send(self, frame: bytes) -> bool:
        """Whether it was sent: not to an interpreter that has ended, which `_receive` tells."""
        try:
            await self._conversation.send(frame)
        except (OSError, Unavailable):
            return False
        return True


def _read(calls: ScriptCalls, data: bytes) -> Frame:
    try:
        frame = decoded(data)
    except (ValueError, RecursionError):
        raise calls.failed(BROKEN) from None
    if not isinstance(frame, dict):
        raise calls.failed(BROKEN)
    return frame


def encoded(frame: Frame) -> bytes:
    """Of what is too large for a frame, the error that says so."""
    try:
        data = to_json(frame)
    except ValueError:  # half a pair of surrogates, or more levels than it counts to
        data = json.dumps(frame, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return data if len(data) <= MAX_ANSWER_BYTES else to_json({"error": TOO_LARGE})


def decoded(data: bytes) -> Any:
    """What an interpreter sent. Raises ValueError and RecursionError."""
    try:
        return from_json(data)
    except ValueError:  # as above
        return json.loads(data.decode())


async def _started(sandbox: Sandbox) -> CommandConversation:
    try:
        return await converse(sandbox, ARGV, cwd=sandbox.workspace, lasting=True, first=program())
    except FileNotFoundError as error:
        raise Unavailable(
            "python3 is not installed in this sandbox: call the tools directly.", retryable=False
        ) from error


async def _keep_spare(sandbox: Sandbox) -> None:
    """Start an interpreter for the next script."""
    try:
        await _keep(sandbox, await _started(sandbox))
    except (OSError, ValueError, Unavailable, HandrailError):
        return  # the next script starts one itself, or says why it cannot


async def _keep(sandbox: Sandbox, spare: CommandConversation) -> None:
    if _spares.setdefault(identity(sandbox), spare) is not spare:
        await spare.kill()
