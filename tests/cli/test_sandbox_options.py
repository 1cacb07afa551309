"""What a person adds to a sandbox on the command line is there inside, and what cannot be read is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from handrail.cli._sandbox_options import read_mount, read_variable
from handrail.contract.driver import Mount
from handrail.contract.errors import HandrailError
from tests.cli.terminal import plain


def call(command: str, *words: str, cwd: Path, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return plain("call", "bash", json.dumps({"command": command}), *words, cwd=cwd, env=env)


def result(ran: "subprocess.CompletedProcess[str]") -> Any:
    return json.loads(ran.stdout)["result"]


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("/a", Mount("/a")),
        ("/a:rw", Mount("/a", None, True)),
        ("/a:ro", Mount("/a")),
        ("/a:/b", Mount("/a", "/b")),
        ("/a:/b:rw", Mount("/a", "/b", True)),
        ("rw", Mount(os.path.abspath("rw"))),
        ("a/../b", Mount(os.path.abspath("b"))),
        ("~/a", Mount(os.path.expanduser("~/a"))),
    ],
)
def test_a_mount_is_read_as_it_is_written(text: str, mount: Mount) -> None:
    assert read_mount(text) == mount


@pytest.mark.parametrize(
    "text", ["", ":", "/a:", ":/b", ":rw", "/a:b", "/a:/b:/c", "/a:/b:wr", "/a:rw:rw", "/a:/b:rw:"]
)
def test_a_mount_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(HandrailError, match="--mount"):
        read_mount(text)


def test_a_variable_is_given_or_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDRAIL_GIVEN", "here")
    assert read_variable("A=b=c") == ("A", "b=c")
    assert read_variable("A=") == ("A", "")
    assert read_variable("HANDRAIL_GIVEN") == ("HANDRAIL_GIVEN", "here")
    for wrong in ("=x", "", "HANDRAIL_NOT_SET_ANYWHERE"):
        with pytest.raises(HandrailError, match="--env"):
            read_variable(wrong)


def test_mounts_and_variables_are_inside(tmp_path: Path) -> None:
    for name in ("work", "data", "kept"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "file").write_text("from outside")
    command = "cat /data/file; touch /data/x 2>/dev/null || echo ' read-only'; echo $A$B > /kept/written"
    options = ["--mount", f"{tmp_path}/data:/data", "--mount", "../kept:/kept:rw", "--env", "A=1", "--env", "B"]
    ran = call(command, *options, cwd=tmp_path / "work", env={"B": "2", "C": "3"})
    assert ran.returncode == 0, ran
    assert result(ran)["stdout"] == "from outside read-only\n"
    assert (tmp_path / "kept" / "written").read_text() == "12\n"
    without = call("echo [$A$B$C]; ls /data /kept", cwd=tmp_path / "work", env={"B": "2"})
    assert "[]" in result(without)["stdout"], "the control: nothing of it is there unless it was asked for"
    assert result(without)["stderr"].count("No such file") == 2


def test_the_persons_own_name_is_in_the_commits_that_commands_make(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / ".gitconfig").write_text('[user]\n\tname = Ada "L"\n\temail = ada@example.org\n[core]\n\tpager = x\n')
    line = "git init -q . && git commit -q --allow-empty -m x && git log -1 --format='%an %ae'; cat ~/.gitconfig"
    said = result(call(line, cwd=tmp_path / "work", env={"HOME": str(tmp_path)}))
    assert said["stdout"].startswith("Ada L ada@example.org\n"), said
    assert "pager" not in said["stdout"], "nothing else of it"
    nobody = result(call("cd $(mktemp -d) && " + line, cwd=tmp_path / "work", env={"HOME": "/nonexistent"}))
    assert "Ada" not in nobody["stdout"], "the control"
    elsewhere = call("echo $HOME", "--env", "HOME=/x", cwd=tmp_path / "work", env={"HOME": str(tmp_path)})
    assert result(elsewhere)["stdout"] == "/x\n", "a HOME of one's own needs no other option"


def test_what_cannot_be_read_or_does_not_exist_is_one_line(tmp_path: Path) -> None:
    for words in (["--mount", "/a:b"], ["--mount", "/no/such/directory"], ["--env", "HANDRAIL_NOT_SET_ANYWHERE"]):
        ran = call("true", *words, cwd=tmp_path)
        assert ran.returncode != 0
        assert ran.stdout == ""
        assert ran.stderr.startswith("handrail: ")
        assert ran.stderr.count("\n") == 1, ran.stderr


@pytest.mark.parametrize("place", ["outside", "workspace"])
def test_the_active_virtual_environment_comes_first_in_the_sandbox(tmp_path: Path, place: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    venv = (work if place == "workspace" else tmp_path) / "mine"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    line = "command -v python3; python3 -c 'import sys; print(sys.prefix)'"
    for driver in (["--driver", "jail"], ["--driver", "host", "--allow-weaker", "--yes"]):
        done = call(line, *driver, cwd=work, env={"VIRTUAL_ENV": str(venv)})
        assert done.stdout.count(str(venv)) >= 2, done
        assert str(venv) not in call(line, *driver, cwd=work, env={"VIRTUAL_ENV": ""}).stdout


def test_the_workspaces_own_environment_beats_the_active_one(tmp_path: Path) -> None:
    """Whoever installed Handrail in an environment has that one active; it is not the project's."""
    work = tmp_path / "work"
    for venv in (work / ".venv", tmp_path / "active"):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    for driver in (["--driver", "jail"], ["--driver", "host", "--allow-weaker", "--yes"]):
        done = call("command -v python3", *driver, cwd=work, env={"VIRTUAL_ENV": str(tmp_path / "active")})
        assert result(done)["stdout"] == f"{work}/.venv/bin/python3\n", done


def test_an_environment_made_later_comes_first_though_handrails_own_is_active(tmp_path: Path) -> None:
    made = "python3 -m venv --without-pip .venv && hash -r && command -v python3"
    done = call(made, cwd=tmp_path, env={"VIRTUAL_ENV": sys.prefix})
    assert result(done)["stdout"] == f"{tmp_path}/.venv/bin/python3\n", done
