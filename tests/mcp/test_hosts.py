"""The configurations in examples/mcp/ can be read as their programs read them, and start our server."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from handrail.cli._commands import COMMANDS
from handrail.cli.mcp import app
from handrail.mcp import connect

ROOT = Path(__file__).resolve().parents[2]
PLACES = {
    "claude-code.json": ("mcpServers", ".mcp.json"),
    "claude-desktop.json": ("mcpServers", "claude_desktop_config.json"),
    "cursor.json": ("mcpServers", ".cursor/mcp.json"),
    "vscode.json": ("servers", ".vscode/mcp.json"),
    "codex.toml": ("mcp_servers", ".codex/config.toml"),
    "gemini.json": ("mcpServers", ".gemini/settings.json"),
}
"""By example: the key under which its program looks for servers, and the file."""
KNOWN = {"type", "command", "args", "env", "timeout", "tool_timeout_sec"}


def entry(name: str) -> dict[str, Any]:
    text = (ROOT / "examples" / "mcp" / name).read_text()
    given = tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
    assert list(given) == [PLACES[name][0]]
    [found] = given[PLACES[name][0]].values()
    assert isinstance(found, dict)
    return found


def test_every_example_is_known_here_and_in_the_documents() -> None:
    assert {path.name for path in (ROOT / "examples" / "mcp").iterdir()} == PLACES.keys()
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs" / "mcp.md").read_text()
    for name, (_, place) in PLACES.items():
        assert f"examples/mcp/{name}" in readme
        assert place in page


@pytest.mark.parametrize("name", PLACES)
def test_an_example_names_our_command_and_options_that_it_has(name: str) -> None:
    found = entry(name)
    assert found.keys() <= KNOWN
    assert found["command"] == "handrail"
    assert found.get("type", "stdio") == "stdio"
    assert found["args"][0] in COMMANDS
    assert found["args"][0] == "mcp"
    command: Any = typer.main.get_command(app)
    parsed = command.make_context("mcp", list(found["args"][1:]), resilient_parsing=False)
    assert parsed.params["workspace"] == found["args"][2]


def test_an_option_that_there_is_not_would_be_caught() -> None:
    command: Any = typer.main.get_command(app)
    with pytest.raises(Exception, match="No such option"):
        command.make_context("mcp", ["--work-space", "."])


@pytest.mark.long
@pytest.mark.anyio
async def test_what_an_example_starts_lists_our_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    weaker = "--allow-weaker"  # a server has no capabilities, and root needs them for a jail
    command = [sys.executable, "-m", "handrail", *entry("claude-code.json")["args"], weaker]
    async with connect("handrail", command=command) as server:
        assert "handrail__bash" in [tool.name for tool in server.tools]
