"""Fit a server's messages into limits before the SDK reads them, in pieces, so that other tasks get their turns.

The SDK checks and copies every answer whole, several times: 200,000 blocks held the process up for seconds.
"""

import re
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import anyio
from anyio.lowlevel import checkpoint
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCResponse
from pydantic import ValidationError

from handrail.contract.limits import MCP_MAX_QUESTIONS_COUNT, MCP_MOST_TOOLS
from handrail.mcp._listing import wire_form

Incoming: TypeAlias = SessionMessage | Exception
MAX_BLOCKS_COUNT: Final = 1_000
"""Number of blocks of one answer that are kept unchanged; the texts of further blocks are joined."""
MAX_PIECE_COUNT: Final = 500
"""Number of blocks or tools that are read between two turns of other tasks."""
LEFT_OUT: Final = "handrail/left_out"
"""The key of an answer's `_meta` with the count of blocks that were left out."""
UNREADABLE: Final = "handrail/unreadable"
"""The data of an error that stands for an answer which could not be parsed."""
_ID: Final = rb'"id"\s*:\s*(\d{1,15})'
_ID_FIRST: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb"\s*,")
_ID_LAST: Final = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
_LOOKED_AT: Final = 400
"""Size of either end of a message that is searched for its id, in bytes."""


class Sifted:
    """A stream of messages that are bounded, in which no tool of a list breaks the form of the protocol."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.last_context: Any = None

    async def receive(self) -> Incoming:
        item: Incoming = await self._inner.receive()
        self.last_context = getattr(self._inner, "last_context", None)
        return await _sift(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def unreadable_answer(line: bytes, error: ValueError) -> SessionMessage | None:
    """An error in place of an answer that cannot be parsed, so that its call does not wait for it; None without an id.

    A request of the server's own has an id too, of another count; it is not an answer.
    """
    head, tail = line[:_LOOKED_AT], line[-_LOOKED_AT:]
    found = _ID_FIRST.match(head) or (_ID_LAST.search(tail) if b'"result"' in line or b'"error"' in line else None)
    if found is None or b'"method"' in head:
        return None
    found_id, why = int(found[1]), str(error)
    if isinstance(error, ValidationError):
        why = error.errors(include_url=False, include_input=False)[0]["msg"]
    data = ErrorData(code=PARSE_ERROR, message=why, data=UNREADABLE)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=found_id, error=data))


async def _sift(item: Incoming) -> Incoming:
    if not isinstance(item, SessionMessage) or not isinstance(item.message, JSONRPCResponse):
        return item
    given = item.message.result
    listed, content, asked = given.get("tools"), given.get("content"), given.get("inputRequests")
    if not isinstance(listed, list) and "content" not in given and asked is None:
        return item
    result = {"resultType": "complete", **given}  # the type of a result that does not name one
    if isinstance(listed, list):
        result["tools"] = await _fitting_tools(listed)
    if isinstance(content, list) and len(content) > MAX_BLOCKS_COUNT:
        result["content"], left_out = await _fitting_blocks(content)
        meta = given.get("_meta")
        result["_meta"] = {**(meta if isinstance(meta, dict) else {}), LEFT_OUT: left_out}
    if isinstance(asked, dict) and len(asked) > MCP_MAX_QUESTIONS_COUNT:
        result["inputRequests"] = dict(list(asked.items())[: MCP_MAX_QUESTIONS_COUNT + 1])  # which is one too many
    message = JSONRPCResponse(jsonrpc="2.0", id=item.message.id, result=result)
    return SessionMessage(message, item.metadata)


async def _fitting_tools(listed: Sequence[Any]) -> list[dict[str, Any]]:
    """Tools in a form that the SDK accepts; one more than are offered, which shows that there are too many."""
    fitting = []
    for number, each in enumerate(listed):
        if number % MAX_PIECE_COUNT == 0:
            await checkpoint()
        if (made := wire_form(each)) is not None:
            fitting.append(made)
        if len(fitting) > MCP_MOST_TOOLS:
            break
    return fitting


async def _fitting_blocks(content: Sequence[Any]) -> tuple[list[Any], int]:
    """The first blocks, one with the texts of the others, and how many are left out because they are not texts."""
    texts = []
    for start in range(MAX_BLOCKS_COUNT, len(content), MAX_PIECE_COUNT):
        await checkpoint()
        texts += [text for block in content[start : start + MAX_PIECE_COUNT] if (text := _text_of(block)) is not None]
    left_out = len(content) - MAX_BLOCKS_COUNT - len(texts)
    joined = [{"type": "text", "text": "\n".join(texts)}] if texts else []
    return [*content[:MAX_BLOCKS_COUNT], *joined], left_out


def _text_of(block: Any) -> str | None:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return text if isinstance(text, str) else None
