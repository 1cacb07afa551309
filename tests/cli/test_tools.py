"""`handrail tools` shows a person what there is, and a program the schemas of its provider."""

import json
import subprocess
import sys
from typing import Any

import pytest

from handrail.cli.tools import list_tools
from handrail.schema.export import PROVIDERS
from handrail.tools.builtin import builtin_tools
from tests.cli.terminal import ENV, MAIN


def test_every_tool_has_its_line() -> None:
    lines = list_tools(None, "all").splitlines()
    assert [line.split()[0] for line in lines] == sorted(tool.name for tool in builtin_tools("all"))
    assert "executes" in next(line for line in lines if line.startswith("bash"))


def test_a_profile_chooses() -> None:
    names = {profile: {tool.name for tool in builtin_tools(profile)} for profile in ("read_only", "coding", "all")}  # type: ignore[arg-type]
    assert names["read_only"] == {"glob", "grep", "read", "read_artifact"}
    assert names["coding"] - names["read_only"] == {
        "bash",
        "edit",
        "process",
        "run_code",
        "share_artifact",
        "todo",
        "write",
    }
    assert names["all"] - names["coding"] == {"ask_user", "complete", "script", "search_tools", "task"}
    assert {line.split()[0] for line in list_tools(None, "read_only").splitlines()} == names["read_only"]


def named(schema: dict[str, Any]) -> str:
    return str(schema.get("name") or schema["function"]["name"])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_schemas_are_json_for_the_provider(provider: str) -> None:
    schemas = json.loads(list_tools(provider, "all"))
    assert [named(schema) for schema in schemas] == sorted(tool.name for tool in builtin_tools("all"))
    assert "idle_timeout" in json.dumps(schemas)


def test_every_property_says_what_it_is() -> None:
    for schema in json.loads(list_tools("mcp", "all")):
        for name, about in schema["inputSchema"].get("properties", {}).items():
            assert len(about.get("description", "")) > 8, f"{schema['name']}.{name}"


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -c '{MAIN}' tools --schema openai | head -c 10"
    ran = subprocess.run(["bash", "-c", command], env=ENV, capture_output=True, text=True, timeout=60, check=False)
    assert (len(ran.stdout), ran.stderr) == (10, "")
