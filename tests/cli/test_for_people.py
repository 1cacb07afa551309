"""What goes wrong is told in a person's words, whole, with what to type."""

import socket
from pathlib import Path

import pytest

from handrail import Agent, HandrailError, Session, builtin_tools
from tests.cli.story import bash, recorded
from tests.cli.terminal import begun, plain, say, terminal


@pytest.fixture
def closed_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "hi", "--model", "anthropic:x"), "anthropic:x needs a key: set ANTHROPIC_API_KEY"),
        (("run", "hi", "--model", "openai:x"), "openai:x needs a key: set OPENAI_API_KEY"),
        (("run", "hi", "--model", "google:x"), "google:x needs a key: set GEMINI_API_KEY"),
        (("run", "hi", "--model", "openai-chat:x@notaurl"), "'notaurl' is not an address; write openai-chat:NAME@http"),
        (("run", "hi", "--model", "gpt-5"), "did you mean openai:gpt-5?"),
        (("run", "hi", "--model", "claude-x"), "did you mean anthropic:claude-x?"),
        (("run", "hi", "--model", "gguf:a.gguf"), "gguf:a.gguf is not a GGUF file"),
        (("call", "bash", "true", "--env", "A B"), "'A B' cannot be a variable's name"),
        (("init", "--workspace", "/nope"), "--workspace /nope: there is no such directory"),
        (("mcp", "--http", "127.0.0.1:0", "--token-file", "/nope"), "--token-file /nope cannot be read: No such file"),
        (("call", "bash", "true", "--mount", "/tmp:/usr"), "a mount at /usr would hide the system's programs"),
        (("call", "bash", "true", "--mount", "/tmp:/run/handrail"), "a mount cannot appear at /run/handrail"),
    ],
)
def test_a_mistake_is_told_with_what_to_type(words: tuple[str, ...], told: str, tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_text("not such a file")
    ran = plain(*words, cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert ran.returncode in (2, 125), ran.stdout
    assert told in ran.stderr, ran.stderr
    assert "pydantic" not in ran.stderr.lower(), "another product's words"


@pytest.mark.parametrize("provider", ["ollama", "openai-chat"])
def test_a_server_that_does_not_answer_is_named_whole_where_stderr_is_no_terminal(
    provider: str, tmp_path: Path, closed_port: int
) -> None:
    address = f"http://127.0.0.1:{closed_port}/v1"
    ran = plain("run", "hi", "--model", f"{provider}:x@{address}", cwd=tmp_path, env={"HOME": str(tmp_path)})
    last = next(line for line in ran.stderr.splitlines() if "The run ended: model_error" in line)
    assert f"no server answers at {address}" in last
    assert "Connection" in last, "the reason is not cut off"


def test_an_untrusted_server_is_told_on_lines_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "handrail.toml").write_text('[mcp.servers.files]\ncommand = "npx"\n')
    ran = plain("mcp", "inspect", "files", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert "\\x0a" not in ran.stderr
    assert "\nhandrail: " in ran.stderr
    assert "is not accepted" in ran.stderr


def test_a_refusal_gives_a_person_the_reason_and_the_model_advice(tmp_path: Path) -> None:
    (tmp_path / "handrail.toml").write_text('[policy]\ndeny = ["bash(rm *)"]\n')
    model = recorded(tmp_path / "r", ("Go", [bash("rm x"), "Done."]))
    ran = plain("run", "Go", "--model", model, cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert "the rule 'bash(rm *)' forbids it" in ran.stderr
    assert "Go on without it" not in ran.stderr
    told = plain("call", "bash", "rm x", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert "Go on without it" in told.stdout, "the envelope is for a program"


def test_a_session_of_another_directory_is_told_with_the_option_before_a_model_is_opened(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    home = {"HOME": str(tmp_path)}
    model = recorded(tmp_path / "r", ("Go", ["Done."]))
    assert plain("run", "Go", "--model", model, cwd=tmp_path / "one", env=home).returncode == 0
    listed = plain("sessions", "list", cwd=tmp_path, env=home).stdout
    assert "~/one" in listed
    ran = plain("run", "Go", "--resume", "last", "--model", "anthropic:no-key", cwd=tmp_path / "two", env=home)
    assert ran.returncode == 2
    assert f"add --workspace {tmp_path / 'one'}" in ran.stderr


def test_last_is_of_this_directory_first_and_a_fork_is_neither_cancelled_nor_forked_again(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    model = recorded(tmp_path / "r", ("Go", [bash("true"), "Done."]))
    ids = {}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        assert plain("run", "Go", "--model", model, cwd=tmp_path / name, env=home).returncode == 0
        ids[name] = plain("sessions", "show", "last", cwd=tmp_path / name, env=home).stdout.split()[0]
    assert ids["one"] != ids["two"]
    assert plain("sessions", "show", "last", cwd=tmp_path / "one", env=home).stdout.split()[0] == ids["one"]
    assert plain("sessions", "show", "last", cwd=tmp_path, env=home).stdout.split()[0] == ids["two"]
    fork = plain("sessions", "fork", "last", "--at", "6", cwd=tmp_path / "one", env=home).stdout.strip()
    again = plain("sessions", "fork", "last", "--at", "6", cwd=tmp_path / "one", env=home).stdout.strip()
    listed = {line.split()[0]: line for line in plain("sessions", "list", cwd=tmp_path, env=home).stdout.splitlines()}
    assert set(listed) == {*ids.values(), fork, again}
    assert "cancelled" not in listed[fork]
    shown = plain("sessions", "show", again, "--json", cwd=tmp_path, env=home).stdout
    assert f'"session": "{ids["one"]}"' in shown.splitlines()[0]


def test_chat_prints_envelopes_if_it_is_asked_for_json(tmp_path: Path) -> None:
    model = recorded(tmp_path / "r", ("Go", [bash("echo hi"), "Done."]))
    with terminal("chat", "--json", "--model", model, cwd=tmp_path, env={"HOME": str(tmp_path)}) as screen:
        begun(screen)
        say(screen, "Go")
        screen.wait_shown("Done.")
        screen.wait_shown('{"ok": true, "tool": "bash"')
        screen.press_control_d()
        assert screen.end() == 0


def test_a_model_that_counts_no_tokens_is_told_so(tmp_path: Path) -> None:
    model = recorded(tmp_path / "r", ("Go", ["Done."]))
    ran = plain("run", "Go", "--model", model, cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert "tokens unknown" in ran.stderr


def test_an_agent_without_a_model_and_tools_without_a_sandbox_are_told_what_to_write() -> None:
    with pytest.raises(
        TypeError, match=r"^Agent\(\) is missing a required argument: 'model'; write Agent\(model, tools"
    ):
        Agent(tools=[print])  # type: ignore[call-arg]
    with pytest.raises(HandrailError, match="write `async with open_sandbox"):
        Session(builtin_tools())
