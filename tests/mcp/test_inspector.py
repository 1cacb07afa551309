"""The MCP Inspector's command line, which we did not write, lists and calls the built-in tools."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

import dev
from handrail import builtin_tools
from tests.mcp.commands import HANDRAIL, TOKEN, http_server
from tests.mcp.conformance import installed, node

pytestmark = pytest.mark.timeout(600)  # the first run installs it
INSPECTOR: Final = "@modelcontextprotocol/inspector@2.12.0"


def inspected(target: list[str], *options: str) -> dict[str, Any]:
    """What the Inspector prints."""
    program = installed("inspector", INSPECTOR) / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    argv = [node(), str(program), "--cli", *target, *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False, cwd=dev.ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def calls_work(target: list[str], *options: str) -> None:
    listed = inspected(target, *options, "--method", "tools/list")
    assert [each["name"] for each in listed["tools"]] == sorted(each.name for each in builtin_tools())
    command = ("--tool-name", "bash", "--tool-arg", "command=echo hello from the jail")
    called = inspected(target, *options, "--method", "tools/call", *command)
    assert called["structuredContent"]["result"]["stdout"] == "hello from the jail\n"
    assert json.loads(called["content"][0]["text"]) == called["structuredContent"]


def test_over_http(tmp_path: Path) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    with http_server(directory) as server:
        calls_work([server.url], "--transport", "http", "--header", f"Authorization: Bearer {TOKEN}")


@pytest.mark.long
def test_over_standard_input(tmp_path: Path) -> None:
    calls_work([*HANDRAIL, "--workspace", str(tmp_path)])
