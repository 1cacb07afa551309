"""Sampled tokens and their probabilities are kept as the server gave them, where it gives any."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from handrail import HandrailError, Message, Turn
from handrail.contract.model import Tokens
from handrail.models import open_model

pytestmark = pytest.mark.anyio
ASKED: list[Any] = []


class Server(BaseHTTPRequestHandler):
    """A server that speaks as vLLM does."""

    def do_POST(self) -> None:
        ASKED.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for number, (word, ids) in enumerate((("Hel", [11]), ("lo", [12, 13]), ("", []))):
            probable = [{"token": word, "bytes": None, "logprob": -0.5 * id, "top_logprobs": []} for id in ids]
            choice: dict[str, Any] = {"index": 0, "delta": {"content": word}, "logprobs": {"content": probable}}
            choice |= {"token_ids": ids, "finish_reason": None if ids else "stop"}
            chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
            chunk |= {"prompt_token_ids": [1, 2, 3]} if number == 0 else {}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


async def turn_of(name: str, **options: Any) -> Turn:
    model = open_model(name, api_key="none", **options)
    events = [event async for event in model.ask([Message("user", "Hi")], [], system="")]
    assert isinstance(events[-1], Turn)
    return events[-1]


async def test_tokens_are_kept_as_the_server_sampled_them(address: str) -> None:
    turn = await turn_of(f"openai-chat:m@{address}", tokens=True)
    assert turn.text == "Hello"
    assert turn.tokens == Tokens((1, 2, 3), (11, 12, 13), (-5.5, -6.0, -6.5))
    assert (ASKED[-1]["logprobs"], ASKED[-1]["return_token_ids"]) == (True, True)


async def test_without_the_option_nothing_is_asked_for_or_kept(address: str) -> None:
    turn = await turn_of(f"openai-chat:m@{address}")
    assert turn.tokens is None
    assert not {"logprobs", "return_token_ids"} & ASKED[-1].keys()


async def test_another_provider_has_no_such_option() -> None:
    with pytest.raises(HandrailError, match="has no option 'tokens'"):
        open_model("anthropic:claude-opus-5", api_key="none", tokens=True)
