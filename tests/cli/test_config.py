"""`handrail.toml`: read strictly, and believed in a workspace only after the person has accepted its content."""

import os
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from handrail import HandrailError
from handrail.cli._config import (
    ServerEntry,
    accept,
    as_toml,
    common_servers,
    own_file,
    servers_in,
)
from handrail.cli._settings import read_settings, to_accept
from handrail.cli._state_file import JsonFile, Part, state_directory
from handrail.mcp import connect

HERE = Path("handrail.toml")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    own_file().parent.mkdir(parents=True)
    return tmp_path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


GOOD = """
[mcp.servers.files]
command = "npx"
args = ["-y", "server-filesystem", "."]
env = { KEY = "${SOME_KEY:-none}" }
sandbox = "jail"

[mcp.servers.web]
url = "https://example.com/mcp"
headers = { Authorization = "Bearer ${TOKEN}" }
trust = true
"""


def test_servers_are_read_with_their_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t-1")
    servers = servers_in(GOOD.encode(), HERE)
    assert servers["files"].options("/project") == {
        "command": ["npx", "-y", "server-filesystem", "."],
        "env": {"KEY": "none"},
        "cwd": None,
        "sandbox": "jail",
        "trust": False,
        "privileges": "dropped",
    }
    assert servers["web"].options("/project") == {
        "url": "https://example.com/mcp",
        "headers": {"Authorization": "Bearer t-1"},
        "trust": True,
    }
    monkeypatch.delenv("TOKEN")
    with pytest.raises(HandrailError, match="TOKEN"):
        servers["web"].options("/project")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[mcp.servers.a]\ncomand = "x"', "did you mean 'command'"),
        ('[mcp.servers.a]\ncommand = "x"\nurl = "http://x"', "either a command or a url"),
        ("[mcp.servers.a]\ntrust = true", "either a command or a url"),
        ('[mcp.servers.a]\ncommand = ["x"]', "write a program"),
        ('[mcp.servers.a]\ncommand = "x"\nargs = "y"', "write a list of texts"),
        ('[mcp.servers.a]\ncommand = "x"\nargs = [1]', "write a list of texts"),
        ('[mcp.servers.a]\ncommand = "x"\ntrust = "yes"', "write true or false"),
        ('[mcp.servers.a]\nurl = "http://x"\nsandbox = "jail"', "sandbox is for a command"),
        ('[mcp]\nservers = "x"', "write a table"),
        ("[mcp.servers.a", "handrail.toml"),
        ("\udcff", "handrail.toml"),
    ],
)
def test_a_mistake_is_named_with_its_key(text: str, said: str) -> None:
    with pytest.raises(HandrailError, match=said):
        servers_in(text.encode("utf-8", "surrogateescape"), HERE)


def test_a_workspace_s_file_is_not_believed_before_it_is_accepted(workspace: Path) -> None:
    file = workspace / "handrail.toml"
    file.write_text('[mcp.servers.evil]\ncommand = "curl"\n')
    assert not read_settings(str(workspace)).servers
    accept(file, file.read_bytes())
    assert list(read_settings(str(workspace)).servers) == ["evil"]
    file.write_text('[mcp.servers.evil]\ncommand = "rm"\n')
    assert not read_settings(str(workspace)).servers


def test_what_was_accepted_for_one_workspace_is_not_for_another(workspace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for place in (workspace, other):
        (place / "handrail.toml").write_text('[mcp.servers.a]\ncommand = "x"\n')
    accept(workspace / "handrail.toml", (workspace / "handrail.toml").read_bytes())
    assert read_settings(str(workspace)).servers
    assert not read_settings(str(other)).servers


def test_the_person_s_own_file_needs_no_acceptance(workspace: Path) -> None:
    own_file().write_text(GOOD)
    assert list(read_settings(str(workspace)).servers) == ["files", "web"]
    (workspace / "handrail.toml").write_text('[mcp.servers.web]\ncommand = "x"\n')
    accept(workspace / "handrail.toml", (workspace / "handrail.toml").read_bytes())
    with pytest.raises(HandrailError, match="rename one"):
        read_settings(str(workspace))


def test_what_is_kept_is_readable_by_this_user_alone(workspace: Path) -> None:
    accept(workspace / "handrail.toml", b"x")
    kept = state_directory() / "accepted.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert os.listdir(kept.parent) == ["accepted.json"]


def test_a_part_of_what_is_kept_is_written_with_every_change() -> None:
    part = Part(JsonFile("pins.json"), "files")
    part.update({"a": "1", "b": "2"})
    part["c"] = "3"
    del part["a"]
    assert dict(Part(JsonFile("pins.json"), "files")) == {"b": "2", "c": "3"}
    assert dict(Part(JsonFile("pins.json"), "other")) == {}
    (state_directory() / "pins.json").write_text("{")
    with pytest.raises(HandrailError, match="damaged"):
        Part(JsonFile("pins.json"), "files")


WRITER = """
import sys
from pathlib import Path
from handrail.cli._config import accept
from handrail.cli._state_file import JsonFile, Part

name, start = sys.argv[1], Path(sys.argv[2])
part = Part(JsonFile("pins.json"), "files")
print("ready", flush=True)
while not start.exists():
    pass
for number in range(40):
    accept(Path(f"/{name}/{number}/handrail.toml"), b"x")
    part[f"{name} {number}"] = "hash"
"""


def test_nothing_that_two_processes_accept_at_once_is_lost(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER]
    start = tmp_path / "start"
    with ExitStack() as stack:
        writers = [
            stack.enter_context(subprocess.Popen([*command, name, str(start)], stdout=subprocess.PIPE))
            for name in ("one", "other")
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        start.touch()
        assert [writer.wait(100) for writer in writers] == [0, 0]
    assert len(JsonFile("accepted.json")) == 80
    assert len(Part(JsonFile("pins.json"), "files")) == 80
    assert sorted(os.listdir(state_directory())) == ["accepted.json", "pins.json"]


def test_a_command_that_is_a_relative_path_lies_beside_the_file_that_names_it(tmp_path: Path) -> None:
    text = '[mcp.servers.a]\ncommand = "./bin/server"\nargs = ["./x"]\ncwd = "sub"\n'
    [entry] = servers_in(text.encode(), tmp_path / "handrail.toml").values()
    options = entry.options("/project")
    assert options["command"] == [f"{tmp_path}/./bin/server", "./x"]
    assert options["cwd"] == "/project/sub"
    [named] = servers_in(b'[mcp.servers.a]\ncommand = "npx"\n', tmp_path / "handrail.toml").values()
    assert named.options("/project")["command"] == ["npx"]
    assert named.options("/project")["cwd"] == "/project"


@pytest.mark.parametrize("wrong", ['headers = "Bearer s-1"', 'headers = ["s-1"]', "url = 5", 'env = "s-1"'])
def test_what_may_be_secret_is_not_repeated_where_it_is_refused(wrong: str) -> None:
    address = "" if wrong.startswith("url") else 'url = "https://s-1.example"\n'
    with pytest.raises(HandrailError, match="write") as refused:
        servers_in(f"[mcp.servers.a]\n{address}{wrong}\n".encode(), HERE)
    assert "s-1" not in str(refused.value)
    secret = ServerEntry("a", url="https://s-1", headers={"A": "s-1"}, env={"B": "s-1"})
    assert "s-1" not in repr(secret)


def test_the_common_json_is_imported() -> None:
    text = """{"mcpServers": {
        "My Server!": {"command": "npx", "args": ["-y", "x"], "env": {"A": "b \\"quoted\\""}, "cwd": "/x",
                       "disabled": false},
        "web": {"type": "http", "url": "https://x", "headers": {"K": "v"}},
        "gemini": {"httpUrl": "https://y"}}}"""
    found, left_out = common_servers(text.encode(), Path("mcp.json"))
    assert left_out == []
    assert found["My-Server"] == ServerEntry("My-Server", "npx", ["-y", "x"], {"A": 'b "quoted"'}, cwd="/x")
    assert found["gemini"].url == "https://y"
    again = servers_in("".join(map(as_toml, found.values())).encode(), HERE)
    assert again == found
    assert common_servers(b'{"servers": {"a": {"command": "x"}}}', HERE)[0]["a"].command == "x"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        "\udcff",
        "[" * 100_000,
        '{"mcpServers": []}',
        '{"mcpServers": {"a": 1}}',
        '{"mcpServers": {"a": {}}}',
        '{"mcpServers": {"a": {"command": ["x"]}}}',
        '{"mcpServers": {"a": {"command": "x", "env": {"PORT": 1}}}}',
    ],
)
def test_json_that_describes_no_servers_is_refused(text: str) -> None:
    with pytest.raises(HandrailError, match=r"mcp\.json"):
        common_servers(text.encode("utf-8", "surrogateescape"), Path("mcp.json"))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ('{"command": "x", "disabled": true}', "turned off"),
        ('{"url": "https://x", "enabled": false}', "turned off"),
        ('{"type": "sse", "url": "https://x"}', "transport sse"),
        ('{"command": "x", "env": {"KEY": "${input:key}"}}', "${input:key} is filled in by the other program"),
    ],
)
def test_an_imported_server_that_cannot_be_used_as_it_is_is_left_out_with_its_reason(entry: str, reason: str) -> None:
    found, [said] = common_servers(f'{{"mcpServers": {{"a": {entry}, "b": {{"command": "y"}}}}}}'.encode(), HERE)
    assert list(found) == ["b"]
    assert reason in said


def test_what_other_programs_write_in_their_own_way_is_imported() -> None:
    text = """\ufeff{"mcpServers": {"a": {"type": "stdio", "command": "x", "args": null, "env": null, "url": null,
        "autoApprove": ["y"], "sandbox": "off", "trust": true, "env": {"A": "${env:HOME}", "B": "${C:-d}"}}}}"""
    assert common_servers(text.encode(), HERE) == (
        {"a": ServerEntry("a", "x", env={"A": "${env:HOME}", "B": "${C:-d}"})}, []
    )  # fmt: skip


def test_a_link_to_a_file_that_was_accepted_elsewhere_is_not_accepted(workspace: Path, tmp_path: Path) -> None:
    """A command could place such a link, and its own program where the accepted file names one by a relative path."""
    other = tmp_path / "other"
    other.mkdir()
    file = other / "handrail.toml"
    file.write_text('[mcp.servers.a]\ncommand = "sh"\nargs = ["./server.sh"]\n')
    accept(file, file.read_bytes())
    assert read_settings(str(other)).servers
    (workspace / "handrail.toml").symlink_to(file)
    assert not read_settings(str(workspace)).servers
    (tmp_path / "alias").symlink_to(other)
    assert read_settings(str(tmp_path / "alias")).servers  # the same directory by another name


def test_the_servers_of_a_pyproject_count_once_it_is_accepted(workspace: Path) -> None:
    (workspace / "pyproject.toml").write_text('[tool.handrail.mcp.servers.files]\ncommand = "npx"\n')
    before = read_settings(str(workspace))
    assert (dict(before.servers), "mcp.servers.files" in before.notes[0]) == ({}, True)
    for path, content, _ in to_accept(str(workspace)):
        accept(path, content)
    assert [entry.command for entry in read_settings(str(workspace)).servers.values()] == ["npx"]
    (workspace / "pyproject.toml").write_text('[tool.handrail.mcp.servers.files]\ncommand = "curl"\n')
    assert not read_settings(str(workspace)).servers, "it has changed"


@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "large"])
def test_what_is_no_ordinary_file_is_not_read_and_cannot_be_accepted(workspace: Path, kind: str) -> None:
    file = workspace / "handrail.toml"
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "device":
            file.symlink_to("/dev/zero")
        case "directory":
            file.mkdir()
        case _:
            file.write_text("#" * (2 << 20))
    assert "handrail.toml" in read_settings(str(workspace)).notes[0]
    with pytest.raises(HandrailError, match=r"handrail\.toml"):
        list(to_accept(str(workspace)))


def test_every_text_that_json_can_hold_is_written_as_toml() -> None:
    entry = ServerEntry(
        "a", command="x", args=["\U0001f600", "\x7f", "\x00\n\t", '"\\', "\u2028"], env={"\U0001f600": "1"}
    )
    assert servers_in(as_toml(entry).encode(), HERE) == {"a": entry}


def test_imported_servers_have_names_that_can_be_used_and_none_is_lost() -> None:
    text = '{"mcpServers": {"a.b": {"command": "x"}, "a b": {"command": "y"}, "1st": {"command": "z"}}}'
    found, _ = common_servers(text.encode(), HERE)
    assert sorted(entry.command or "" for entry in found.values()) == ["x", "y", "z"]
    for name, entry in found.items():
        assert entry.name == name
        connect(name, command="x")
