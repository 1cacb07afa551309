"""A rule on commands is about every command of a line, whatever the line is dressed up as."""

import ast
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import Policy, Session, builtin_tools, open_sandbox
from handrail.policy._shell import shell_covers, shell_forbids, shell_matches
from handrail.schema.globs import escape
from tests.policy.judging import commands, verdicts

pytestmark = pytest.mark.anyio


def lines_of(part: str, file: str = "shell-lines.txt") -> list[str]:
    """The lines of one part of a file, which were tried from outside."""
    found: dict[str, list[str]] = {}
    now = ""
    for row in (Path(__file__).parent / file).read_text().splitlines():
        if row.startswith("# Part "):
            now = row.removeprefix("# Part ").partition(":")[0]
        elif not row.startswith("#"):
            found.setdefault(now, []).append(ast.literal_eval(row))
    return found[part]


ONLY_GIT = ["git status \\; touch PWN", "git *", "git [a]"]
"""Lines of part 1 with no other command than git."""
OWN_WAY = [
    "find . -name victim -delete", "cp /bin/rm x && ./x victim", "unlink victim", "truncate -s0 victim",
    "perl -e 'unlink q(victim)'", "git clean -fx", "tar cf /tmp/x.tar --remove-files victim",
    "install /dev/null victim", "sed -i d victim", "ed", "RM victim", "awk 'BEGIN{\"rm victim\"|getline}'",
    "expect -c 'spawn rm victim'", "less mk", "newgrp", "git -c alias.x='!rm victim' x", "BASH_ENV=mk bash -c :",
    "enable -f x rm", "printf x | tee victim", ">victim",
    "newuidmap rm", "pivot rm", "caller rm", "local x",
    ". ./mk3", "bash mk3", "./mk3",
]  # fmt: skip
"""Lines of part 2 in which another program deletes, or runs rm by its own language or from a file."""


async def test_an_allow_rule_lets_no_second_program_run_unasked() -> None:
    found = await commands(Policy(allow=["bash(git *)"], mode="ask"), lines_of("1"))
    assert [line for line, verdict in found.items() if verdict != "asks"] == ONLY_GIT


async def test_a_deny_rule_finds_a_command_wherever_a_line_has_it() -> None:
    found = await commands(Policy(deny=["bash(rm *)"], mode="open"), lines_of("2"))
    assert {line for line, verdict in found.items() if verdict == "runs"} == set(OWN_WAY)


async def test_one_deny_rule_does_not_make_every_compound_line_ask() -> None:
    lines = lines_of("3")
    async with open_sandbox() as sandbox:
        await sandbox.write_text("src/a", "foo")
        policy = Policy(deny=["bash(rm *)"])
        async with Session(builtin_tools(), sandbox=sandbox, policy=policy) as session:
            results = {line: await session.call("bash", {"command": line}) for line in [*lines, "cd src && rm x"]}
    refused = [line for line, result in results.items() if not result.ok and result.kind == "rejected"]
    assert refused == ["cd src && rm x"]


async def test_what_a_later_attack_found_is_asked_about_or_denied_and_ordinary_lines_run() -> None:
    file = "shell-lines-attacked.txt"
    allowed = await commands(Policy(allow=["bash(git *)"], mode="ask"), lines_of("1", file))
    assert {line for line, verdict in allowed.items() if verdict != "asks"} == set()
    denied = await commands(Policy(deny=["bash(rm *)"], mode="open"), lines_of("2", file))
    assert {line for line, verdict in denied.items() if verdict == "runs"} == set()
    ordinary = await commands(Policy(deny=["bash(rm *)"], mode="open"), lines_of("3", file))
    assert {line for line, verdict in ordinary.items() if verdict != "runs"} == set()


MORE_THAN_WORDS = [
    "git status > x", "git status >> x", "git log < x", "git log 2> x", "git log &> x", "git <<< x", "git <<E\nx\nE",
    "git status # rm", "FOO=1 git status", "PATH=. git status", "a[0]=1 git status", "A+=1 git status",
    "GIT_PAGER='sh -c x' git log", "PATH=.; git status", "for PATH in .; do git status; done",
    "git() { :; }; git x", "function git { :; }", "eval git status", "env git status", "/usr/bin/env git status",
    "command git status", "exec git status", "sudo git status", "xargs git status", "nohup git status",
    "timeout 5 git status", "time git status", "sh -c 'git x'", "bash -c git", "find . -exec git {} +", "source git",
    "trap 'rm x' EXIT", "[[ -f git ]]", "[ -f git ]", "(( git ))", "coproc git", "git 'unclosed", 'git "unclosed',
    "gi* status", "g?t status", "[g]it status", "~/git status", "$git status", "$(git) status", "#git",
    "git \x1b[2Kstatus", "git \u00a0status", "git\u2028status", "git status \u202e", "git status\r\n",
    "printf -v 'a[$(rm x)]' y", "test -v 'a[$(rm x)]'", "read 'a[`rm x`]'", "export 'a[$(rm)]=1'",
    "let 'a[$(rm x)]=1'", "mapfile -C rm -c 1 x", "strace git status", "git " + "x" * 200_000,
    "git status | sh", "git $(rm x)", "git <(rm x)", "git status && rm x", "(git status; rm x)",
    "if git status; then rm x; fi", "git " + "$(" * 3_000 + ")" * 3_000,
]  # fmt: skip


async def test_an_allow_rule_covers_commands_with_their_words_and_the_rest_is_asked_about() -> None:
    policy = Policy(allow=["bash(git *)", "bash(printf *)", "bash(wc *)", "bash(make test)", "bash(pwd)"])
    found = await commands(policy, MORE_THAN_WORDS)
    assert {line[:60] for line, verdict in found.items() if verdict != "asks"} == set()
    for line, verdict in {
        "git status": "runs", "git 'status'": "runs", "'git' status": "runs", "git add *.py": "runs",
        "printf hello": "runs", "make test": "runs", "make  test": "runs", "make test2": "asks", "make": "asks",
        "git": "asks", "./git status": "asks", "/usr/bin/git status": "asks", "gitk x": "asks", "rm x": "asks",
        "make 'test; rm x'": "asks", "git log 2>&1": "runs", "git log >/dev/null": "runs", "git log | wc -l": "runs",
        "git log 2>/dev/null | wc -l && pwd": "runs", "git log | wc -l; rm x": "asks", "(git status)": "runs",
        "{ git status; }": "runs", "! git status": "runs", "if git diff --quiet; then pwd; fi": "runs",
        "git log $(pwd)": "runs", "git log $(rm x)": "asks", 'git log "$HOME"': "runs", "git add $x": "runs",
        "make $x": "asks", "git status &": "runs", "git\nstatus": "asks", "git log\nmake test": "runs",
        "git status\t-s": "runs",
    }.items():  # fmt: skip
        assert (await commands(policy, [line]))[line] == verdict, line


async def test_the_parts_of_a_line_may_be_allowed_by_different_rules_and_each_must_be() -> None:
    names = ["a", "b", "c", "d"]
    line = "a && b | c; a $(d)"
    rules = [f"bash({name}{end})" for name in names for end in ("", " *")]
    assert await commands(Policy(allow=rules, mode="ask"), [line]) == {line: "runs"}
    for missing in names:
        fewer = [rule for rule in rules if not rule.startswith(f"bash({missing}")]
        assert await commands(Policy(allow=fewer, mode="ask"), [line]) == {line: "asks"}, missing


def test_what_a_variable_holds_is_covered_only_by_a_star() -> None:
    for glob, line in (
        ("git log *", "git log $x"),
        ("git log*", "git log $x"),
        ("git *", "git $x log"),
        ("ls *.py", 'ls "$x".py'),
        ("git log * --stat", "git log $x --stat"),
    ):
        assert shell_covers([glob], line) is True, (glob, line)
    for glob, line in (
        ("git log ?", "git log $x"),
        ("git log ?*", "git log $x"),
        ("git *[!x]", "git ab$x"),
        ("git log", "git log $x"),
        ("git * log", "git log $x"),
    ):
        assert shell_covers([glob], line) is not True, (glob, line)


async def test_unclear_lines_are_asked_about_even_where_the_mode_would_run_them_but_not_in_mode_open() -> None:
    line = "git status > x"
    for mode, verdict in (("contained", "asks"), ("open", "runs")):
        assert await commands(Policy(allow=["bash(git *)"], mode=mode), [line]) == {line: verdict}  # type: ignore[arg-type]
    for line in ("$x y", "git status '"):
        assert await commands(Policy(deny=["bash(rm *)"], mode="open"), [line]) == {line: "asks"}
        assert await commands(Policy(ask=["bash(rm *)"], mode="open"), [line]) == {line: "asks"}
        assert await commands(Policy(mode="open"), [line]) == {line: "runs"}


async def test_a_deny_rule_on_a_command_is_not_walked_around() -> None:
    policy = Policy(deny=["bash(rm *)", "bash(cat secrets/*)", "bash(/usr/bin/dd *)", 'bash(mv "a b" *)'], mode="open")
    denied = [
        "rm x", "rm -rf /", "rm   x", " rm x", "'rm' x", '"rm" x', "r'm' x", "/bin/rm x", "../../bin/rm x", "./rm x",
        "rm 'x'", "cat secrets/key", "cat 'secrets/key'", "cat secrets/'key'", "/bin/cat secrets/key", "dd if=x",
        "/bin/dd if=x", "rm *", "mv 'a b' c", 'mv "a b" c', "mv a' 'b c", "rm $x", "x;rm y", "echo $(rm x)",
        "echo `rm x`", "cat <(rm x)", "x=$(rm x)", "if true; then rm x; fi", "for f in a; do rm $f; done", "rm x > y",
        "A=1 rm x", "doas rm x", "env A=1 rm x", "nice -n 5 rm x", "timeout 5s rm x", "sudo rm x", "time rm x",
        "bash -c 'rm x'", "bash -o pipefail -ec 'rm x'", "sh -c 'sh -c \"rm x\"'", "eval 'rm x'", "eval rm x",
        "bash <<< 'rm x'", "bash <<'E'\nrm x\nE", "ls | xargs rm", "find . -exec rm {} +", "trap 'rm x' EXIT",
        "case a in a) rm x;; esac", "f() { rm x; }; f", "! rm x", "tini -- rm x", "dpkg-architecture -c rm x",
        "dbus-run-session -- rm x",
        "echo ${x:-$(rm x)}", "(( $(rm x) ))", "[[ $(rm x) ]]", "cat <<E\n$(rm x)\nE", "while read l; do rm $l; done",
    ]  # fmt: skip
    found = await commands(policy, denied)
    assert {line for line, verdict in found.items() if verdict != "denied"} == set()
    unclear = [
        "cat sec*/key", "cat s?crets/key", "cat [s]ecrets/key", "cat ~/x", "cat $x", "$x y", "r$x y", "$(echo rm) x",
        "sudo -u root rm x", "logsave log rm x", "sg root 'rm x'", "split --filter='rm x' y", "echo rm x | sh",
        "bash -c \"$x\"", "eval $x", "bash <(echo rm x)", "source <(echo rm x)", "x='a[$(rm x)]'; echo $((x))",
        "alias ll='rm x'", "hash -p /bin/rm ls", "zip a b -TT 'rm x'",
        "unheard-of-wrapper rm x", "unheard-of-wrapper 'rm x'", "find . -exec {} +", "{rm,x}", "rm 'unclosed",
        "PS4='$(rm x)'; set -x; true", "bash -c 'bash -c \"$x\"'",
    ]  # fmt: skip
    found = await commands(policy, unclear)
    assert {line for line, verdict in found.items() if verdict != "asks"} == set()
    control = [
        "ls", "ls *.py", "echo rm x", "cat public/key", "rmdir x", "git rm x", "grep 'rm x' file", "docker rm x",
        "find . -name rm", "git commit -m 'rm x'", "echo $x", "x=1; echo $x", "for f in *; do echo $f; done",
        "env FOO=1 pytest", "timeout 5 make", "bash -c 'echo hi'", "ls | xargs head", "bash script.sh", "man rm",
    ]  # fmt: skip
    found = await commands(policy, control)
    assert {line for line, verdict in found.items() if verdict != "runs"} == set()


async def test_a_line_that_is_the_rule_to_the_letter_is_meant_whatever_it_is() -> None:
    line = "git add [*] && git commit -m 'x [1]' | tee log"
    assert shell_matches(escape(line), line) is True
    assert shell_forbids(escape(line), line) is True
    assert await commands(Policy(allow=[f"bash({escape(line)})"]), [line]) == {line: "runs"}
    assert await commands(Policy(deny=[f"bash({escape(line)})"], mode="open"), [line]) == {line: "denied"}
    assert await commands(Policy(allow=[f"bash({escape(line)})"]), [line + " "]) == {line + " ": "asks"}


async def test_a_command_is_read_as_one_in_every_tool_that_has_one() -> None:
    for tool, field in (("shell", "command"), ("run", "cmd"), ("bash", "script")):
        policy = Policy(allow=[f"{tool}(git *)"], mode="ask")
        found = await verdicts(policy, tool, ["git status", "git status; rm x"], field=field, effects=["executes"])
        assert list(found.values()) == ["runs", "asks"], tool


PIECES = st.sampled_from(
    ["good", "bad", "x", " ", " ", ";", "&&", "||", "|", "&", "\n", "(", ")", "{ ", "; }", "$(", ")", "`", "'", '"',
     "\\", "$x", "${x}", "$'", "#", "<<E\n", "\nE\n", "<<<", ">/dev/null", "2>&1", "if ", "; then ", "; fi", "! ", "<(",
     "a=1 ", "*", "{", ",", "}", "~", "$((", "))", "[[", "]]", "case x in x) ", ";; esac", "for i in x; do ", "; done",
     "eval "]
)  # fmt: skip


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two programs, `good` and `bad`, that write their own name into a file."""
    place = tmp_path_factory.mktemp("stubs")
    for name in ("good", "bad"):
        stub = place / name
        stub.write_text(f"#!/bin/sh\necho {name} >> {place}/ran\n")
        stub.chmod(0o700)
    return place


def ran(line: str, stubs: Path) -> set[str]:
    """The programs that bash really runs for a line."""
    (stubs / "ran").write_text("")
    subprocess.run(
        ["/bin/bash", "-c", line], cwd=stubs, env={"PATH": str(stubs)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=30,
    )  # fmt: skip
    return set((stubs / "ran").read_text().split())


@settings(max_examples=200, deadline=None)
@given(pieces=st.lists(PIECES, min_size=1, max_size=9))
def test_a_line_that_a_rule_covers_runs_no_other_program_in_bash(pieces: list[str], stubs: Path) -> None:
    line = "good " + "".join(pieces)
    if shell_covers(["good *", "good"], line):
        assert ran(line, stubs) <= {"good"}, line
    if shell_forbids("bad *", f"{line}") is False and shell_forbids("bad", line) is False:
        assert "bad" not in ran(line, stubs), line


def test_bash_runs_the_other_program_of_a_line_that_is_not_covered(stubs: Path) -> None:
    assert ran("good; bad", stubs) == {"good", "bad"}
    assert not shell_covers(["good *", "good"], "good; bad")
    assert shell_forbids("bad", "good; bad") is True
