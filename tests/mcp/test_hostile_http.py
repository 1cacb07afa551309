"""A hostile server over HTTP does no harm: rows of the table in docs/mcp.md about sizes and status."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import pytest

from handrail import Policy, Session, Unavailable
from handrail.mcp import connect
from handrail.mcp._transports import BETWEEN_STREAMS

pytestmark = pytest.mark.anyio
OPEN = Policy(mode="open")
ECHO = {"name": "echo", "inputSchema": {"type": "object"}}
ABOUT = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "raw", "version": "1"}, "capabilities": {"tools": {}}}


class Answers(BaseHTTPRequestHandler):
    """Serves one tool; what it answers to a call is up to the server's `how`."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        results: dict[str, Any] = {"initialize": ABOUT, "tools/list": {"tools": [ECHO]}}
        if "id" not in body:
            self.send_response(202)
            self.end_headers()
        elif body["method"] == "tools/call":
            getattr(self, self.server.how)(body)  # type: ignore[attr-defined]
        elif body["method"] in results:
            self.say(json.dumps({"jsonrpc": "2.0", "id": body["id"], "result": results[body["method"]]}).encode())
        else:
            self.say(b"{}", status=405)

    def say(self, data: bytes, *, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content_type": "application/json", "content_length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def plain(self, body: dict[str, Any]) -> None:
        result = {"content": [{"type": "text", "text": "hi"}]}
        self.say(json.dumps({"jsonrpc": "2.0", "id": body["id"], "result": result}).encode())

    def huge(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        try:
            for _ in range(100):
                self.wfile.write(b" " * (1 << 20))
        except OSError:
            self.server.cut_off = True  # type: ignore[attr-defined]

    def event(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        try:
            self.wfile.write(b"data: ")
            for _ in range(100):
                self.wfile.write(b" " * (1 << 20))
        except OSError:
            self.server.cut_off = True  # type: ignore[attr-defined]

    def ends(self, body: dict[str, Any]) -> None:
        """Ends the stream before its answer, and says that it may be asked for again at once."""
        self.say(b"id: 1\nretry: 0\ndata:\n\n", content_type="text/event-stream", mcp_session_id="s")

    def do_GET(self) -> None:
        self.server.streams = getattr(self.server, "streams", 0) + 1  # type: ignore[attr-defined]
        self.ends({})

    def bomb(self, body: dict[str, Any]) -> None:
        self.say(gzip.compress(b" " * (100 << 20), 1), content_encoding="gzip")

    def refuses(self, body: dict[str, Any]) -> None:
        self.say(b"no", status=403, content_type="text/plain")

    def elsewhere(self, body: dict[str, Any]) -> None:
        self.say(b"", status=307, location="http://127.0.0.1:9/mcp")

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def serving(how: str) -> Iterator[tuple[ThreadingHTTPServer, str]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.how = how  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_the_control_answers() -> None:
    with serving("plain") as (_, url):
        async with connect("raw", url=url) as server, Session(server.tools, policy=OPEN) as session:
            assert (await session.call("raw__echo")).value == "hi"


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        ("huge", "execution_error", "more than 16 MiB"),
        ("event", "unavailable", "exceeded the 16777216"),
        ("bomb", "unavailable", "compressed"),
        ("refuses", "execution_error", "HTTP 403"),
        ("elsewhere", "unavailable", "not followed"),
    ],
)
async def test_a_hostile_answer_over_http_is_refused_and_the_next_call_is_served(
    how: str, kind: str, said: str
) -> None:
    with serving(how) as (fake, url):
        async with connect("raw", url=url) as server, Session(server.tools, policy=OPEN) as session:
            result = await session.call("raw__echo")
            assert result.kind == kind, result
            assert said in result.message
            fake.how = "plain"  # type: ignore[attr-defined]
            assert (await session.call("raw__echo", {"again": True})).value == "hi"


async def test_a_server_that_ends_every_stream_at_once_is_asked_again_in_good_time() -> None:
    with serving("ends") as (fake, url):
        begun = anyio.current_time()
        async with connect("raw", url=url, timeout=1.5) as server, Session(server.tools, policy=OPEN) as session:
            assert (await session.call("raw__echo")).kind == "timeout"
        took = anyio.current_time() - begun
        assert 2 <= fake.streams <= took / BETWEEN_STREAMS + 2  # type: ignore[attr-defined]


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with serving("plain") as (_, url):
        pass
    with pytest.raises(Unavailable, match="gone"):
        async with connect("raw", url=url):
            pass
