"""`handrail mcp inspect`, `accept` and `import`, as a person types them."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

RAW = Path(__file__).parents[1] / "mcp" / "raw_server.py"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def handrail(
    place: Path, *words: str, state: Path | None = None, command: str = "mcp"
) -> subprocess.CompletedProcess[str]:
    kept = state or place.parent
    env = {**os.environ, "XDG_CONFIG_HOME": f"{kept}/config", "XDG_STATE_HOME": f"{kept}/state"}
    typed = [sys.executable, "-m", "handrail", command, *words]
    return subprocess.run(typed, cwd=place, env=env, capture_output=True, text=True, check=False, timeout=100)


def write(place: Path, behaviour: str, *more: str, table: str = "mcp", file: str = "handrail.toml") -> None:
    args = json.dumps([str(RAW), behaviour, *more])
    text = f"[{table}.servers.raw]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n"
    (place / file).write_text(text)


def test_a_server_is_inspected_once_its_file_was_accepted(workspace: Path) -> None:
    (workspace / "description").write_text("Say it again.")
    program = workspace / "bin" / "server"  # beside the file; the server starts in the workspace
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {RAW} ChangesBetweenStarts "$1"\n')
    program.chmod(0o755)
    (workspace / "handrail.toml").write_text('[mcp.servers.raw]\ncommand = "bin/server"\nargs = ["."]\n')
    refused = handrail(workspace, "inspect", "raw")
    assert refused.returncode == 2
    assert "handrail trust" in refused.stderr
    assert "give --yes" in handrail(workspace, "accept").stderr
    accepted = handrail(workspace, "accept", "--yes")
    assert "bin/server . (no sandbox, a program that commands in this workspace can change)" in accepted.stdout
    assert accepted.returncode == 0
    seen = handrail(program.parent, "inspect", "raw", "--workspace", "..", state=workspace.parent)
    assert "raw__echo" in seen.stdout, seen
    assert "Say it again." in seen.stdout
    assert "changed" not in seen.stdout
    (workspace / "description").write_text("Send it to me.")
    assert "has changed" in handrail(workspace, "inspect", "raw").stdout


def test_a_server_of_the_project_s_pyproject_is_inspected_once_it_was_accepted(workspace: Path) -> None:
    write(workspace, "Plain", table="tool.handrail.mcp", file="pyproject.toml")
    refused = handrail(workspace, "inspect", "raw")
    assert refused.returncode == 2
    assert "handrail trust" in refused.stderr
    assert handrail(workspace, "--yes", command="trust").returncode == 0
    assert "raw__echo" in handrail(workspace, "inspect", "raw").stdout


@pytest.mark.long
def test_a_person_agrees_to_a_changed_tool_once(workspace: Path) -> None:
    write(workspace, "ChangesBetweenStarts", str(workspace))
    handrail(workspace, "accept", "--yes")
    for text, said in [("one", ""), ("two", "agreed"), ("two", "")]:
        (workspace / "description").write_text(text)
        printed = handrail(workspace, "inspect", "raw", "--agree").stdout
        assert ("has changed" in printed) == bool(said)
        assert said in printed


@pytest.mark.long
def test_a_server_can_be_inspected_by_its_command(workspace: Path) -> None:
    listed = handrail(workspace, "inspect", f"{sys.executable} {RAW} Plain", "--json")
    assert [tool["name"] for tool in json.loads(listed.stdout)] == ["server__echo"]
    dead = handrail(workspace, "inspect", f"{sys.executable} {RAW} DiesAtOnce")
    assert dead.returncode == 1
    assert "no key was given" in dead.stderr
    assert "Traceback" not in dead.stderr
    unknown = handrail(workspace, "inspect", "nothing")
    assert unknown.returncode == 2
    assert "no server 'nothing'" in unknown.stderr


def test_the_servers_of_another_program_are_imported(workspace: Path) -> None:
    servers = {"raw": {"command": sys.executable, "args": [str(RAW), "Plain"]}}
    (workspace / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert "added to" in handrail(workspace, "import", "mcp.json").stdout
    assert "already in" in handrail(workspace, "import", "mcp.json").stdout
    own = workspace.parent / "config" / "handrail" / "handrail.toml"
    assert "[mcp.servers.raw]" in own.read_text()
    assert stat.S_IMODE(own.stat().st_mode) == 0o600  # other programs' files hold keys
