"""The engine for short scripts: Monty, which has a part of Python, in a jail of its own without any files."""

import json
from binascii import Incomplete
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from traceback import StackSummary
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from handrail.contract.limits import FRAME_BYTES
from handrail.contract.wire import sendable
from handrail.lazy import Lazy
from handrail.sandbox.capture import Capture
from handrail.threads import Work, in_thread
from handrail.toolkit.context import Context, session_of
from handrail.tools._script_child import DEEPEST, MAX_ERROR_CHARS, WINDOW, Ref, plain
from handrail.tools._script_engine import CannotRun, Frame, ScriptCalls
from handrail.tools._script_subset import text_for_monty
from handrail.tools._script_syntax import NAME
from handrail.tools._script_values import MAX_JSON_BYTES, MAX_READ_BYTES
from handrail.tools._script_workers import Worker, workers_of

if TYPE_CHECKING:
    from uuid import UUID

    import pydantic_monty as _monty
else:
    _monty = Lazy("pydantic_monty")

T = TypeVar("T")
MAX_GIVEN_BYTES: Final = 1 << 20
"""Bytes of a list that a script is given with its parts, instead of as a Ref."""
MAX_PARTS_COUNT: Final = 10_000
"""Parts of a value with large texts that a script is given at once."""
MAX_TEXT_BYTES: Final = 16 << 20
"""Bytes of a Ref that can be read at once."""
TOOL_ERROR: Final = "binascii.Incomplete"
SCRIPT: Final = "<python-input-1>"
"""The name of what is fed after the prelude."""
UNSUPPORTED: Final = "The monty syntax parser does not"
PART: Final = "\nMonty ran this script; it has only a part of Python."
INTERNAL: Final = "Internal error in monty"
LANGUAGE_ERRORS: Final = (NotImplementedError, AttributeError, ImportError, NameError)


class _Tools:
    """What `tools` is in a script: its methods are calls."""


class _Planned:
    """A call that `tools.gather` makes."""

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        self.name, self.arguments = name, arguments


class _Refused(Exception):
    """An error of the script's own making: raised there as a ToolError."""


class Monty:
    """One script. Its worker serves the next one, unless the script was ended or failed."""

    name = "monty"

    def __init__(self, context: Context, worker: Worker, text: str) -> None:
        self._context = context
        self._worker = worker
        self._text = text
        self._log = Capture(context.caps.stdout)
        self._tools = _monty.ClassInstance(_Tools())
        self._refs: dict[UUID | None, Ref] = {}
        self._is_done = self._is_closed = False

    @classmethod
    async def open(cls, context: Context, code: str) -> "Monty":
        """Take the waiting worker, or start one. Raises CannotRun, and Unavailable where no jail can be made."""
        text = text_for_monty(code)
        workers = workers_of(context.sandbox)
        while True:
            worker = workers.take()
            if worker is None:
                await in_thread(workers.start)
            elif await _is_ready(worker):
                return cls(context, worker, text)

    @property
    def logs(self) -> str:
        return self._log.cut().text

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            give_back = self._worker.rest if self._is_done else self._worker.end
            await in_thread(give_back)

    async def run(self, code: str, calls: ScriptCalls) -> Frame:
        try:
            return await self._run(calls)
        except _monty.MontySyntaxError as error:
            raise CannotRun(f"Monty cannot read it: {error}") from None
        except _monty.MontyRuntimeError as error:
            if not calls.made and str(error.exception()).startswith(UNSUPPORTED):
                raise CannotRun(str(error.exception())) from None
            return _trouble(error, code)
        except (_monty.MontyError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not self._worker.ended:
                raise
            raise calls.failed(f"The script's interpreter ended without a result ({error})") from None

    async def _run(self, calls: ScriptCalls) -> Frame:
        session = self._worker.session
        inputs = {"tools": self._tools, "Ref": _monty.ClassType(Ref)}
        feed = partial(session.feed_start, self._text, inputs=inputs, print_callback=self._print)
        step = await self._turn(feed)
        while not isinstance(step, _monty.MontyComplete):
            step = await self._turn(await self._answer(step, calls))
        self._is_done = True
        try:
            return {"value": _as_json(step.output, "the result")}
        except (TypeError, ValueError, RecursionError) as error:
            what = f"{type(error).__name__}: {error}".replace(f" {Incomplete.__name__},", " ToolError,")
            return {"error": {"message": what, "line": None}}

    async def _turn(self, turn: Callable[[], T]) -> T:
        """Let the script go on. Who is cancelled here closes the engine, which ends the turn."""
        value: T = await Work(turn).wait()
        return value

    def _print(self, stream: str, text: str) -> None:
        if not self._is_closed:
            self._log.add(text.encode("utf-8", "replace"))
            self._context.show(text, stream="stderr")

    async def _answer(self, step: Any, calls: ScriptCalls) -> Callable[[], Any]:
        """What makes the script go on."""
        if isinstance(step, _monty.NameLookupSnapshot):
            name = f"tools.{step.variable_name}" if step.object_id == self._tools.id else step.variable_name
            known = name == "call" or (name.startswith("tools.") and not name.startswith("tools.__"))
            return partial(step.resume, value=_function(name)) if known else step.resume
        if step.is_os_function:
            if not step.function_name.endswith("sleep"):
                return step.resume_not_handled  # type: ignore[no-any-return]
            await anyio.sleep(max(0.0, step.args[0]))
            return partial(step.resume, {"return_value": None})
        try:
            return partial(step.resume, {"return_value": await self._called(step, calls)})
        except NameError as error:
            return partial(step.resume, {"exc_type": "NameError", "message": str(error)})
        except (_Refused, TypeError, ValueError, RecursionError) as error:
            return partial(step.resume, {"exc_type": TOOL_ERROR, "message": _told(error, step.function_name)})

    async def _called(self, step: Any, calls: ScriptCalls) -> Any:
        """The value of a function that the script calls."""
        name, args, kwargs = str(step.function_name), step.args, step.kwargs
        if ref := self._refs.get(step.object_id):
            return await self._of_ref(ref, name, args, kwargs, calls)
        if step.object_id is None and name == "call":
            return _planned(*args, **kwargs)
        if step.object_id != self._tools.id and not name.startswith("tools."):
            raise NameError(f"name {name!r} is not defined")
        name = name.removeprefix("tools.")
        if name == "gather":
            return await self._gather(args, calls, **kwargs)
        if args:
            raise _Refused(f"invalid_args: tools.{name} takes arguments by name: tools.{name}(name=value)")
        return await self._use(name, kwargs, calls)

    async def _use(self, name: str, arguments: Mapping[str, Any], calls: ScriptCalls) -> Any:
        sent = {key: _as_json(value, key) for key, value in arguments.items()}
        return await self._given(await _asked({"call": name, "arguments": sent}, calls), calls)

    async def _gather(self, planned: Any, calls: ScriptCalls, *, return_exceptions: bool = False) -> list[Any]:
        if not all(isinstance(each, _Planned) for each in planned):
            raise _Refused("invalid_args: tools.gather takes call('NAME', argument=value), ...: calls not made yet")
        values: list[Any] = [None] * len(planned)
        room = anyio.Semaphore(WINDOW)

        async def make(at: int) -> None:
            async with room:
                try:
                    values[at] = await self._use(planned[at].name, planned[at].arguments, calls)
                except (_Refused, TypeError, ValueError, RecursionError) as error:
                    values[at] = _Refused(_told(error, planned[at].name))

        async with anyio.create_task_group() as group:
            for at in range(len(planned)):
                group.start_soon(make, at)
        failed = [value for value in values if isinstance(value, _Refused)]
        if failed and not return_exceptions:
            raise failed[0]
        return [Incomplete(str(value)) if isinstance(value, _Refused) else value for value in values]

    async def _given(self, wire: Any, calls: ScriptCalls) -> Any:
        """A value as the script has it. Objects and lists are given with their parts, unless they are very large."""
        if isinstance(wire, str):
            return sendable(wire)
        if isinstance(wire, list):
            return [await self._given(held, calls) for held in wire]
        if not isinstance(wire, dict):
            return wire
        if wire.keys() == {"$plain"}:
            return {sendable(key): await self._given(held, calls) for key, held in wire["$plain"]}
        if wire.keys() != {"$ref"}:
            return {sendable(key): await self._given(held, calls) for key, held in wire.items()}
        ref = Ref(None, wire["$ref"])  # type: ignore[arg-type]  # it is only a name here: Monty calls no method of it
        if ref.kind == "json" and ref.size <= MAX_JSON_BYTES:
            return await self._parts(ref, calls)
        return self._handle(ref)

    def _handle(self, ref: Ref) -> Any:
        made = _monty.ClassInstance(ref, eager_attrs=("preview", "size", "kind", "incomplete"))
        self._refs[made.id] = ref
        return made

    async def _parts(self, ref: Ref, calls: ScriptCalls) -> Any:
        """An object or a list, in which large texts are references. One that has very many parts is a reference."""
        if ref.size <= MAX_GIVEN_BYTES:
            value = json.loads(await _read(ref, 0, ref.size, calls))
            if session_of(self._context).budget.inlines(_longest_text(value)):
                return await self._given(_escaped(value), calls)
            keys: Any = list(value) if isinstance(value, dict) else list(range(len(value)))
        else:
            value, keys = {}, await _keys(ref, calls)
        if not keys or not isinstance(keys, list) or len(keys) > MAX_PARTS_COUNT:
            return self._handle(ref)
        parts = [await self._given(await _asked({"part": ref._ref, "key": key}, calls), calls) for key in keys]
        return dict(zip(map(sendable, keys), parts, strict=True)) if isinstance(value, dict) else parts

    async def _of_ref(self, ref: Ref, name: str, args: Any, kwargs: Any, calls: ScriptCalls) -> Any:
        if name not in OF_REF:
            raise _Refused(f"invalid_args: a Ref has {', '.join(OF_REF)}, but not {name}")
        found = await OF_REF[name](ref, calls, *args, **kwargs)
        return found if name == "lines" or isinstance(found, bytes) else await self._given(found, calls)


async def _is_ready(worker: Worker) -> bool:
    """Whether it lives; one that waited may have been killed."""
    try:
        return await in_thread(worker.greet)
    except BaseException:
        await in_thread(worker.end)
        raise


def _planned(tool: Any, /, **arguments: Any) -> Any:
    return _monty.ClassInstance(_Planned(str(tool).removeprefix("tools."), arguments))


def _function(name: str) -> Callable[[], None]:
    """What the script is given as the function of this name."""

    def use() -> None:
        """Never called here: Monty pauses, and asks."""

    use.__name__ = name
    return use


async def _asked(frame: Frame, calls: ScriptCalls) -> Any:
    """The answer to a frame. Raises _Refused for an error, and ToolFailed when the script must end."""
    answer = await calls.ask(calls.check(frame))
    if error := answer.get("error"):
        raise _Refused(f"{error['kind']}: {error['message']}")
    return answer["value"]


async def _read(ref: Ref, start: int, end: int, calls: ScriptCalls) -> Any:
    pieces = [
        await _asked({"read": ref._ref, "start": at, "end": min(at + MAX_READ_BYTES, end)}, calls)
        for at in range(start, end, MAX_READ_BYTES)
    ]
    return bytes.fromhex("".join(pieces)) if ref.kind == "bytes" else "".join(pieces)


async def _read_part(ref: Ref, calls: ScriptCalls, start: int = 0, end: int | None = None) -> Any:
    last = ref.size if end is None else min(end, ref.size)
    if start < 0 or last - start > MAX_TEXT_BYTES:
        raise _Refused(
            f"invalid_args: read at most {MAX_TEXT_BYTES:,} bytes at once: ref.read(start, end), with start from 0 on"
        )
    return await _read(ref, start, last, calls)


async def _lines(ref: Ref, calls: ScriptCalls) -> Any:
    whole = await _read_part(ref, calls)
    lines = whole.split(b"\n") if isinstance(whole, bytes) else sendable(whole).split("\n")
    return lines[:-1] if not lines[-1] else lines


async def _keys(ref: Ref, calls: ScriptCalls) -> Any:
    return await _asked({"part": ref._ref, "keys": True}, calls) or []


async def _get(ref: Ref, calls: ScriptCalls, key: Any, default: Any = None) -> Any:
    try:
        return await _asked({"part": ref._ref, "key": key}, calls)
    except _Refused as error:
        if str(error).startswith("not_found"):
            return default
        raise


OF_REF: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
    "read": _read_part, "lines": _lines, "keys": _keys, "get": _get,
}  # fmt: skip


def _told(error: Exception, name: str) -> str:
    """The text of a ToolError."""
    return sendable(str(error) if isinstance(error, _Refused) else f"invalid_args: tools.{name}: {error}")


def _escaped(value: Any) -> Any:
    """Plain data in the form of `Values.wire`."""
    if isinstance(value, dict):
        made = [(key, _escaped(held)) for key, held in value.items()]
        return {"$plain": made}
    return [_escaped(held) for held in value] if isinstance(value, list) else value


def _longest_text(value: Any) -> str:
    """The text in it that has the most bytes."""
    if isinstance(value, dict | list):
        found = map(_longest_text, value.values() if isinstance(value, dict) else value)
        return max(found, key=lambda text: len(text.encode("utf-8", "replace")), default="")
    return value if isinstance(value, str) else ""


def _as_json(value: Any, path: str) -> Any:
    """A value of the script's as JSON. Raises TypeError where it is not JSON, and ValueError if it is too large.

    A list that is in another list twice is one list in Monty; as JSON it is written twice, which can be without end.
    """
    if (size := _size(value, {})) > FRAME_BYTES:
        raise ValueError(f"{path} has {size:,} bytes, and the limit is {FRAME_BYTES:,}; write it to a file")
    return plain(value, path)


def _size(value: Any, known: dict[int, int], depth: int = 0) -> int:
    """About as many characters as the value has in JSON."""
    if isinstance(value, str):
        return len(value) + 2
    if not isinstance(value, dict | list | tuple) or depth > DEEPEST:
        return 1
    if id(value) not in known:
        held = [*value, *value.values()] if isinstance(value, dict) else value
        known[id(value)] = 2 + sum(_size(each, known, depth + 1) for each in held)
    return known[id(value)]


def _trouble(error: "_monty.MontyRuntimeError", code: str) -> Frame:
    """What went wrong, with the lines of the script."""
    what = error.exception()
    if isinstance(what, SystemExit) and not str(what):
        return {"value": None}
    own = [*code.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]
    frames = [frame for frame in error.traceback() if frame.filename == SCRIPT]
    lines = [(NAME, each.line, each.function_name or "<module>", own[min(each.line, len(own)) - 1]) for each in frames]
    told = "".join(StackSummary.from_list(lines).format())
    told += error.display("type-msg").replace(TOOL_ERROR, "ToolError")
    told = told if len(told) <= MAX_ERROR_CHARS else f"{told[: MAX_ERROR_CHARS // 2]}…{told[-MAX_ERROR_CHARS // 2 :]}"
    note = PART if isinstance(what, LANGUAGE_ERRORS) or INTERNAL in str(what) else ""
    return {"error": {"message": told + note, "line": frames[-1].line if frames else None}}
