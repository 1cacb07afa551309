"""The story that the demo tells: its tools, what the scripted model calls, and the result that each call must have."""

import json
import re
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from handrail.contract.call import Call
from handrail.contract.model import Message, Turn
from handrail.testing.scripted import ScriptedModel
from handrail.toolkit.tool import Tool, tool
from handrail.tools.builtin import builtin_tools

SECRET: Final = "the host's secret"


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
def flood(characters: int) -> str:
    """Return a long text."""
    return "x" * characters


@tool(risk="high", effects=["reaches_out"])
def publish(text: str) -> str:
    """Publish a text (the demo sends it nowhere)."""
    return f"published {len(text)} characters"


def tools() -> list[Tool]:
    """The built-in tools, and three of the demo's own."""
    return [add, flood, publish, *builtin_tools("all")]


class Outside:
    """Secrets of the host that the sandbox must not reach: a file, and a server on the loopback address."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="outside-")
        self.path = str(Path(self._directory.name) / "secret.txt")
        Path(self.path).write_text(SECRET, encoding="utf-8")
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.free_port: int = free.getsockname()[1]

    async def __aenter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self._directory.cleanup()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                connection.sendall(SECRET.encode())


Check = Callable[[dict[str, Any]], bool]
Scene = tuple[str, list[tuple[str, Any, Check]]]
"""The model's text, and its calls: the tool, its arguments or a function of the messages that makes them, a check."""
PROGRAM: Final = "print(sum(range(101)))\n"
SERVER: Final = "python3 -m http.server {} --bind 127.0.0.1"
FETCH: Final = (
    'for _ in $(seq 50); do python3 -c "import urllib.request as u; '
    "print(u.urlopen('http://127.0.0.1:{}/').status)\" 2>/dev/null && break; sleep 0.1; done"
)
OUT_OF_REACH: Final = "Walls: the host's files and network are out of reach."
WITHIN_REACH: Final = "No walls here: the host's files and network are within reach. In a jail they are not."


def scenes(outside: Outside, everything: bool, *, walls: bool) -> list[Scene]:
    """Each scene: the model's text, and its calls, each with a check of its result. `everything` adds three."""
    port = 8765 if walls else outside.free_port  # a network of its own has no other servers
    server, fetch = SERVER.format(port), FETCH.format(port)
    return [
        ("Arguments: unambiguous ones are repaired; the rest come back with instructions.", [
            ("add", '{"a": "41"}', lambda r: r.get("result") == 42),
            ("add", '{"a": "many"}', lambda r: r.get("kind") == "invalid_args"),
            ("ad", '{"a": 1}', lambda r: r.get("kind") == "tool_not_found"),
        ]),
        (OUT_OF_REACH if walls else WITHIN_REACH, [
            ("bash", {"command": f"cat {outside.path}"}, lambda r: (SECRET in json.dumps(r)) != walls),
            ("bash", {"command": f"cat < /dev/tcp/127.0.0.1/{outside.port}"},
             lambda r: (SECRET in json.dumps(r)) != walls),
        ]),
        ("Jobs: a server runs in the background, the next command calls it, and it is stopped.", [
            ("bash", {"command": server, "background": True}, lambda r: r["result"]["background"] is True),
        ]),
        ("", [
            ("bash", {"command": fetch, "timeout": 30}, lambda r: "200" in r["result"]["stdout"]),
        ]),
        ("", [
            ("process", {"action": "kill", "job": "job-1"}, lambda r: r["result"]["running"] is False),
        ]),
        *(_more() if everything else ()),
        ("People: a call that leaves the sandbox needs approval first.", [
            ("publish", {"text": "hello, world"}, lambda r: r.get("ok") is True or r.get("kind") in
             ("rejected", "user_denied", "approval_timeout")),
        ]),
    ]  # fmt: skip


def _more() -> list[Scene]:
    return [
        ("Limits: a deadline stops a command and keeps its output; a long answer is cut, and the rest can be read.", [
            ("bash", {"command": "echo partial; sleep 99", "timeout": 1},
             lambda r: r.get("kind") == "timeout" and "partial" in json.dumps(r["data"])),
            ("flood", {"characters": 500_000}, lambda r: r.get("ok") is True and "left out" in json.dumps(r)),
        ]),
        ("", [("read_artifact", _rest, lambda r: r["result"]["text"] == "x" * 9)]),
        ("Delegation: another agent does a task, with the same tools and walls, and answers.", [
            ("task", {"prompt": "Say how many lines sum.py has."}, lambda r: "has 1 line" in json.dumps(r)),
        ]),
        ("", [("bash", {"command": f"echo '{PROGRAM.strip()}' > sum.py; wc -l sum.py"},
               lambda r: r["result"]["stdout"].startswith("1 "))]),
        ("sum.py has 1 line.", []),
    ]  # fmt: skip


def _rest(messages: Sequence[Message]) -> dict[str, Any]:
    """The arguments that read from the artifact which the last answer names."""
    told = json.dumps(messages[-1].results[-1].to_envelope("flood"))
    named = re.search(r"a_[0-9a-f]{8,}", told)
    return {"ref": named[0] if named else "", "start": 400_000, "length": 9}


def wrong_results(played: Sequence[Scene], results: Mapping[str, Any]) -> list[str]:
    """The calls whose result is wrong."""
    wrong = []
    for scene, (_, calls) in enumerate(played):
        for index, (name, arguments, check) in enumerate(calls):
            id = f"{scene}-{index}"
            result = next((told for known, told in results.items() if known == id or known.endswith(f"/{id}")), None)
            if result is None or not check(result):
                wrong.append(f"{name} {arguments}: {result}")
    return wrong


def model(played: Sequence[Scene]) -> ScriptedModel:
    """The demo's model: it makes the calls of the scenes, and no others."""
    turns = [partial(_turn, number, *scene) for number, scene in enumerate(played)]
    return ScriptedModel([*turns, "That is all: each call had one result, and each result said what happened."])


def _turn(number: int, text: str, calls: Sequence[tuple[str, Any, Check]], messages: Sequence[Message]) -> Turn:
    made = tuple(
        Call(f"{number}-{index}", name, given(messages) if callable(given) else given)
        for index, (name, given, _) in enumerate(calls)
    )
    return Turn(text, made, "tool_use" if made else "end")
