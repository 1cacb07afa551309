"""The demo's story: its tools, what the scripted model calls, and the result that each call must have."""

import json
import socket
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import anyio

from handrail.contract.call import Call
from handrail.contract.model import Turn
from handrail.testing.scripted import ScriptedModel
from handrail.toolkit.tool import Tool, tool
from handrail.tools.builtin import builtin_tools

SECRET: Final = "the host's secret"


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(timeout=0.5)
async def dawdle(seconds: float) -> str:
    """Wait."""
    await anyio.sleep(seconds)
    return "awake"


@tool
def flood(characters: int) -> str:
    """Return a long text."""
    return "x" * characters


@tool(risk="high", effects=["reaches_out"])
def publish(text: str) -> str:
    """Publish a text (the demo sends it nowhere)."""
    return f"published {len(text)} characters"


def tools() -> list[Tool]:
    """The built-in tools, and four of the demo's own."""
    return [add, dawdle, flood, publish, *builtin_tools("all")]


class Outside:
    """Secrets of the host that the sandbox must not reach: a file, and a server on the loopback address."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="outside-")
        self.path = str(Path(self._directory.name) / "secret.txt")
        Path(self.path).write_text(SECRET, encoding="utf-8")
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]

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
PROGRAM: Final = "print(sum(range(101)))\n"
SERVER: Final = "python3 -m http.server 8765 --bind 127.0.0.1"
FETCH: Final = (
    'for _ in $(seq 50); do python3 -c "import urllib.request as u; '
    "print(u.urlopen('http://127.0.0.1:8765/').status)\" 2>/dev/null && break; sleep 0.1; done"
)


def scenes(outside: Outside) -> list[tuple[str, list[tuple[str, Any, Check]]]]:
    """Each scene: the model's text, and its calls, each with a check of its result."""
    return [
        ("Arguments: unambiguous ones are repaired; the rest come back with instructions.", [
            ("add", '{"a": "41"}', lambda r: r.get("result") == 42),
            ("add", '{"a": "many"}', lambda r: r.get("kind") == "invalid_args"),
            ("ad", '{"a": 1}', lambda r: r.get("kind") == "tool_not_found"),
        ]),
        ("Limits: a deadline stops the work; a long answer is cut to what a model can read.", [
            ("dawdle", {"seconds": 30}, lambda r: r.get("kind") == "timeout"),
            ("flood", {"characters": 500_000}, lambda r: r.get("ok") is True and "left out" in json.dumps(r)),
        ]),
        ("Hands: files and commands in the sandbox.", [
            ("write", {"path": "sum.py", "content": PROGRAM}, lambda r: r.get("ok") is True),
            ("bash", {"command": "python3 sum.py | tee out.txt"}, lambda r: "5050" in json.dumps(r)),
            ("read", {"path": "."}, lambda r: "sum.py" in json.dumps(r)),
        ]),
        ("Walls: the host's files and network are out of reach.", [
            ("bash", {"command": f"cat {outside.path}"}, lambda r: SECRET not in json.dumps(r)),
            ("bash", {"command": f"cat < /dev/tcp/127.0.0.1/{outside.port}"}, lambda r: SECRET not in json.dumps(r)),
        ]),
        ("Jobs: a server runs in the background, and the next command calls it.", [
            ("bash", {"command": SERVER, "background": True}, lambda r: r["result"]["background"] is True),
        ]),
        ("", [
            ("bash", {"command": FETCH, "timeout": 30}, lambda r: "200" in r["result"]["stdout"]),
            ("process", {"action": "list"}, lambda r: r["result"]["jobs"][0]["running"] is True),
        ]),
        ("People: a call that leaves the sandbox needs approval first.", [
            ("publish", {"text": "hello, world"}, lambda r: r.get("ok") is True or r.get("kind") in
             ("rejected", "user_denied", "approval_timeout")),
        ]),
    ]  # fmt: skip


def wrong_results(outside: Outside, results: Mapping[str, Any], features: Collection[str]) -> list[str]:
    """The calls whose result is wrong, in a sandbox with these features."""
    wrong = []
    for scene, (text, calls) in enumerate(scenes(outside)):
        if text.startswith("Walls") and not {"file_isolation", "network_isolation"} <= set(features):
            continue
        for index, (name, arguments, check) in enumerate(calls):
            result = results.get(f"{scene}-{index}")
            if result is None or not check(result):
                wrong.append(f"{name} {arguments}: {result}")
    return wrong


def model(outside: Outside) -> ScriptedModel:
    """The demo's model: it makes the calls of the scenes, and no others."""
    turns = [
        Turn(
            text,
            tuple(Call(f"{scene}-{index}", name, args) for index, (name, args, _) in enumerate(calls)),
            "tool_use",
        )
        for scene, (text, calls) in enumerate(scenes(outside))
    ]
    return ScriptedModel([*turns, "That is all: each call had one result, and each result said what happened."])
