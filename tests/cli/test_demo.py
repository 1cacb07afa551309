"""The demo runs without a person, shows every scene it promises, and ends well only where each came out as it must."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.cli._demo_story import SECRET
from handrail.drivers._cgroup import can_keep
from tests.cli.terminal import ENV, MAIN, plain, terminal


def demo(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return plain("demo", *words, cwd=cwd)


def scene(shown: str, title: str) -> str:
    """What is between this title and the next empty line."""
    found = re.search(rf"^{title}: .*?(?=^$)", shown, re.MULTILINE | re.DOTALL)
    assert found, f"{title} is not in {shown}"
    return found[0]


def calls(text: str) -> list[tuple[str, str]]:
    """Of each call of a scene, in the order shown: its line, and what came of it."""
    found = re.findall(r"^  [✓✗] (.*?)\n((?:    .*\n?)*)", text, re.MULTILINE)
    return [(line, told.strip()) for line, told in found]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> "subprocess.CompletedProcess[str]":
    return demo("--yes", cwd=tmp_path_factory.mktemp("demo"))


def test_it_ends_well_and_nothing_is_amiss(ran: "subprocess.CompletedProcess[str]") -> None:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    assert ran.stdout.endswith("Nothing is left running.\n")
    assert "WRONG:" not in ran.stdout


def test_it_begins_with_the_report_of_a_jail(ran: "subprocess.CompletedProcess[str]") -> None:
    head, enforced, rest = ran.stdout.splitlines()[:3]
    assert "sandbox jail · network none" in head
    assert enforced.strip().startswith("enforced: ")
    walls = {"file_isolation", "env_isolation", "process_isolation", "network_isolation", "no_privileges", "tree_kill"}
    assert walls <= set(enforced.partition(": ")[2].split(", "))
    assert "limit_memory" in enforced
    counted = os.geteuid() != 0 or can_keep("processes")
    assert rest.strip() == ("" if counted else "advisory: limit_processes")


def test_an_escape_to_a_file_and_to_the_network_is_refused(ran: "subprocess.CompletedProcess[str]") -> None:
    (file, no_file), (network, no_network) = calls(scene(ran.stdout, "Walls"))
    assert "secret.txt" in file
    assert " · exit 1 · " in file
    assert no_file.endswith("No such file or directory")
    assert "/dev/tcp/127.0.0.1/" in network
    assert " · exit 1 · " in network
    assert "Connection refused" in no_network
    assert SECRET not in ran.stdout


def test_a_server_started_as_a_job_is_called_by_the_next_command(ran: "subprocess.CompletedProcess[str]") -> None:
    jobs = scene(ran.stdout, "Jobs")
    (started, _), *others = calls(jobs)
    assert "job-1 runs in the background" in jobs
    assert "http.server 8765" in started
    told = {line.split()[0]: told for line, told in others}
    assert told["bash"].split("\n")[0] == "200"
    assert "job-1  ended, exit " in told["process"], "it is stopped"


@pytest.mark.parametrize(
    ("title", "told"),
    [
        ("Arguments", ["invalid_args", "tool_not_found", "42"]),
        ("People", ["publish asks", "published 12 characters"]),
    ],
)
def test_the_other_scenes_are_shown(title: str, told: list[str], ran: "subprocess.CompletedProcess[str]") -> None:
    text = scene(ran.stdout, title)
    for words in told:
        assert words in text, words
    assert "Limits:" not in ran.stdout, "that is for --all"
    assert "What was enforced:\n  enforced: " in ran.stdout


def test_all_adds_three_scenes_and_a_picture_is_written(tmp_path: Path) -> None:
    ran = demo("--yes", "--all", "--picture", "demo.svg", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    limits = scene(ran.stdout, "Limits")
    assert "· timeout · 1" in limits
    assert "The command ran longer than 1 s" in limits
    assert "The answer was cut from 500,000" in limits
    assert "read_artifact" in ran.stdout
    assert "sum.py has 1 line." in ran.stdout
    assert "</svg>" in (tmp_path / "demo.svg").read_text()


def test_a_person_answers_the_approval(tmp_path: Path) -> None:
    with terminal("demo", cwd=tmp_path) as screen:
        screen.wait_for("kip? ")
        screen.wait_shown("May publish run?")
        screen.type("n\nnot today\n")
        assert screen.end() == 0
    assert "user_denied" in screen.shown


def test_a_child_that_outlives_a_plain_timeout_dies_here(ran: "subprocess.CompletedProcess[str]") -> None:
    assert "subprocess.run(timeout=1): the child is ALIVE" in ran.stdout
    assert re.search(r"handrail, timeout=1: +the child is dead, ended_by timeout, exit 124", ran.stdout)


def without_namespaces(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run `handrail` where no jail can be had: the system makes no user namespaces any more."""
    line = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", line, "sh", sys.executable, "-c", MAIN, *words]
    return subprocess.run(
        command, cwd=cwd, env=ENV, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_where_no_jail_can_be_had_it_says_so_and_goes_on_to_its_end(tmp_path: Path) -> None:
    """It is the control of the walls too: the same escapes succeed."""
    weak = without_namespaces("demo", "--yes", cwd=tmp_path)
    assert (weak.returncode, weak.stderr) == (0, ""), weak.stdout + weak.stderr
    why, instead = weak.stdout.splitlines()[:2]
    assert why.startswith("No jail can be had here: ")
    assert "user namespaces are refused here" in why
    assert instead == "The demo goes on on this machine, without isolation."
    assert "sandbox host · network full" in weak.stdout
    assert [told for _, told in calls(scene(weak.stdout, "No walls here"))] == [SECRET] * 2
    assert "publish asks" in scene(weak.stdout, "People"), "a person is asked here too"
    assert "absent: file_isolation" in weak.stdout.rpartition("What was enforced:")[2]
    assert weak.stdout.endswith("Nothing is left running.\n")
