"""What the fixture server has sent, so that a client can come back for what it missed."""

from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import JSONRPCMessage


class KeptEvents(EventStore):
    """Every message of every stream, by number."""

    def __init__(self) -> None:
        self._kept: list[tuple[StreamId, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        self._kept.append((stream_id, message))
        return str(len(self._kept))

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        last = int(last_event_id) if last_event_id.isdecimal() else 0
        if not 0 < last <= len(self._kept):
            return None
        stream = self._kept[last - 1][0]
        for number, (of, message) in enumerate(self._kept[last:], last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream
