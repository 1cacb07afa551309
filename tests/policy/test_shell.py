"""A rule on commands means one simple command; whatever else a line is dressed up as, a person is asked."""

import pytest

from handrail import Policy
from handrail.policy._shell import shell_forbids, shell_matches, simple_command
from handrail.policy.patterns import escape
from tests.policy.judging import commands, verdicts

pytestmark = pytest.mark.anyio


NOT_SIMPLE = [
    "git status; rm x", "git status;rm x", "git status && rm x", "git status || rm x", "git status | sh",
    "git status & rm x",
    "git status\nrm x", "git status\r\nrm x", "git $(rm x)", "git `rm x`", 'git "$(rm x)"', 'git "`rm x`"', "git ${x}",
    "git $x", 'git "$x"', "git status > x", "git status >> x", "git log < x", "git <(rm x)", "git log 2>&1",
    "git <<< x",
    "git status # rm", "git {a,b}", "git st\\atus", "git status \\\nrm", "(git status)", "{ git status; }",
    "! git status",
    "FOO=1 git status", "PATH=. git status", "a[0]=1 git status", "A+=1 git status", "GIT_PAGER='sh -c x' git log",
    "env git status", "/usr/bin/env git status", "command git status", "exec git status", "eval git status",
    "sudo git status",
    "xargs git status", "nohup git status", "timeout 5 git status", "time git status", "/usr/bin/time git x",
    "sh -c 'git x'",
    "bash -c git", "busybox git", "nice git x", "find . -exec git {} +", "source git", ". git", "builtin git",
    "trap 'rm x' EXIT",
    "if git status", "[[ -f git ]]", "function git", "coproc git", "git 'unclosed", 'git "unclosed', "git $'a'",
    'git $"a"',
    "gi* status", "g?t status", "[g]it status", "~/git status", "", "   ", "#git", "git status\t-s",
    "git \x1b[2Kstatus",
    "git \u00a0status", "git\u2028status", "git status \u202e", "printf -v 'a[$(rm x)]' y", "test -v 'a[$(rm x)]'",
    "read 'a[`rm x`]'", "unset 'a[$(rm x)]'", "export 'a[$(rm)]=1'", "let 'a[$(rm x)]=1'", "mapfile -C rm -c 1 x",
    "/lib64/ld-linux-x86-64.so.2 /bin/rm x", "strace git status", "flock x git status", "git " + "x" * 200_000,
]  # fmt: skip


def test_only_one_simple_command_is_read() -> None:
    for line in NOT_SIMPLE:
        assert simple_command(line) is None, line[:60]
    for line, words in (
        ("git status", ["git", "status"]), ("  git   status ", ["git", "status"]),
        ("git 'a b' \"c d\"", ["git", "a b", "c d"]),
        ("'git' sta'tus'", ["git", "status"]), ("git log '$(x)'", ["git", "log", "$(x)"]), ("git x=1", ["git", "x=1"]),
        ("./git status", ["./git", "status"]), ("git add *.py", ["git", "add", "*.py"]),
        ("grep 'a|b;c' x", ["grep", "a|b;c", "x"]),
        ("git ''", ["git", ""]), ("git été", ["git", "été"]),
    ):  # fmt: skip
        assert simple_command(line) == words, line


async def test_an_allow_rule_means_one_simple_command_and_the_rest_is_asked_about() -> None:
    policy = Policy(allow=["bash(git *)", "bash(printf *)", "bash(make test)"])
    lines = [line for line in NOT_SIMPLE if line.strip()]
    found = await commands(policy, lines)
    assert set(found.values()) == {"asks"}, {line[:60] for line, verdict in found.items() if verdict != "asks"}
    for line, verdict in {
        "git status": "runs", "git 'status'": "runs", "'git' status": "runs", "git add *.py": "runs",
        "printf hello": "runs",
        "make test": "runs", "make  test": "runs", "make test2": "asks", "make": "asks", "git": "asks",
        "./git status": "asks",
        "/usr/bin/git status": "asks", "gitk x": "asks", "rm x": "asks", "make 'test; rm x'": "asks",
    }.items():  # fmt: skip
        assert (await commands(policy, [line]))[line] == verdict, line


async def test_unclear_lines_are_asked_about_even_where_the_mode_would_run_them_but_not_in_mode_open() -> None:
    line = "git status | wc"
    for mode, verdict in (("contained", "asks"), ("open", "runs")):
        assert await commands(Policy(allow=["bash(git *)"], mode=mode), [line]) == {line: verdict}  # type: ignore[arg-type]
    assert await commands(Policy(deny=["bash(rm *)"], mode="open"), [line]) == {line: "asks"}
    assert await commands(Policy(ask=["bash(rm *)"], mode="open"), [line]) == {line: "asks"}
    assert await commands(Policy(mode="open"), [line]) == {line: "runs"}


async def test_a_deny_rule_on_a_command_is_not_walked_around() -> None:
    policy = Policy(deny=["bash(rm *)", "bash(cat secrets/*)", "bash(/usr/bin/dd *)", 'bash(mv "a b" *)'], mode="open")
    denied = [
        "rm x", "rm -rf /", "rm   x", " rm x", "'rm' x", '"rm" x', "r'm' x", "/bin/rm x", "../../bin/rm x", "./rm x",
        "rm 'x'",
        "cat secrets/key", "cat 'secrets/key'", "cat secrets/'key'", "/bin/cat secrets/key", "dd if=x",
        "/bin/dd if=x", "rm *",
        "mv 'a b' c", 'mv "a b" c', "mv a' 'b c",
    ]  # fmt: skip
    found = await commands(policy, denied)
    assert set(found.values()) == {"denied"}, found
    unclear = [line.replace("git", "rm") for line in NOT_SIMPLE if line.strip()]
    unclear += [
        "cat sec*/key",
        "cat s?crets/key",
        "cat [s]ecrets/key",
        "cat ~/x",
        "echo $(rm x)",
        "x;rm y",
        "doas rm x",
    ]
    found = await commands(policy, unclear)
    assert set(found.values()) == {"asks"}, {line[:60] for line, verdict in found.items() if verdict != "asks"}
    control = ["ls", "ls *.py", "echo rm x", "cat public/key", "rmdir x", "git rm-like", "grep 'rm x' file"]
    found = await commands(policy, control)
    assert set(found.values()) == {"runs"}, found


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
