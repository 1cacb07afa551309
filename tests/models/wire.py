"""What goes over the wire: a raw HTTP server that keeps every request and answers as a test says, and a proxy."""

import http.client
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from threading import Event, Thread
from typing import Any, BinaryIO

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
FORWARDED = {"content-type", "retry-after", "x-request-id"}


@dataclass
class Seen:
    """One request, as it came."""

    path: str
    headers: dict[str, str]
    raw: bytes
    connection: socket

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


@dataclass
class Wire:
    """The server's address, what it has seen, and an event that lets an answer that waits go on."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    release: Event = field(default_factory=Event)


Answer = Callable[[Seen, BinaryIO, Wire], None]


@contextmanager
def serving(answer: Answer) -> Iterator[Wire]:
    """A server on a free port. `answer` writes the raw response, status line included; then the connection ends."""
    wire = Wire()

    class Handled(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            headers = {key.lower(): value for key, value in self.headers.items()}
            seen = Seen(self.path, headers, self.rfile.read(length), self.connection)
            wire.seen.append(seen)
            self.close_connection = True
            try:
                answer(seen, self.wfile, wire)
            except (OSError, http.client.HTTPException):
                pass  # one of the two has gone

        def log_message(self, format: str, *args: object) -> None:
            return None

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128  # many may come at once

    server = Server(("127.0.0.1", 0), Handled)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    wire.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield wire
    finally:
        wire.release.set()
        server.shutdown()
        server.server_close()
        thread.join()


def proxying(port: int) -> Answer:
    """Pass every request on to the server at `port`, and its answer back as it comes."""

    def answer(seen: Seen, out: BinaryIO, wire: Wire) -> None:
        to = http.client.HTTPConnection("127.0.0.1", port)
        try:
            headers = {key: value for key, value in seen.headers.items() if key not in ("host", "accept-encoding")}
            to.request("POST", seen.path, seen.raw, headers)
            response = to.getresponse()
            lines = [f"{key}: {value}" for key, value in response.getheaders() if key.lower() in FORWARDED]
            head = "\r\n".join([f"HTTP/1.1 {response.status} {response.reason}", *lines, "Connection: close"])
            out.write(head.encode() + b"\r\n\r\n")
            while piece := response.read1(65536):
                out.write(piece)
                out.flush()
        finally:
            to.close()

    return answer


def events(*data: object, end: str = "data: [DONE]\n\n") -> bytes:
    """Server-sent events; a dict with a `type` also names its event, as Anthropic and Responses do."""
    lines = []
    for each in data:
        named = f"event: {each['type']}\n" if isinstance(each, dict) and "type" in each else ""
        lines.append(f"{named}data: {each if isinstance(each, str) else json.dumps(each)}\n\n")
    return ("".join(lines) + end).encode()


def stream(*data: object, end: str = "data: [DONE]\n\n") -> bytes:
    return STREAM + events(*data, end=end)


def status(code: int, body: object = None, **headers: str) -> bytes:
    """A whole answer of one status."""
    text = json.dumps(body if body is not None else {"error": {"message": "no", "type": "x"}}).encode()
    given = {"Content-Type": "application/json", "Content-Length": str(len(text)), "Connection": "close"}
    given |= {key.replace("_", "-"): value for key, value in headers.items()}
    lines = "".join(f"{key}: {value}\r\n" for key, value in given.items())
    return f"HTTP/1.1 {code} Status\r\n{lines}\r\n".encode() + text


def always(*answers: bytes) -> Answer:
    """The first request gets the first answer, and so on; the last one is repeated."""

    def answer(seen: Seen, out: BinaryIO, wire: Wire) -> None:
        out.write(answers[min(len(wire.seen), len(answers)) - 1])

    return answer


def bodies(wire: Wire) -> Sequence[Any]:
    return [seen.body for seen in wire.seen]
