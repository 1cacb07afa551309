"""`--help` teaches: what each command is for, with examples that work."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import ENV, MAIN


def shown(*words: str) -> str:
    command = [sys.executable, "-c", MAIN, *words]
    ran = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode in (0, 2), ran.stderr
    return ran.stdout + ran.stderr


def test_without_words_or_with_help_every_command_is_named() -> None:
    for words in ((), ("--help",)):
        text = shown(*words)
        for command in ("demo", "call", "tools", "doctor"):
            assert re.search(rf"^│ {command} ", text, re.MULTILINE), text


@pytest.mark.parametrize(
    ("command", "taught"),
    [
        (
            "call",
            [
                "handrail tools",
                "Ctrl-C",
                "standard output",
                "contained",
                "strict",
                "--allow-weaker",
                "handrail call bash",
            ],
        ),
        ("tools", ["--schema", "--profile", "coding"]),
        ("demo", ["no key", "--yes"]),
        ("doctor", ["--json"]),
    ],
)
def test_each_command_teaches_its_use(command: str, taught: list[str]) -> None:
    text = " ".join(shown(command, "--help").replace("│", " ").split())
    for word in taught:
        assert word in text, word


def test_the_examples_in_the_help_work(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("hello\n")
    lines = re.findall(r"handrail call (\w+) '(\{.*?\})'", shown("call", "--help"))
    assert len(lines) >= 2
    for tool, arguments in lines:
        command = [sys.executable, "-c", MAIN, "call", tool, arguments]
        ran = subprocess.run(command, cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=120, check=False)
        assert json.loads(ran.stdout)["ok"], ran.stdout
