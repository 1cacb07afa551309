"""The half of a Sandbox that takes payloads: operations given as values, one by one or in streams."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, overload

from handrail.aio import loop_here
from handrail.contract.driver import Command
from handrail.contract.errors import HandrailError
from handrail.contract.limits import Caps
from handrail.lazy import Lazy
from handrail.sandbox._files import Files
from handrail.sandbox.completed import CodeResult, Completed

if TYPE_CHECKING:
    from handrail.contract.payload import FileExists, ListFiles, ReadFile, RunCode, WriteFile
    from handrail.sandbox import dispatch as _dispatch
    from handrail.sandbox import streams as _streams
    from handrail.sandbox.sandbox import Sandbox
else:
    _dispatch = Lazy("handrail.sandbox.dispatch")
    _streams = Lazy("handrail.sandbox.streams")


class Payloads(Files):
    """The payload methods of a Sandbox: a Command, ReadFile, WriteFile, ListFiles, FileExists or RunCode."""

    _caps: Caps
    _ends_with_call: list[Callable[[], Awaitable[None]]] | None

    @overload
    async def dispatch(self, payload: Command) -> Completed: ...
    @overload
    async def dispatch(self, payload: "ReadFile") -> str | bytes: ...
    @overload
    async def dispatch(self, payload: "WriteFile") -> "_dispatch.Written": ...
    @overload
    async def dispatch(self, payload: "ListFiles") -> "_dispatch.Listing": ...
    @overload
    async def dispatch(self, payload: "FileExists") -> bool: ...
    @overload
    async def dispatch(self, payload: "RunCode") -> CodeResult: ...
    async def dispatch(self: "Sandbox", payload: Any) -> Any:  # type: ignore[misc]
        """Perform a payload with the method of the same purpose: `run`, `read_text`, `list` and so on.

        A Command's `timeout` is kept and its `stdin` is sent. Raises ValueError for any other value.
        """
        return await _dispatch.dispatch(self, payload, self._caps)

    def stream(self: "Sandbox") -> "_streams.CommandStream":  # type: ignore[misc]
        """Open a queue of payloads that run one after the other, beside other streams. Use `async with`.

        The stream belongs to the running event loop, and ends with the call that this view is bound to.
        """
        self._state.check_open()
        if loop_here() is None:
            raise HandrailError("a stream needs the event loop of its thread: open it in an `async def`")
        stream = _streams.CommandStream(self)
        if self._ends_with_call is not None:
            self._ends_with_call.append(stream.close)
        return stream
