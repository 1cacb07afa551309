"""`handrail mcp` says what it serves, where, and what is wrong with its options."""

import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from handrail import HandrailError
from handrail.cli.mcp import chosen, read_address, read_tokens

MCP = (sys.executable, "-m", "handrail", "mcp")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mode", "bad"], "policy mode 'bad' is not one of contained"),
        pytest.param(["--network", "bad"], "write none or full", marks=pytest.mark.long),
        pytest.param(["--tools", "bsh"], "did you mean 'bash'?", marks=pytest.mark.long),
        pytest.param(["--workspace", "/no/such"], "there is no such directory", marks=pytest.mark.long),
        pytest.param(["--http", "nowhere"], "write HOST:PORT", marks=pytest.mark.long),
        pytest.param(["--http", "127.0.0.1:0", "--token-file", "/no/file"], "/no/file", marks=pytest.mark.long),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], said: str) -> None:
    argv = [*MCP, *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_new_token_is_printed_to_standard_error_and_a_signal_ends_it(tmp_path: Path) -> None:
    argv = [*MCP, "--http", "127.0.0.1:0", "--workspace", str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        starting, address, token = (server.stderr.readline() for _ in range(3))
        server.send_signal(signal.SIGINT)
        printed, rest = server.communicate(timeout=60)
    assert starting == "handrail: starting\n"
    assert re.search(r"serving on http://127\.0\.0\.1:\d+/mcp$", address)
    assert re.search(r"clients need this token: [\w-]{43}$", token)
    assert (printed, rest) == ("", "")


def test_standard_output_carries_the_protocol_alone(tmp_path: Path) -> None:
    ping = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    done = subprocess.run(
        [*MCP, "--workspace", str(tmp_path)], input=ping, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0
    assert done.stdout == '{"jsonrpc":"2.0","id":1,"result":{}}\n'
    assert done.stderr == ""


def test_tools_are_chosen_by_profile_or_by_name() -> None:
    assert [tool.name for tool in chosen("read,bash,read")] == ["read", "bash"]
    assert {"script", "search_tools"} <= {tool.name for tool in chosen("all")}
    assert not {"task", "ask_user", "complete"} & {tool.name for tool in chosen("all")}
    with pytest.raises(HandrailError):
        chosen("")


@pytest.mark.parametrize(
    ("text", "address"),
    [("8765", ("127.0.0.1", 8765)), ("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:0", ("::1", 0)), ("box:1", ("box", 1))],
)
def test_an_address_without_a_host_is_on_this_machine(text: str, address: tuple[str, int]) -> None:
    assert read_address(text) == address


@pytest.mark.parametrize("text", ["", ":", ":80", "host:", "host:70000", "host:-1"])
def test_an_address_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(HandrailError, match="HOST:PORT"):
        read_address(text)


def test_tokens_come_from_the_file_then_the_environment_then_are_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tokens"
    file.write_text("one-token-of-a-test\n\n  another-token-of-a-test \n")
    file.chmod(0o644)
    monkeypatch.setenv("HANDRAIL_MCP_TOKEN", "token-of-the-environment")
    assert read_tokens(str(file)) == (["one-token-of-a-test", "another-token-of-a-test"], False)
    assert "chmod 600" in capsys.readouterr().err
    file.chmod(stat.S_IRUSR)
    read_tokens(str(file))
    assert capsys.readouterr().err == ""
    assert read_tokens(None) == (["token-of-the-environment"], False)
    monkeypatch.setenv("HANDRAIL_MCP_TOKEN", "")
    [first], new = read_tokens(None)
    assert new
    assert first != read_tokens(None)[0][0]
    file.chmod(0o600)
    file.write_text("\n")
    with pytest.raises(HandrailError, match="it has no token"):
        read_tokens(str(file))
    assert os.environ["HANDRAIL_MCP_TOKEN"] == ""
