"""Run a script of the model's that calls tools itself; every call in it goes through every gate."""

import json
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from weakref import WeakKeyDictionary

import anyio
from pydantic import Field

from handrail.aio import in_background
from handrail.contract.errors import HandrailError, ToolFailed, Unavailable
from handrail.contract.result import Failure, Result, Success
from handrail.sandbox.conversation import Conversation
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context
from handrail.toolkit.tool import ALL, Tool, tool
from handrail.tools import _script_child, _script_syntax
from handrail.tools._script_media import Media
from handrail.tools._script_plan import named_tools, read_plan
from handrail.tools._script_stubs import describe
from handrail.tools._script_values import Values
from handrail.tools.bash import watcher

Engine = Literal["cpython", "monty", "auto"]
PROGRAM: Final = "\n".join(
    line
    for part in (_script_syntax, _script_child)
    for line in Path(str(part.__file__)).read_text(encoding="utf-8").splitlines()
    if not line.startswith("from handrail.")
)
"""As it was when this process first needed it: a command that changes the file changes nothing here."""
ARGV: Final = ("python3", "-I", "-u", "-c", PROGRAM)
_spares: "WeakKeyDictionary[object, Conversation]" = WeakKeyDictionary()
"""By sandbox: an interpreter that waits for its script."""
BROKEN: Final = "The script wrote into the way to its tools, and was ended"


class Script:
    """One script that runs: it serves its calls until it ends."""

    def __init__(self, context: Context, conversation: Conversation) -> None:
        self._context = context
        self._conversation = conversation
        self._last = 0
        self.values = Values(context)
        self.calls: list[dict[str, Any]] = []
        """The calls that have ended, in order."""

    async def run(self, code: str) -> dict[str, Any]:
        """How it ended: `value`, or `error`. Raises ToolFailed when the interpreter did not say."""
        begin = {"code": code, "cwd": self._context.sandbox.cwd}
        await self._send(begin)
        async with anyio.create_task_group() as group:
            while "ended" not in (frame := await self._receive()):
                group.start_soon(self._serve, self._numbered(frame), frame)
            group.cancel_scope.cancel()
        return _ended(frame)

    async def _receive(self) -> dict[str, Any]:
        try:
            data = await self._conversation.receive()
        except HandrailError as error:
            raise self.failed(f"{BROKEN}: {error}") from None
        if data is None:
            code = self._conversation.exit_code
            raise self.failed(
                f"The script's interpreter ended without a result{'' if code is None else f' (exit code {code})'}"
            )
        try:
            frame = json.loads(data)
        except (ValueError, RecursionError):
            frame = None
        if not isinstance(frame, dict):
            raise self.failed(BROKEN)
        return frame

    def _numbered(self, frame: dict[str, Any]) -> int:
        self._last += 1
        if type(frame.get("number")) is not int or frame["number"] != self._last:
            raise self.failed(BROKEN)
        return self._last

    async def _serve(self, number: int, frame: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"number": number}
        try:
            answer["value"] = await self._answer(frame)
        except ToolFailed as error:
            answer["error"] = _error(error.failure)
        await self._send(answer)

    async def _answer(self, frame: dict[str, Any]) -> Any:
        if "read" in frame:
            return await self.values.read(frame["read"], frame.get("start"), frame.get("end"))
        if "part" in frame:
            return await self.values.part(frame)
        name, arguments = frame.get("call"), frame.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise self.failed(BROKEN)
        result: Result = await self._context.use(name, arguments, origin="script")
        self.calls.append({"tool": name, "ok": result.ok, **({} if result.ok else {"kind": result.kind})})
        if not result.ok:
            raise ToolFailed(result)
        return await self.values.wire(result.value)

    async def _send(self, frame: dict[str, Any]) -> None:
        try:
            await self._conversation.send(json.dumps(frame, ensure_ascii=False).encode("utf-8", "replace"))
        except (OSError, Unavailable):
            pass  # the interpreter has ended; `run` tells

    def failed(self, why: str, kind: Any = "execution_error") -> ToolFailed:
        """The failure of the script, with what was done before."""
        return ToolFailed(Failure(kind, f"{why}. {self.done()}", data=self.data()))

    def done(self) -> str:
        """Which calls have been made, as a sentence."""
        if not self.calls:
            return "No call of it was finished."
        names = ", ".join(call["tool"] for call in self.calls[-20:])
        return f"{len(self.calls)} calls were finished, and are not made again by themselves: {names}."

    def data(self) -> dict[str, Any]:
        logs = self._conversation.logs
        return {"calls": self.calls[-200:], **({"logs": logs} if logs else {})}


def _ended(frame: dict[str, Any]) -> dict[str, Any]:
    ended = frame["ended"]
    return ended if isinstance(ended, dict) else {"error": {"type": "Error", "message": "no result", "line": None}}


def _error(failure: Failure) -> dict[str, Any]:
    return {
        "kind": failure.kind, "message": str(failure.message), "field": failure.field, "retryable": failure.retryable,
    }  # fmt: skip


async def _interpreter(sandbox: Sandbox) -> Conversation:
    """A waiting interpreter, or a new one."""
    spare = _spares.pop(sandbox.identity, None)
    if spare is not None and not spare.ended:
        return spare
    try:
        return await sandbox.converse(ARGV, cwd=sandbox.workspace, lasting=True)
    except FileNotFoundError as error:
        raise Unavailable(
            "python3 is not installed in this sandbox: call the tools directly.", retryable=False
        ) from error


async def _keep_spare(sandbox: Sandbox) -> None:
    """Start an interpreter for the next script."""
    try:
        spare = await sandbox.converse(ARGV, cwd=sandbox.workspace, lasting=True)
    except (OSError, ValueError, Unavailable, HandrailError):
        return  # the next script starts one itself, or says why it cannot
    if _spares.setdefault(sandbox.identity, spare) is not spare:
        await spare.kill()


async def run_script(context: Context, code: str, timeout: float) -> Any:
    """Run it in an interpreter inside the session's sandbox."""
    plan = read_plan(code, context.tools)
    if isinstance(plan, Failure):
        return plan
    most = context.budget.script_seconds
    seconds = min(timeout, inf if most is None else most)
    sandbox = context.sandbox
    media = await Media.before(sandbox)
    conversation = await _interpreter(sandbox)
    in_background(_keep_spare(sandbox))
    conversation.watch(watcher(context))
    script = Script(context, conversation)
    try:
        with context.clock.limit(seconds) as limit:
            ended = await script.run(code)
        if limit.passed:
            raise script.failed(f"The script ran longer than {seconds:g} s and was ended with its calls", "timeout")
        await conversation.kill()
        return await _answered(script, conversation, media, ended)
    except BaseExceptionGroup as group:
        raise _first(group) from None
    finally:
        await conversation.kill()
        script.values.release()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error of a task group of ours."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _answered(script: Script, conversation: Conversation, media: Media, ended: Mapping[str, Any]) -> Result:
    error = ended.get("error")
    files = await media.made()
    if isinstance(error, dict):
        line = f" in line {error['line']}" if isinstance(error.get("line"), int) else ""
        what = str(error.get("message", "")).strip()
        message = f"The script failed{line}: {what}\n{script.done()}"
        return Failure("execution_error", message, data={**script.data(), **({"media": files} if files else {})})
    value: dict[str, Any] = {"result": script.values.returned(ended.get("value")), "calls": len(script.calls)}
    if logs := conversation.logs:
        value["logs"] = logs
    if files:
        value["media"] = files
    return Success(value)


def script_tool(engine: Engine = "cpython") -> Tool:
    """The tool `script`. `monty` and `auto` need the extra `monty`; `auto` tries Monty first."""
    if engine != "cpython":
        raise HandrailError(f"there is no engine {engine!r}; there is cpython")

    @tool(
        risk="high", effects=["executes"], needs=["exec", "files", "stdin"], timeout=None,
        callable_from=ALL - {"script"}, describe=describe, covers=named_tools,
    )  # fmt: skip
    async def script(code: str, context: Context, timeout: Annotated[float, Field(gt=0)] = 300.0) -> Any:
        """Run a Python script that calls tools itself.

        Args:
            code: The script.
            timeout: Seconds after which the script and its calls are ended; waiting for approval does not count.
        """
        return await run_script(context, code, timeout)

    return script


script: Final = script_tool()
