"""The text of a request hides and imitates nothing; the rule it suggests covers exactly the value it shows."""

import unicodedata
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from handrail import Budget, Decision, Policy, Session, Tool, tool
from handrail.gates.permit import approvals_of
from handrail.policy.approval import look_alikes, render, visible
from handrail.session.session import core_of
from tests.gates.asked import saying

pytestmark = pytest.mark.anyio
LOOSE = Budget(calls=None, refusals=None)
ASK = Policy(mode="ask")
ODD = {
    "escape": "\x1b[2J\x1b[31mred\x1b]0;title\x07",
    "return": "rm -rf /\rls        ",
    "backspace": "rm\b\bls",
    "bidi": "a\u202egnp.exe\u202c\u2066x\u2069\u200f",
    "zero width": "a\u200bb\u200c\u200d\u2060\ufeff",
    "soft": "a\u00adb",
    "tags": "a\U000e0041\U000e007f",
    "selectors": "a\ufe0f\U000e0101\u180b",
    "fillers": "a\u3164\u115f\uffa0\u2800\u034f",
    "spaces": "a\u00a0b\u2003c\u3000d\u2028e\u2029f\x85g\x0bh",
    "c1": "\x9b31m",
    "private": "\ue000\U000f0000",
    "noncharacter": "\uffff\U0001ffff",
}


@pytest.mark.parametrize("name", ODD)
def test_nothing_odd_is_left_as_it_is(name: str) -> None:
    shown = visible(ODD[name])
    assert all(char in "\n\t" or (char.isprintable() and (char == " " or not char.isspace())) for char in shown)
    odd = [char for char in ODD[name] if not (char.isascii() and char.isprintable())]
    for char in odd:
        assert char not in shown
        code = f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"
        assert code in shown


@given(st.text())
@settings(max_examples=300)
def test_whatever_the_text_what_is_shown_can_be_printed_and_plain_text_stays(text: str) -> None:
    shown = visible(text)
    hidden = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert all(char in "\n\t" or unicodedata.category(char) not in hidden for char in shown)
    assert "\n" not in visible(text, lines=False)
    assert visible(shown) == shown
    told = render("tool", {"a": text, text: 1})
    assert "\t" not in told
    assert len(told.split("\n")) <= 40


def test_what_people_write_stays_readable() -> None:
    for text in ("plain", "été Straße 漢字 кириллица हिन्दी עברית", "two\nlines\tand tab", "emoji 🙂", "a\u0301"):
        assert visible(text) == text
    assert "\\u0301" in visible("a" + "\u0301" * 20)
    assert visible("a" + "\u0301" * 20).count("\u0301") == 2


def test_look_alikes_are_named_where_they_pass_for_others() -> None:
    for text, name in (
        ("p\u0430ypal", "CYRILLIC SMALL LETTER A"),
        ("/etc/p\u0430sswd", "CYRILLIC"),
        ("\u0441\u043e\u0440\u0443", "CYRILLIC"),
        ("g\u03bfogle", "GREEK"),
        ("\uff52\uff4d file", "FULLWIDTH"),
        ("\U0001d42b\U0001d426 x", "MATHEMATICAL"),
        ("rm \u2010rf x", "HYPHEN"),
        ("etc\u2215passwd", "DIVISION SLASH"),
        ("ls\u037e rm", "GREEK QUESTION MARK"),
        ("a\u2024b", "ONE DOT LEADER"),
        ("\u212aelvin", "KELVIN"),
        ("\u0131d", "DOTLESS"),
    ):
        assert any(name in found for found in look_alikes(text)), text
        shown = render("bash", {"command": text})
        assert "! command has letters that look like others" in shown
        assert f"U+{ord(next(char for char in text if not char.isascii())):04X}" in shown
    for text in ("привет мир", "καλημέρα", "naïve café", "漢字 and text", "plain", "a — b … “c”"):
        assert look_alikes(text) == [], text
    assert len(look_alikes("a" + "".join(chr(0x430 + n) for n in range(32)))) == 10


def test_a_megabyte_is_shortened_and_said_to_be() -> None:
    huge = "begin " + "x" * 1_000_000 + " end"
    shown = render("write", {"path": "a", "content": huge, "lists": [huge], "key" * 10_000: 1})
    assert len(shown) < 20_000
    assert "begin " in shown
    assert " end" in shown
    assert "996,010 of 1,000,010 characters left out" in shown
    many = render("write", {f"k{n}": n for n in range(200)})
    assert "and 170 more arguments" in many
    assert "k199: 199" in many


HOSTILE: dict[str, dict[str, Any]] = {
    "a long script": {"command": "\n".join(f"echo {n}" for n in range(600)) + "\nrm -rf ~"},
    "many lines in many arguments": {f"k{n}": "a\n" * 50 + "rm -rf ~" for n in range(45)},
    "one argument after long ones": {"a": "x\n" * 500, "b": "y\n" * 500, "command": "ls\nrm -rf ~"},
    "many arguments": {**{f"k{n}": n for n in range(1_000)}, "command": "rm -rf ~"},
    "keys that look like others": {**{f"{n}p\u0430y": "x" for n in range(60)}, "command": "rm -rf ~"},
    "tabs and blank lines": {"command": "ls" + "\t" * 3_000 + "\n" * 3_000 + "rm -rf ~"},
    "one long line": {"command": "x" * 90_000 + "rm -rf ~"},
    "long lines": {"command": "\n".join("x" * 900 for _ in range(90)) + "\nrm -rf ~"},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_text_has_at_most_40_lines_no_tabs_and_shows_the_end(what: str) -> None:
    shown = render("bash", HOSTILE[what])
    assert len(shown.split("\n")) <= 40
    assert "\t" not in shown
    assert "rm -rf ~" in shown
    assert "left out" in shown or "more arguments" in shown, "what is missing is said"


def test_lines_that_are_left_out_are_counted() -> None:
    lines = [f"line {n}" for n in range(1_000)]
    shown = render("bash", {"command": "\n".join(lines), "cwd": "."}).split("\n")
    assert len(shown) == 40
    (marker,) = [line.strip() for line in shown if "left out" in line]
    kept = sum(f"    {line}" in shown for line in lines)
    assert marker == f"[… {1_000 - kept} of 1,000 lines left out …]"
    assert shown[2] == "    line 0"
    assert shown[-2:] == ["    line 999", "  cwd: ."]


def test_a_short_argument_beside_long_ones_is_shown_whole() -> None:
    short = "cd src\nmake\nmake install"
    shown = render("bash", {"a": "x\n" * 500, "command": short, "b": "y\n" * 500})
    assert "\n".join(f"    {line}" for line in short.split("\n")) in shown


def test_what_fits_is_shown_as_it_is() -> None:
    command = "\n".join(f"echo {n}" for n in range(38))
    shown = render("bash", {"command": command})
    assert shown.split("\n") == ["bash", "  command:", *(f"    echo {n}" for n in range(38))]
    assert render("bash", {"command": "a\tb\nc"}) == "bash\n  command:\n    a\\tb\n    c"


async def test_repairs_that_need_approval_are_named_before_those_that_do_not() -> None:
    @tool(effects=["writes"])
    async def store(numbers: list[int], name: str) -> str:
        return name

    person = saying(Decision.approve())
    async with Session([store], policy=ASK, approver=person) as session:
        await session.call("store", {"numbers": [f"{n}" for n in range(100)], "name": 15})
    (request,) = person.asked
    assert request.repairs[0] == "name: 15 became '15'"
    assert len(request.repairs) == 11
    assert request.repairs[-1] == "… and 91 more"


def test_a_value_cannot_pose_as_another_argument() -> None:
    shown = render("write", {"path": "x\n  content: harmless\n! nothing to see", "content": "real"}).split("\n")
    assert [line for line in shown if line.startswith("  ") and not line.startswith("   ")] == [
        "  path:",
        "  content: real",
    ]
    shown = render("write", {"a\n  path: /safe": "x"}).split("\n")
    assert len(shown) == 2


async def test_the_whole_request_is_safe_to_show() -> None:
    @tool(effects=["writes"])
    async def save(path: str, content: str = "", n: str = "") -> str:
        return path

    for odd in (*ODD.values(), "x" * 1_000_000):
        person = saying(Decision.approve())
        async with Session([save], policy=Policy(mode="ask"), approver=person) as session:
            await session.call("save", {"path": odd, "content": odd, "n": odd})
        (request,) = person.asked
        texts: list[Any] = [request.text, request.reason, request.suggested_rule, *request.repairs]
        for text in texts:
            assert len(text) < 20_000
            assert visible(text) == text
        assert dict(request.arguments)["path"] == odd  # for programs, as it is


@tool(effects=["writes"])
async def save(path: str, content: str = "", mode: int = 0) -> str:
    return "ran"


@tool(effects=["writes"])
async def take(word: str, other: str = "") -> str:
    return "ran"


@tool(effects=["executes"])
async def bash(command: str, cwd: str = ".") -> str:
    return "ran"


@tool(effects=["writes"])
async def put(key: str = "", value: str = "") -> str:
    """With nothing that is required."""
    return "ran"


DASHED = Tool(
    "dashed",
    {"type": "object", "properties": {"the-word": {"type": "string"}, "other": {"type": "string"}}},
    lambda context, arguments: "ran",
    effects=["writes"],
)
TOOLS: dict[str, tuple[Any, str, str]] = {
    "save": (save, "path", "content"),
    "take": (take, "word", "other"),
    "bash": (bash, "command", "cwd"),
    "put": (put, "value", "key"),
    "dashed": (DASHED, "the-word", "other"),
}
pieces = st.sampled_from(
    [*"ab=/.*?[]()!-~ '\"$;|\\é", "path=", "content=", "word=", "other=", "command=", "cwd=", "value=", "key=",
     "the-word=", "..", "/etc", "x", "1", "null", '["a"]'],
)  # fmt: skip
values = st.lists(pieces, min_size=1, max_size=6).map("".join)


async def runs(policy: Policy, remembered: list[Any], name: str, arguments: dict[str, Any]) -> bool:
    """Whether a call runs where nobody can be asked."""
    async with Session([TOOLS[name][0]], policy=policy, budget=LOOSE) as session:
        approvals_of(core_of(session).shared).remembered.extend(remembered)
        return (await session.call(name, arguments)).ok


async def suggested(name: str, arguments: dict[str, Any]) -> tuple[str, list[Any]]:
    """The rule that is shown, and what the session keeps when a person says: remember."""
    person = saying(Decision.remember())
    async with Session([TOOLS[name][0]], policy=ASK, approver=person, budget=LOOSE) as session:
        await session.call(name, arguments)
        assert person.asked
        return person.asked[0].suggested_rule, list(approvals_of(core_of(session).shared).remembered)


LAWS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("name", list(TOOLS))
@LAWS
@given(value=values, more=pieces.map(lambda piece: piece[:1]))
@example(value="path=x", more="x")
@example(value="content=x", more="x")
@example(value="src/", more="x")
@example(value="/", more="a")
@example(value="git status", more=" ")
@example(value="a", more="/")
async def test_a_suggested_rule_means_this_value_alone(name: str, value: str, more: str) -> None:
    _, field, other = TOOLS[name]
    rule, kept = await suggested(name, {field: value})
    if not rule:
        assert not kept
        return
    assert await runs(ASK, kept, name, {field: value}), "the call as it is"
    assert await runs(Policy(allow=[rule], mode="ask"), [], name, {field: value}), "the same, saved in a policy"
    changed = [{field: value + more}, {field: "another", other: value}, {other: value}]
    if "=" in value:
        changed.append({field: value.partition("=")[2]})
    for arguments in changed:
        assert not await runs(ASK, kept, name, arguments), (rule, arguments)
    assert not await runs(Policy(allow=[rule], mode="ask"), [], name, {field: f"{value}x"}), (rule, "in a policy")


@pytest.mark.parametrize(
    ("name", "arguments", "rule"),
    [
        ("save", {"path": "path=x"}, "save(path=path=x)"),
        ("save", {"path": "notes.md"}, "save(notes.md)"),
        ("save", {"path": "src/"}, ""),
        ("take", {"word": "src/"}, "take(src/)"),
        ("bash", {"command": "git status"}, "bash(git status)"),
        ("bash", {"command": "cwd=/etc"}, "bash(command=cwd=/etc)"),
        ("put", {"value": "x"}, "put(value=x)"),
        ("put", {}, ""),
        ("dashed", {"the-word": "a"}, "dashed(a)"),
        ("dashed", {"the-word": "other=a"}, ""),
    ],
)
async def test_the_rule_is_the_shortest_that_says_so(name: str, arguments: dict[str, Any], rule: str) -> None:
    assert (await suggested(name, arguments))[0] == rule


async def test_a_link_that_leads_elsewhere_is_asked_about_each_time(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").write_text("")
    (tmp_path / "link").symlink_to("own")
    assert (await suggested("save", {"path": "link"}))[0] == ""
    assert (await suggested("save", {"path": "own"}))[0] == "save(own)"


ANY = Tool("any", {"type": "object", "properties": {"n": {}}}, lambda context, arguments: "ran", effects=["writes"])
COUNT = Tool(
    "count",
    {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}},
    lambda context, arguments: "ran",
    effects=["writes"],
)
TOOLS |= {"any": (ANY, "n", "n"), "count": (COUNT, "n", "n")}


@pytest.mark.parametrize("value", [1, True, None, [1], 1.5, {"a": 1}, "1", "true", "null", "[1]"], ids=repr)
async def test_a_value_whose_text_may_be_of_another_type_is_not_remembered(value: Any) -> None:
    rule, kept = await suggested("any", {"n": value})
    assert (rule, kept) == ("", [])


async def test_a_value_of_the_only_type_with_its_text_is_remembered() -> None:
    assert (await suggested("any", {"n": "word"}))[0] == "any(word)"
    assert (await suggested("count", {"n": 1}))[0] == "count(1)"
    assert (await suggested("take", {"word": "1"}))[0] == "take(1)"
