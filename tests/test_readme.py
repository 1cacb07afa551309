"""The README and the first page: short code that runs, whole lists, a picture of our own, and the order of calls."""

import builtins
import json
import re
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail import Call, Session, builtin_tools, open_sandbox
from handrail.models.open import DEFAULTS, FORMS
from tests.documents import ROOT, defined, used
from tests.test_house import blocks, read

TITLES = [
    "Install",
    "Ten lines",
    "Inside your framework",
    "In your terminal",
    "In your editor or assistant",
    "What is guaranteed, and where",
    "What does not hold",
]
PROMISE = "Run your model's tool calls safely: checked arguments, a real sandbox, one honest result each."


def block(beginning: str, page: str = "README.md") -> str:
    """The one program of a page that begins like this."""
    (found,) = [text for text in blocks(page, "python") if text.startswith(beginning)]
    return found


def test_a_newcomer_reads_what_it_is_how_to_install_it_three_ways_in_and_then_the_guarantees() -> None:
    text = read("README.md")
    found = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert found[: len(TITLES)] == TITLES
    assert "keep it, and replace the layer that touches the world" in text.partition("\n## ")[0]


def test_the_readme_is_at_most_two_hundred_lines() -> None:
    assert len(read("README.md").splitlines()) <= 200


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_sentence_is_the_promise_and_the_picture_needs_nothing_from_elsewhere(page: str) -> None:
    text = read(page)
    assert text.splitlines()[2] == PROMISE
    (picture,) = re.findall(r"!\[.*\]\((.*)\)", text)
    drawn = ((ROOT / page).parent / picture).read_text()
    assert ET.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
    assert re.findall(r"(?:href|src|url|@import)", drawn) == []


def test_the_first_page_has_the_line_that_installs() -> None:
    assert "pip install '.[cli]'" in read("docs/index.md").partition("```python")[0]


def test_the_page_about_models_names_every_form_of_a_name_and_every_variable_with_a_key() -> None:
    text = read("docs/models.md")
    assert [form for form in FORMS if f"| `{form}` |" not in text] == []
    assert [variable for variable in DEFAULTS if f"`{variable}`" not in text] == []


def section(title: str) -> str:
    return read("README.md").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def lines_of(beginning: str, page: str = "README.md") -> list[str]:
    return [line for line in block(beginning, page).splitlines() if line.strip() and not line.startswith("#")]


TEN = "from handrail import Session, builtin_tools, open_sandbox, run_sync\n"
SEVEN = "from handrail import Session, builtin_tools, open_sandbox\nfrom handrail.adapters import pydantic_ai\n"


def test_ten_lines_are_ten() -> None:
    assert len(lines_of(TEN)) == 10


def test_seven_lines_inside_a_framework_are_seven() -> None:
    assert len(lines_of(SEVEN)) == 7


@pytest.mark.anyio
async def test_seven_lines_give_an_agent_of_the_framework_a_jail_on_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        told = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        call = ToolCallPart("bash", {"command": "cat notes; ls -A .."})
        return ModelResponse([TextPart(str(told[0].content)) if told else call])

    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").write_text("of the project")
    pasted: dict[str, Any] = {}
    exec(block(SEVEN), pasted)
    said = json.loads(await pasted["work"](Agent(FunctionModel(model)), "What do my notes say?"))
    assert said["result"]["stdout"].startswith("of the project")
    assert said["result"]["stdout"].endswith(f"{tmp_path.name}\n"), "nothing else is there"


AGENTS = [("from typing", "README.md"), ("from anthropic", "docs/framework.md")]


@pytest.mark.parametrize(("beginning", "page"), [(TEN, "README.md"), (SEVEN, "README.md"), *AGENTS])
def test_each_program_of_the_readme_can_be_pasted_by_itself(beginning: str, page: str) -> None:
    """It takes no name from a block before it."""
    text = block(beginning, page)
    assert used(f"{text}\nfrom_an_earlier_block") - defined(text) - set(dir(builtins)) == {"from_an_earlier_block"}


def test_every_extra_is_in_the_table_of_extras() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    rows = re.findall(r"^\| (`.*?`) \|", section("Install"), re.MULTILINE)
    assert sorted(re.findall(r"`(.*?)`", " ".join(rows))) == sorted(project["optional-dependencies"])


def test_every_page_about_a_framework_is_linked_from_the_readme_and_the_first_page() -> None:
    pages = {path.name for path in (ROOT / "docs" / "frameworks").glob("*.md")}
    for text in (section("Inside your framework"), read("docs/index.md")):
        assert set(re.findall(r"frameworks/([\w-]+\.md)", text)) == pages != set()


def test_the_first_page_leads_to_every_page_of_the_guide() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages - set(re.findall(r"\]\((.*?)\)", read("docs/index.md"))) == set()


@pytest.mark.parametrize(("beginning", "page"), AGENTS)
def test_a_whole_agent_is_about_fifteen_lines(beginning: str, page: str) -> None:
    assert len(lines_of(beginning, page)) <= 15


# The order of one turn


@pytest.mark.anyio
async def test_a_turn_of_built_in_calls_is_run_in_the_order_that_the_page_says() -> None:
    calls = [
        Call("1", "bash", {"command": "sleep 0.3; echo one > notes"}),
        Call("2", "read", {"path": "notes"}),
        Call("3", "write", {"path": "nowhere"}),
        Call("4", "bash", {"command": "exit 3"}),
        Call("5", "bash", {"command": "sleep 0.3; echo two > notes"}),
        Call("6", "read", {"path": "notes"}),
        Call("7", "read", {"path": "notes"}),
    ]
    async with open_sandbox() as sandbox, Session(builtin_tools(), sandbox=sandbox) as session:
        results = await session.call_all(calls)
    assert results[2].kind == "invalid_args"
    assert results[3].value["exit_code"] == 3
    assert [results[number].value["text"] for number in (1, 5, 6)] == ["one\n", "two\n", "two\n"]
