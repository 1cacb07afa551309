"""Rules keep their word: examples are checked when they are made, globs and values mean what they say."""

from time import process_time

import pytest

from handrail import HandrailError, Policy, Rule, Session, Tool
from handrail.policy.glob import escape, glob_matches, literal, path_matches
from tests.gates.judging import verdicts

pytestmark = pytest.mark.anyio


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
def test_what_is_no_rule_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(HandrailError, match="rule"):
        Policy(allow=[wrong])


def test_a_list_of_rules_is_a_list() -> None:
    with pytest.raises(HandrailError, match=r"Policy.deny is a list"):
        Policy(deny="bash")
    with pytest.raises(HandrailError, match="not int"):
        Rule(7)  # type: ignore[arg-type]


def test_globs_mean_what_they_say() -> None:
    for glob, text, wanted in (
        ("a*b*c", "a1b2c", True), ("a*b*c", "a1c2b", False), ("*", "", True), ("?", "", False), ("a**b", "a/b", True),
        ("[ab]x", "bx", True), ("[!ab]x", "bx", False), ("[^ab]x", "cx", True), ("[a-c]", "b", True),
        ("[a-]", "-", True),
        ("[*]", "*", True), ("[*]", "x", False), ("[", "[", True), ("a.c", "abc", False), ("[a--]", "a", None),
        ("*.py", "x.py\n", False), ("line*", "line\nbreak", True), ("[&&~~||]", "&", True),
    ):  # fmt: skip
        if wanted is None:
            with pytest.raises(ValueError, match="backwards"):
                glob_matches(glob, text)
        else:
            assert glob_matches(glob, text) is wanted, (glob, text)
    for glob, path, wanted in (
        ("./src/**", "src", True), ("./src/**", "src/a/b", True), ("./src/**", "srcs", False),
        ("./src/*", "src/a/b", False),
        ("**/x.py", "x.py", True), ("**/x.py", "a/b/x.py", True), ("src/**/t.py", "src/t.py", True),
        ("a[!b]c", "a/c", False),
        ("a?c", "a/c", False), ("a[+-9]c", "a/c", False), ("/etc/*", "../etc/passwd", True),
        ("src/", "src/deep/file", True),
        ("../x", "/w/../x", True), ("./a", ".//a/.", True), ("*", "..", False), ("src/../lib/*", "lib/a", True),
    ):  # fmt: skip
        assert path_matches(glob, path, "/w") is wanted, (glob, path)
    assert path_matches("./s/**", "s/k", "/odd [dir]/w*")
    assert not path_matches("./s/**", "/odd d/wx/s/k", "/odd [dir]/w*")
    for odd in ("a*b", "[x]", "?", "[[]", "]", "plain"):
        assert literal(escape(odd)) == odd
        assert glob_matches(escape(odd), odd)


def test_a_glob_takes_no_longer_than_its_text_is_long() -> None:
    began = process_time()
    assert not glob_matches("*a*a*a*a*a*a*b", "a" * 300_000)
    assert process_time() - began < 10


async def test_a_default_counts_when_the_property_is_left_out() -> None:
    ran: list[str] = []

    async def deploy(version: str, target: str = "production") -> None:
        ran.append(target)

    async with Session([deploy], policy=Policy(deny=["deploy(target=production)"])) as session:
        assert not (await session.call("deploy", {"version": "1"})).ok
        assert (await session.call("deploy", {"version": "1", "target": "test"})).ok
    assert ran == ["test"]


async def test_numbers_lists_and_objects_are_matched_as_json_each_item_by_itself() -> None:
    policy = Policy(deny=["take(n=1*)"], mode="open")
    assert await verdicts(policy, "take", [5, 15, True, [2, 15], {"a": 1}], field="n") == {
        "5": "runs", "15": "denied", "true": "runs", "[2, 15]": "denied", '{"a": 1}': "runs",
    }  # fmt: skip
    policy = Policy(allow=["take(n=a*)"], mode="ask")
    found = await verdicts(policy, "take", ["ab", ["ab", "a"], ["ab", "b"], []], field="n", risk="high")
    assert list(found.values()) == ["runs", "runs", "asks", "asks"]


async def test_a_reference_in_a_ruled_field_is_asked_about() -> None:
    for policy in (Policy(deny=["take(x)"], mode="open"), Policy(allow=["take(*)"], mode="ask")):
        made = Tool(
            "take", {"type": "object", "properties": {"n": {"type": "string"}}}, lambda c, a: 1, effects=["writes"]
        )
        async with Session([made], policy=policy) as session:
            held = await session.artifacts.put(b"x")
            result = await session.call("take", {"n": {"$artifact": getattr(held, "ref", held)}})
        assert not result.ok
        assert "needs approval" in result.message
