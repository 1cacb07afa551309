"""`--help` teaches: what each command is for, with examples that work."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from signal import SIGINT
from subprocess import DEVNULL, PIPE

import pytest

from handrail.cli._commands import COMMANDS
from tests.cli.story import bash, recorded
from tests.cli.terminal import ENV, MAIN, WIDTHS, plain, terminal


def shown(*words: str) -> str:
    command = [sys.executable, "-c", MAIN, *words]
    ran = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode in (0, 2), ran.stderr
    return ran.stdout + ran.stderr


def test_without_words_or_with_help_every_command_is_named() -> None:
    for words in ((), ("--help",)):
        text = shown(*words)
        for command in ("chat", "run", "sessions", "init", "trust", "demo", "call", "shell", "tools", "doctor"):
            assert re.search(rf"^  {command} ", text, re.MULTILINE), text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_of_a_command_what_its_own_help_begins_with(name: str) -> None:
    assert COMMANDS[name] in " ".join(shown(name, "--help").split())


def test_the_help_loads_no_command(tmp_path: Path) -> None:
    commands = {f"handrail.cli.{name}" for name in COMMANDS}
    assert loaded("--help", cwd=tmp_path) & commands == set()
    assert loaded("tools", cwd=tmp_path) & commands == {"handrail.cli.tools"}


def test_the_help_opens_with_what_to_type_first_and_cuts_no_sentence() -> None:
    opening, _, commands = shown("--help").partition("Options:")
    for command in ("demo", "chat", "run", "mcp", "tools", "call", "shell"):
        assert f"`handrail {command}`" in " ".join(opening.split())
    assert "..." not in commands.partition("Commands:")[2]


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
        ("shell", ["Tab", "Ctrl-D", "bash echo hi", "--yes"]),
        ("tools", ["--schema", "--profile", "coding"]),
        ("demo", ["no key", "--yes"]),
        ("doctor", ["--json"]),
        ("run", ["--json", "--model", "--resume", "exit code", "130"]),
        ("chat", ["Ctrl-C", "Alt-Enter", "--resume"]),
        ("trust", ["[tool.handrail]", "--yes"]),
    ],
)
def test_each_command_teaches_its_use(command: str, taught: list[str]) -> None:
    text = " ".join(shown(command, "--help").replace("│", " ").split())
    for word in taught:
        assert word in text, word


def test_the_examples_in_the_help_work(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("hello\n")
    lines = [shlex.split(line) for line in re.findall(r"^  handrail (call .*)$", shown("call", "--help"), re.MULTILINE)]
    assert len(lines) >= 4
    for words in lines:
        ran = plain(*(word.replace("pytest -q", "echo") for word in words), cwd=tmp_path)
        assert json.loads(ran.stdout)["ok"], ran.stdout


PROVIDERS = {"anthropic", "google", "openai", "pydantic_ai", "httpx", "mcp", "xllamacpp", "handrail.models.providers"}


def loaded(*words: str, cwd: Path) -> set[str]:
    """The modules that `handrail` has loaded at its end."""
    code = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=open('modules', 'w'))); {MAIN}"
    argv = [sys.executable, "-W", "ignore", "-c", code, *words]
    subprocess.run(argv, cwd=cwd, env={**ENV, "HOME": str(cwd)}, capture_output=True, check=True)
    return set((cwd / "modules").read_text().split())


def test_no_provider_is_loaded_before_it_is_asked(tmp_path: Path) -> None:
    model = recorded(tmp_path / "r", ("Go", [bash("true"), "Done."]))
    modules = loaded("run", "Go", "--model", model, cwd=tmp_path)
    assert {"handrail.models.recorded", "handrail.drivers.jail", "handrail.tools.bash"} <= modules, "the control"
    assert modules & PROVIDERS == set()


def test_help_loads_nothing_that_only_a_command_needs(tmp_path: Path) -> None:
    modules = loaded("--help", cwd=tmp_path)
    assert "handrail.cli._commands" in modules, "the control"
    assert modules & PROVIDERS == set()
    heavy = {"anyio", "pydantic", "prompt_toolkit", "rich.console", "handrail.session.session", "handrail.drivers.open"}
    assert modules & heavy == set()


@pytest.mark.parametrize("columns", WIDTHS)
def test_help_and_the_list_of_tools_fit_the_terminal(columns: int, tmp_path: Path) -> None:
    commands = ("call", "shell", "tools", "doctor", "demo")
    others = [["tools"], *([command, "--help"] for command in commands)] if columns == min(WIDTHS) else []
    for words in (["--help"], *others):
        with terminal(*words, cwd=tmp_path, columns=columns, fresh=True) as screen:
            assert screen.end() == 0
        examples = ("  handrail call ", "  bash ")  # they stay whole
        lines = [line for line in screen.seen.splitlines() if not line.startswith(examples)]
        assert max(map(len, lines)) <= columns, words


def test_control_c_while_it_starts_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import time\nprint('LOADING', flush=True)\ntime.sleep(60)\n")
    env = {**ENV, "PYTHONPATH": f"{tmp_path}:{ENV['PYTHONPATH']}"}
    said = {}
    for code in (MAIN, "import typer"):
        with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=PIPE, stderr=PIPE, text=True) as started:
            assert started.stdout
            assert started.stdout.readline() == "LOADING\n"
            started.send_signal(SIGINT)
            said[code] = started.communicate(timeout=60)[1]
        assert started.returncode == -SIGINT
    assert "Traceback" in said["import typer"], "the control"
    assert said[MAIN] == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_breaks_nothing(closed: str, tmp_path: Path) -> None:
    program = f'exec "$@" {closed}'
    argv = ["sh", "-c", program, "sh", sys.executable, "-c", MAIN, "call", "bash", "echo hi > made; exit 3"]
    ran = subprocess.run(argv, cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (3, "")
    assert (tmp_path / "made").read_text() == "hi\n"


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["tools"]], ids=lambda words: words[0])
def test_a_full_disk_is_told_in_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        argv = [sys.executable, "-c", MAIN, *words]
        ran = subprocess.run(argv, env=ENV, stdout=full, stderr=PIPE, text=True, timeout=60, check=False)
    assert (ran.returncode != 0, ran.stderr) == (True, "handrail: No space left on device\n")


@pytest.mark.parametrize("words", [["--version"], ["call", "read", "."]], ids=lambda words: words[0])
def test_run_as_a_module_it_imports_nothing_from_the_current_directory(words: list[str], tmp_path: Path) -> None:
    """The current directory is the workspace: what commands wrote there must not run outside of the jail."""
    planted = ("typer", "anyio", "rich", "pydantic", "json", "signal")
    for name in planted:
        (tmp_path / f"{name}.py").write_text("print('PLANTED')\n")
    env = {name: value for name, value in ENV.items() if name != "PYTHONSAFEPATH"}

    def ran(*start: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *start], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    assert "PLANTED" in ran("-c", "import typer").stdout, "the control"
    done = ran("-m", "handrail", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "PLANTED" not in done.stdout


HOMELESS = ["unshare", "--user", "--map-user=54321", "--"]
"""A user of whom the system knows nothing, as in a container that is run with another number."""


@pytest.mark.parametrize("start", [HOMELESS, ["env", "HOME=."]], ids=["no such user", "a home in the workspace"])
def test_without_a_home_commands_work_and_what_needs_one_says_so(start: list[str], tmp_path: Path) -> None:
    def ran(*words: str) -> "tuple[int, str, str]":
        argv = [*start, sys.executable, *words]
        done = subprocess.run(argv, cwd=tmp_path, env=ENV, stdin=DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    (tmp_path / ".config" / "handrail").mkdir(parents=True)
    (tmp_path / ".config" / "handrail" / "handrail.toml").write_text("planted = 1")  # as a command could
    assert ran("-c", "import os; print(os.path.expanduser('~')[0] == '/')")[1] == "False\n", "the control"
    on_host, handrail = ["--driver", "host", "--allow-weaker", "--yes"], ["-c", MAIN]
    code, printed, _ = ran(*handrail, "call", *on_host, "bash", "echo hi")
    assert (code, json.loads(printed)["result"]["stdout"]) == (0, "hi\n")
    told = "this user has no home directory; set HOME to the whole path of one"
    assert ran(*handrail, "init", "--own") == (2, "", f"handrail: {told}\n")
    if start == HOMELESS:
        code, _, said = ran(*handrail, "run", *on_host, "--model", "person", "hello")
        assert (code, "the person has left" in said) == (1, True)
        assert f"this session is not kept: {told}" in said


def test_a_home_that_nobody_can_write_to_has_no_sessions(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", MAIN, "sessions", "list", "--json"]
    env = {**ENV, "HOME": "/proc/self"}  # even root makes nothing there
    ran = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[]\n", "")
