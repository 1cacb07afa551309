"""The calls of one script: each goes through every gate, and its value comes back, or its error."""

from typing import Any, Final

from handrail.contract.errors import HandrailError, ToolFailed, Unavailable
from handrail.contract.result import Failure
from handrail.contract.wire import SCALARS
from handrail.script._values import Values
from handrail.toolkit.context import Context

Frame = dict[str, Any]
MAX_REFUSED_COUNT: Final = 1_000
"""Refused calls of one script after which the script is ended: each of them is in the transcript."""
MAX_MESSAGE_CHARS: Final = 100_000
"""Characters of the message of a ToolError."""
BROKEN: Final = "The script wrote into the channel to its tools, and was ended"
CHANGED_NOTHING: Final = frozenset({"budget_exhausted", "invalid_args", "tool_not_found", "rejected"})
"""Kinds of failures of calls that were refused before their tool ran."""


class _Over(Exception):
    """The session is closed: the script must end."""


class ScriptCalls:
    """Answers the requests of one script: calls of tools, and pieces of the values that it was given."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._refused = 0
        self.values = Values(context)
        self.ended: list[dict[str, Any]] = []
        """The calls that have ended, in the order of their ends."""

    async def ask(self, frame: Frame) -> Frame:
        """Answer a request: with `value`, or `error`. Raises ToolFailed when the script must end."""
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
        """Return the frame if it is a request that a script can make. Raises ToolFailed, which ends the script."""
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
        """A sentence that names the finished calls."""
        if not self.ended:
            return "No call of it was finished."
        names = ", ".join(_named(call) for call in self.ended[-20:])
        if len(self.ended) == 1:
            return f"1 call was finished, and is not made again by itself: {names}."
        return f"{len(self.ended)} calls were finished, and are not made again by themselves: {names}."


def sentence(text: str) -> str:
    """The text with one full stop or question mark at its end."""
    return text if text.endswith(("?", ".")) else f"{text}."


def _named(call: dict[str, Any]) -> str:
    return str(call["tool"]) if call["ok"] else f"{call['tool']} ({call['kind']})"


def _error(failure: Failure) -> Frame:
    return {
        "kind": failure.kind, "message": str(failure.message)[:MAX_MESSAGE_CHARS], "field": failure.field,
        "retryable": failure.retryable,
    }  # fmt: skip
