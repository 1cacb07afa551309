"""A rule is parsed and its examples are checked when it is created."""

import pytest

from handrail import HandrailError, Policy, Rule


@pytest.mark.parametrize(
    ("rule", "match", "no_match", "culprit"),
    [
        ("bash(git *)", ["git status"], ["rm -rf /"], None),
        ("bash(git *)", ["git status", "rm -rf /"], [], "rm -rf /"),
        ("bash(git *)", [], ["rm x", "git log"], "git log"),
        ("bash(git *)", ["git status; ls"], [], "git status; ls"),
        ("bash(git *)", ["bash(git status)"], ["bash(svn up)", "sh(git status)"], None),
        ("bash(command=git *)", ["git status"], ["git a; b"], None),
        ("bash(cwd=./src/**)", ["src/a"], ["lib/a"], None),
        ("bash(MODE=x make)", ["MODE=x make"], ["make"], None),
        ("read(./secrets/**)", ["secrets/key", "./secrets/../secrets//key"], ["secret/key", "x/secrets/key"], None),
        ("read(./secrets/**)", ["secrets/../public"], [], "secrets/../public"),
        ("read(src/*)", ["src/a"], ["src/a/b"], None),
        ("read(src/*)", ["src/a/b"], [], "src/a/b"),
        ("write(path=./src/**)", ["src/a", "write(path=src/b)"], ["lib/a"], None),
        ("fetch(https://example.com/*)", ["https://example.com/a/b"], ["https://example.org/a"], None),
        ("mcp_*", ["mcp_files"], ["bash"], None),
        ("mcp_*", ["bash"], [], "bash"),
        ("risk:high", ["high"], ["safe"], None),
        ("effect:writes", ["reads"], [], "reads"),
    ],
)
def test_an_example_that_comes_out_otherwise_is_refused_naming_rule_and_example(
    rule: str, match: list[str], no_match: list[str], culprit: str | None
) -> None:
    if culprit is None:
        assert Policy(deny=[Rule(rule, match=match, no_match=no_match)]).rules.deny[0].match == tuple(match)  # type: ignore[arg-type]
        return
    with pytest.raises(HandrailError) as refused:
        Rule(rule, match=match, no_match=no_match)  # type: ignore[arg-type]
    assert repr(rule) in str(refused.value)
    assert repr(culprit) in str(refused.value)


@pytest.mark.parametrize(
    "wrong", ["", "two words", "risk:huge", "effect:explodes", "bash(", "bash)x", "a.b", "bash([z-a])", "x" * 65]
)
def test_a_text_that_is_not_a_rule_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(HandrailError, match="rule"):
        Policy(allow=[wrong])


def test_a_rule_is_a_string() -> None:
    with pytest.raises(HandrailError, match=r"a string such as .*, not 7"):
        Rule(7)  # type: ignore[arg-type]
