"""What an engine runs a script with: the calls that it may make, and how it ends."""

from typing import Any, Final, Protocol

from handrail.contract.errors import HandrailError, ToolFailed, Unavailable
from handrail.contract.result import Failure
from handrail.contract.wire import SCALARS
from handrail.toolkit.context import Context
from handrail.tools._script_values import Values

Frame = dict[str, Any]
MAX_REFUSED_COUNT: Final = 1_000
"""Calls of one script that are refused, after which it is ended: each of them is in the transcript."""
MAX_MESSAGE_CHARS: Final = 100_000
"""Characters of the message of a ToolError."""
BROKEN: Final = "The script wrote into the channel to its tools, and was ended"
CHANGED_NOTHING: Final = frozenset({"budget_exhausted", "invalid_args", "tool_not_found", "rejected"})


class Engine(Protocol):
    """Runs one script, and is closed after it."""

    name: str

    @property
    def logs(self) -> str:
        """What the script printed so far, cut like a command's output."""

    async def run(self, code: str, calls: "ScriptCalls") -> Frame:
        """How the script ended: `{"value": …}`, or `{"error": {"message", "line"}}`.

        `media` beside them names the files under media/ that were made or changed, from an engine that has looked.
        What it asks goes to `calls.ask`. Raises ToolFailed when the engine itself ended, and CannotRun, before the
        first call, for what its language does not have.
        """

    async def close(self) -> None:
        """End the script and what it started. Returns when they are gone."""


class _Over(Exception):
    """The session is closed: the script must end."""


class CannotRun(Exception):
    """The script needs another engine. Nothing was called."""


class ScriptCalls:
    """What one script may ask: calls through every gate, and pieces of the values that it was given."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._refused = 0
        self.values = Values(context)
        self.made = 0
        """Calls that have begun."""
        self.ended: list[dict[str, Any]] = []
        """The calls that have ended, in order."""

    async def ask(self, frame: Frame) -> Frame:
        """The answer to a frame: `value`, or `error`. Raises ToolFailed when the script must end."""
        try:
            return {"value": await self._answer(frame)}
        except ToolFailed as error:
            return {"error": _error(error.failure)}
        except _Over as error:
            raise self.failed(f"The script was ended: {error}", "unavailable") from None
        except (OSError, Unavailable) as error:
            return {"error": _error(Failure("unavailable", f"The value cannot be given to the script: {error}"))}

    async def _answer(self, frame: Frame) -> Any:
        if "read" in frame:
            return await self.values.read(frame["read"], frame.get("start"), frame.get("end"))
        if "part" in frame:
            return await self.values.part(frame)
        name = frame["call"]
        self.made += 1
        try:
            result = await self._context.use(name, frame["arguments"], origin="script")
        except HandrailError as error:
            raise _Over(str(error)) from None
        if result.ok:
            self.ended.append({"tool": name[:64], "ok": True})
            value = result.value
            return value if type(value) in SCALARS else await self.values.wire(value)
        self.ended.append({"tool": name[:64], "ok": False, "kind": result.kind})
        self._refused += result.kind in CHANGED_NOTHING
        raise ToolFailed(result)

    def check(self, frame: object) -> Frame:
        """The frame, if a script can ask it. Raises ToolFailed, which ends the script."""
        if self._refused >= MAX_REFUSED_COUNT:
            raise self.failed(
                f"The script went on after {MAX_REFUSED_COUNT:,} of its calls were refused, and was ended",
                "budget_exhausted",
            )
        if not isinstance(frame, dict):
            raise self.failed(BROKEN)
        is_call = isinstance(frame.get("call"), str) and isinstance(frame.get("arguments"), dict)
        if not is_call and "read" not in frame and "part" not in frame:
            raise self.failed(BROKEN)
        return frame

    def failed(self, why: str, kind: Any = "execution_error") -> ToolFailed:
        """The failure of the script, with what was done before."""
        return ToolFailed(Failure(kind, f"{sentence(why)} {self.done()}", data={"calls": self.ended[-200:]}))

    def done(self) -> str:
        """Which calls have been made, as a sentence."""
        if not self.ended:
            return "No call of it was finished."
        names = ", ".join(_named(call) for call in self.ended[-20:])
        if len(self.ended) == 1:
            return f"1 call was finished, and is not made again by itself: {names}."
        return f"{len(self.ended)} calls were finished, and are not made again by themselves: {names}."


def sentence(text: str) -> str:
    """The text with one end."""
    return text if text.endswith(("?", ".")) else f"{text}."


def _named(call: dict[str, Any]) -> str:
    return str(call["tool"]) if call["ok"] else f"{call['tool']} ({call['kind']})"


def _error(failure: Failure) -> Frame:
    return {
        "kind": failure.kind, "message": str(failure.message)[:MAX_MESSAGE_CHARS], "field": failure.field,
        "retryable": failure.retryable,
    }  # fmt: skip
