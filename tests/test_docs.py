"""The documents are true: their code runs, their links lead somewhere, and the page about events is complete."""

import inspect
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest
from markdown.extensions.toc import slugify
from pydantic import BaseModel

import handrail
from handrail import (
    Agent,
    ApprovalRequest,
    Call,
    CallDelta,
    Context,
    Decision,
    Event,
    Image,
    ModelFailed,
    Policy,
    Session,
    Store,
    TextDelta,
    ThinkingDelta,
    Turn,
    adapters,
    builtin_tools,
    open_sandbox,
    testing,
    tool,
)  # fmt: skip
from handrail.contract import event as contract
from handrail.contract.event import EventType
from handrail.session.session import core_of
from handrail.toolkit.tool import Tool, ToolOptions
from tests.agent.test_compaction import Small, dump
from tests.documents import ROOT, blocks, complaints, needs, pages, program, write_modules

PAGES = [str(page.relative_to(ROOT)) for page in pages()]
RUN = [name for name in PAGES if program(ROOT / name) and not needs(ROOT / name)]
LINKED = sorted({*PAGES, *(path.name for path in ROOT.glob("*.md"))})
NOT_RUN = {
    "docs/debugging.md": 1,
    "docs/decisions/001-loaded-when-first-used.md": 1,
    "docs/decisions/005-a-table-of-commands.md": 1,
    "docs/design.md": 6,
}
"""Blocks that are not run; each says why."""


# Code


@pytest.mark.parametrize("name", RUN)
def test_the_python_of_a_page_runs_and_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    assert complaints(ROOT / name, tmp_path) == []


def test_blocks_that_are_not_run_are_few_and_say_why() -> None:
    marked = [(name, block) for name in PAGES for block in blocks(ROOT / name, "python") if block.mark]
    assert Counter(name for name, _ in marked) == NOT_RUN
    assert [block for _, block in marked if len(block.reason.split()) < 3] == []


def test_every_fence_of_python_is_seen() -> None:
    for name in PAGES:
        assert len(re.findall(r"^ *```python", (ROOT / name).read_text(), re.MULTILINE)) == len(
            blocks(ROOT / name, "python")
        )


BROKEN = {
    "raises": "```python\nimport nothing_like_it\n```\n",
    "prints something else": "```python\nprint(1)\n#> 2\n```\n",
    "prints more": "```python\nprint(1)\nprint(2)\n#> 1\n```\n",
    "prints without a promise": "```python\nprint(1)\n```\n",
    "a later block": "```python\na = 1\n```\n\n```python\nprint(b)\n```\n",
    "in a list": "- so:\n\n  ```python\n  1 / 0\n  ```\n",
    "warns": "```python\nimport warnings\nwarnings.warn('old')\n```\n",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_block_is_caught(text: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(f"# Page\n\n{text}")
    assert len(complaints(tmp_path / "page.md", tmp_path)) == 1


def test_blocks_of_a_page_share_their_names_and_an_error_names_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\na = 'xyz'\n```\n\nand\n\n```python\nprint(a)\n#> x…z\n```\n")
    assert complaints(page, tmp_path) == []
    page.write_text("# Page\n\n\n```python\nlast = 1\n```\n\n```python\nx = 1\nraise ValueError(x)\n```\n")
    (complaint,) = complaints(page, tmp_path)
    assert "line 10" in complaint


def test_a_type_checker_sees_every_block_with_the_names_it_uses(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("")
    fences = ["a = 1", "def f() -> int: return a", "def f() -> str: return 'x'", "b = f()"]
    text = (
        "\n".join(f"```python\n{code}\n```\n" for code in fences) + "<!-- not code: really not -->\n```python\n…\n```\n"
    )
    (tmp_path / "docs" / "page.md").write_text(text)
    made = write_modules(tmp_path / "code", tmp_path)
    assert [path.read_text().split("\n")[:-1] for path in made] == [
        ["a = 1"],
        ["a = 1", "", "def f() -> int: return a"],
        ["def f() -> str: return 'x'"],
        ["def f() -> str: return 'x'", "", "b = f()"],
    ]


def shell_lines(name: str) -> list[str]:
    """Blocks of shell code whole, and the lines after a `$ ` in blocks that show a terminal."""
    lines = [block.text for block in blocks(ROOT / name, "sh", "bash")]
    for block in blocks(ROOT / name, "console", "text"):
        lines += re.findall(r"^\$ (.*)$", block.text, re.MULTILINE)
    return lines


@pytest.mark.parametrize("name", [name for name in PAGES if shell_lines(name)])
def test_the_shell_code_of_a_page_is_sound_and_its_commands_exist(name: str) -> None:
    for line in shell_lines(name):
        done = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), line
        for path in re.findall(r"python3? (\S+\.py)\b", line):
            assert (ROOT / path).exists(), line


def comments(line: str) -> list[str]:
    """What bash takes for a comment, and zsh for words when a person pastes it, with its `commands` run."""
    return [found.strip() for found in re.findall(r"(?:^|\s)#.*", line, re.MULTILINE)]


@pytest.mark.parametrize("name", [name for name in PAGES if shell_lines(name)])
def test_the_shell_code_of_a_page_can_be_pasted_into_any_shell(name: str) -> None:
    assert [found for line in shell_lines(name) for found in comments(line)] == []


def test_a_comment_in_shell_code_would_be_seen() -> None:
    assert comments("make  # all\n# now\necho a#b") == ["# all", "# now"]


def test_unsound_shell_code_would_be_seen() -> None:
    assert subprocess.run(["bash", "-n", "-c", "echo 'x"], capture_output=True, check=False).returncode != 0


# Links


def broken_links(page: Path, root: Path = ROOT) -> list[str]:
    """Links of a page to files and headings that do not exist; those to other sites are left alone."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "`code`", text)
    found = []
    for link in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or not target.is_relative_to(root) or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#{1,6} (.*)$", text, re.MULTILINE)
    return {slugify(re.sub(r"[`*]", "", heading), "-") for heading in headings}


@pytest.mark.parametrize("name", LINKED)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading_that_exist(name: str) -> None:
    assert broken_links(ROOT / name) == []


def test_a_link_that_leads_nowhere_is_caught(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Other\n\n## One `thing`\n")
    page = tmp_path / "page.md"
    page.write_text("[a](other.md) [b](other.md#one-thing) [c](https://example.org/x) `[d](no.md)`\n# Here\n[e](#here)")
    assert broken_links(page, tmp_path) == []
    page.write_text("[a](others.md) [b](other.md#two) [c](#there) [d](../../etc/passwd)")
    assert len(broken_links(page, tmp_path)) == 4


# The site


def build(configuration: Path, site: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", str(configuration), "-d", str(site)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=110, check=False)


def test_the_site_is_built_without_a_complaint_and_shows_every_page(tmp_path: Path) -> None:
    done = build(ROOT / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    for page in (ROOT / "docs").rglob("*.md"):
        assert (tmp_path / "site" / page.relative_to(ROOT / "docs").with_suffix(".html")).exists()
    reference = (tmp_path / "site" / "reference" / "sessions.html").read_text(encoding="utf-8")
    assert "Run one tool and return its result." in reference, "docstrings are in the reference"


def test_the_reference_names_every_public_name_once() -> None:
    named = Counter(re.findall(r"^::: (\S+)$", "\n".join(read(name) for name in PAGES), re.MULTILINE))
    shipped = set(testing.__all__) - set(handrail.__all__)
    public = {f"handrail.{name}" for name in handrail.__all__} | {f"handrail.testing.{name}" for name in shipped}
    public |= {"handrail.otel.Tracing", *(f"handrail.adapters.{name}" for name in adapters.__all__)}
    assert set(named) == public
    assert set(named.values()) == {1}


EXPLAINED = {"Session": Session, "Agent": Agent, "tool": tool, "open_sandbox": open_sandbox}


@pytest.mark.parametrize("name", EXPLAINED)
def test_every_parameter_is_explained(name: str) -> None:
    text = inspect.getdoc(EXPLAINED[name]) or ""
    listed = text.partition("\nArgs:\n")[2].partition("\n\n")[0]
    explained = re.findall(r"^    \**(\w+): \S", listed, re.MULTILINE)
    assert explained == list(inspect.signature(EXPLAINED[name]).parameters)


def test_every_option_of_a_tool_is_explained_at_its_field() -> None:
    source = inspect.getsource(Tool)
    for name in ToolOptions.__annotations__:
        assert re.search(rf'^    {name}: .*\n    """\S', source, re.MULTILINE), name


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# Events


def documented() -> dict[str, set[str]]:
    """The fields of each event type, as the page lists them."""
    sections = re.split(r"^### ", read("docs/events.md"), flags=re.MULTILINE)[1:]
    rows = {
        part.split("\n")[0]: re.findall(r"^\| (`.*?) \|", part.split("\n## ")[0], re.MULTILINE) for part in sections
    }
    return {name: {word for row in found for word in re.findall(r"`(\w+)`", row)} for name, found in rows.items()}


def test_the_page_about_events_has_every_type_and_its_fields_as_the_contract_lists_them() -> None:
    source = Path(contract.__file__).read_text(encoding="utf-8")
    comments = dict(re.findall(r'^    "(\w+)",  # (.*(?:\n    # .*)*)$', source, re.MULTILINE))
    comments["session_resumed"] += " " + comments["session_started"]  # it says that it is the same
    assert list(documented()) == sorted(get_args(EventType), key=list(documented()).index)
    assert set(comments) == set(documented())
    for name, fields in documented().items():
        assert fields <= set(re.findall(r"\w+", comments[name])), name


@pytest.mark.anyio
async def test_every_event_has_the_data_that_the_page_lists_and_no_other(tmp_path: Path) -> None:
    seen: dict[str, set[str]] = {}
    stored = of_stored(tmp_path / "sessions.db")
    runs = [await of_runs(), await of_long_runs()]
    for events in [await of_calls(), await of_approvals(), await of_jobs(tmp_path), *runs, await stored]:
        for event in events:
            seen.setdefault(event.type, set()).update(event.data)
    assert seen == documented()


async def of_calls() -> tuple[Event, ...]:
    go = threading.Event()

    @tool(timeout=0.05)
    def late() -> None:
        """Raise too late."""
        go.wait()
        raise ValueError

    @tool(lane="one", effects=["writes"])
    async def shows(context: Context, n: int) -> None:
        """Show more than is kept."""
        for piece in ("a", "b" * 100_000, "c" * 100_000):
            context.show(piece, stream="stdout")
            await anyio.sleep(0.1)
        raise ValueError

    def drops(event: Event) -> None:
        raise ValueError

    async with Session([late, shows], policy=Policy(mode="open"), readers=[drops]) as session:
        await session.call_all([Call(f"c{n}", "shows", {"n": str(n)}) for n in range(2)])
        await session.call("late")
        go.set()
        while not any(event.type == "call_late" for event in session.trace):  # noqa: ASYNC110 - a thread writes it
            await anyio.sleep(0.01)
    return session.trace


async def of_approvals() -> tuple[Event, ...]:
    async def asked(request: ApprovalRequest) -> Decision:
        answers = [replace(Decision.remember(), by="terminal"), Decision.edit({"n": 2}), Decision.defer()]
        return answers[count.pop()]

    async def asks(n: int) -> None:
        """Ask."""

    count = [2, 1, 0]
    async with Session([asks], policy=Policy(ask=["asks"]), approver=asked) as session:
        for n in (1, 5, 6, 7):  # remembered, edited, deferred, and an approver that raises
            await session.call("asks", {"n": n}, approved="0")
    return session.trace


async def of_jobs(workspace: Path) -> tuple[Event, ...]:
    tools = [each for each in builtin_tools() if each.name == "bash"]
    async with (
        open_sandbox("host", workspace=workspace, allow_weaker=True) as sandbox,
        Session(tools, sandbox=sandbox, policy=Policy(mode="open")) as session,
    ):
        await session.call("bash", {"command": "true", "background": True})
        async for event in session.events():
            if event.type == "job_ended":
                break
    return session.trace


class Thinks:
    """Fails in passing, then answers, then fails for good."""

    def __init__(self) -> None:
        self.asked = 0

    async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[Any]:
        self.asked += 1
        yield ThinkingDelta("hm")
        if self.asked == 1:
            raise ModelFailed("busy", transient=True, retry_after=0.01)
        if self.asked == 3:
            raise ValueError
        yield TextDelta("a")
        yield CallDelta(0, "add", "{}")
        yield Turn("a")


class Number(BaseModel):
    n: int


async def of_runs() -> tuple[Event, ...]:
    agent = Agent(Thinks())
    await agent.run("One.")
    await agent.run("Two.")
    typed = Agent(testing.ScriptedModel(["", Turn(calls=(Call("c1", "answer", {"n": 1}),))]), output=Number)
    await typed.run("One.")
    asking = Turn(calls=(Call("c1", "ask_user", {"question": "Which?", "choices": ["a"]}),))
    asks = Agent(
        testing.ScriptedModel([asking]), tools=[each for each in builtin_tools("all") if each.name == "ask_user"]
    )
    await asks.run("Go.")
    question = asks.question()
    assert question is not None
    assert asks.answered(question["id"], "a", by="terminal")
    return *agent.session.trace, *typed.session.trace, *asks.session.trace


async def of_long_runs() -> tuple[Event, ...]:
    """Longer than the model's context: results collapse, and the oldest rounds are summarised, by it or without it."""
    told: list[Event] = []
    for can_summarise in (True, False):
        model = Small(120, window=8_000)
        if not can_summarise:
            model.summary = raises  # type: ignore[method-assign]
        agent = Agent(model, tools=[dump], rounds=121)
        await agent.run("Dump them all.")
        told += [event for event in agent.session.trace if event.type in ("collapsed", "summarised")]
    return tuple(told)


def raises() -> Turn:
    raise ModelFailed("no")


async def of_stored(path: Path) -> tuple[Event, ...]:
    @tool(deferred=True)
    async def draws(context: Context) -> Image:
        """Draw, and remember that."""
        context.memory("draws", lasts=True)["drawn"] = 1
        return Image(b"GIF")

    with Store(path) as store:
        async with Session([draws], store=store) as session:
            core_of(session).tools.load(["draws"])
            await session.call("draws")
        async with Session.resume(store, session.id, tools=[draws]) as resumed:
            return resumed.trace


def test_the_words_are_each_explained_once() -> None:
    words = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", read("docs/words.md"), re.MULTILINE)
    assert len(words) > 30
    assert max(Counter(word for word, _ in words).values()) == 1
    (sentence,) = re.findall(r"^> A (\*\*.*\n.*)$", read("docs/design.md"), re.MULTILINE)
    concepts = {name.lower().rstrip("s") for name in re.findall(r"\*\*(\w+)\*\*", sentence)}
    assert len(concepts) > 5
    assert concepts - {word for word, _ in words} == set()
