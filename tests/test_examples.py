"""Every example runs as a person would run it, and prints what its last lines promise."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.cli.terminal import ENV, Terminal

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")


def promised(example: Path) -> str:
    """The lines after `# > ` at the end of the file."""
    lines = [line for line in example.read_text().splitlines() if line.startswith("# >")]
    return "".join(f"{line[4:]}\n" for line in lines)


def run(example: Path, cwd: Path, **env: str) -> str:
    """What it printed; it must end well, without a warning."""
    kept = {name: value for name, value in os.environ.items() if name not in KEYS}
    ran = subprocess.run(
        [sys.executable, "-W", "error", example],
        cwd=cwd,
        env={**kept, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stderr == ""
    assert ran.returncode == 0
    return "".join(f"{line.rstrip()}\n" for line in ran.stdout.splitlines())


def test_there_are_examples_of_what_a_newcomer_looks_for() -> None:
    assert {example.stem for example in EXAMPLES} >= {
        "project_tests", "terminal_approver", "event_log", "openai_messages", "anthropic_messages", "background_server",
        "artifacts_between_tools",
    }  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_says_what_it_promises(example: Path, tmp_path: Path) -> None:
    assert run(example, tmp_path) == promised(example) != ""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_is_short_and_the_list_of_them_has_it(example: Path) -> None:
    code = [line for line in example.read_text().splitlines() if not line.startswith("# >")]
    assert len(code) <= 60
    assert f"({example.name})" in (ROOT / "examples" / "README.md").read_text()


# A person at the terminal


REASON = "(send (reaches_out) is not confined by a sandbox; always would "
PROMPT = "allow send(ann))\nRun it? [y]es, [a]lways, or a reason why not: "


@pytest.mark.parametrize(
    ("typed", "ending"),
    [
        (["y", "not now"], ["-> sent", "-> The user did not allow send: not now", "sent: ['ann: hello']"]),
        (["a"], ["-> sent", "-> sent", "sent: ['ann: hello', 'ann: goodbye']"]),
        (["\x04", "y"], ["-> The user did not allow send: nobody is there", "-> sent", "sent: ['ann: goodbye']"]),
    ],
    ids=["yes-then-no", "always", "end-of-input-then-yes"],
)
def test_the_approver_does_what_the_person_types(tmp_path: Path, typed: list[str], ending: list[str]) -> None:
    example = str(ROOT / "examples" / "terminal_approver.py")
    child = pexpect.spawn(sys.executable, [example], cwd=str(tmp_path), env=ENV, dimensions=(60, 120))
    try:
        person = Terminal(child, columns=120)
        for text, answer in zip(("hello", "goodbye"), typed, strict=False):
            person.wait_for(f"text: {text}\n{REASON}{PROMPT}")
            person.type(answer if answer == "\x04" else f"{answer}\n")
        assert person.end() == 0
    finally:
        child.close(force=True)
    assert [line for line in person.seen.splitlines() if line.startswith(("->", "sent:"))] == ending


# With a key


@pytest.fixture
def provider() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers as both providers do; its address, and what it was asked."""
    asked: list[dict[str, Any]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            body = json.dumps(ANSWERS[self.path.rpartition("/")[2]][len(asked) - 1]).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def openai_answer(**message: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": None, **message}}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def anthropic_answer(*content: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content, "usage": usage}


ANSWERS: dict[str, list[dict[str, Any]]] = {
    "completions": [
        openai_answer(tool_calls=[{"id": "1", "type": "function", "function": {"name": "sum", "arguments": "{}"}}]),
        openai_answer(content="There is no such tool."),
    ],
    "messages": [
        anthropic_answer({"type": "tool_use", "id": "1", "name": "sum", "input": {}}),
        anthropic_answer({"type": "text", "text": "There is no such tool."}),
    ],
}


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_with_a_key_the_provider_is_asked(
    name: str, provider: tuple[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    address, asked = provider
    key, base = f"{name.upper()}_API_KEY", f"{name.upper()}_BASE_URL"
    said = run(ROOT / "examples" / f"{name}_messages.py", tmp_path, **{key: "k", base: address, "MODEL": "mine"})
    assert said.splitlines()[0] == "model: mine"
    assert said.splitlines()[-1] == "There is no such tool."
    assert [it["model"] for it in asked] == ["mine", "mine"]
    assert {"bash", "read"} <= {tool.get("name") or tool["function"]["name"] for tool in asked[0]["tools"]}
    assert "tool_not_found" in json.dumps(asked[1]["messages"][-1]), "the answer went back to the model"
