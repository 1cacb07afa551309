"""Inside other frameworks, each in an environment of its own: a real agent of it uses the tools of a session."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.adapters.scenarios import SCENARIOS, STREAMING
from tests.documents import complaints, needs, pages
from tests.installing import ROOT, must, wheel, with_extras  # noqa: F401 - a fixture

pytestmark = pytest.mark.long

FRAMEWORKS = ("openai-agents", "langchain", "agno")
"""By its extra."""
CHECKS = 44
"""Checks of a sandbox that Inspect has."""
NOT_HERE = {"test_exec_as_user": "it adds a user to the machine; a jail has one user, and /etc cannot be written there"}
"""Those that do not hold, and why."""
STREAMS = {"langchain"}
PLAYED = [
    (framework, scenario.__name__)
    for framework in FRAMEWORKS
    for scenario in (*SCENARIOS, *(STREAMING if framework in STREAMS else ()))
]


@pytest.fixture(scope="session")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:  # noqa: F811
    """The Python of a fresh environment with Handrail and one of its extras."""
    at = tmp_path_factory.mktemp("environments")

    @cache
    def made(extra: str) -> Path:
        return with_extras(wheel, at / extra, extra)

    return made


def ends(said: str) -> dict[str, str]:
    """What was played, and "" or what was raised."""
    return dict(json.loads(line) for line in said.splitlines() if line.startswith("["))


@pytest.fixture(scope="session")
def played(python: Callable[[str], Path]) -> dict[tuple[str, str], str]:
    """By framework and scenario: "", or what was raised."""
    ended: dict[tuple[str, str], str] = {}
    for framework in FRAMEWORKS:
        said = must(python(framework), "-m", "tests.adapters.play", framework.replace("-", "_"), cwd=ROOT)
        ended |= {(framework, scenario): error for scenario, error in ends(said).items()}
    return ended


@pytest.fixture(scope="session")
def inspected(python: Callable[[str], Path]) -> dict[str, str]:
    """How Inspect's own checks of the provider ended, and some evals that use it."""
    return ends(must(python("inspect"), "-m", "tests.adapters.check_inspect", cwd=ROOT, INSPECT_DISPLAY="none"))


@pytest.mark.parametrize(("framework", "scenario"), PLAYED, ids=[" ".join(each) for each in PLAYED])
def test_an_agent_uses_the_tools_of_a_session(
    played: dict[tuple[str, str], str], framework: str, scenario: str
) -> None:
    assert played[framework, scenario] == "", played[framework, scenario]


def test_a_scenario_that_fails_is_reported(python: Callable[[str], Path]) -> None:
    """The control: an agent without the adapter's middleware, which LangChain's silent end needs."""
    spoilt = (
        "from handrail.adapters import langchain; from langchain.agents.middleware import AgentMiddleware;"
        "langchain.middleware = lambda session: AgentMiddleware();"
        "from tests.adapters import play; import sys;"
        "sys.argv[1:] = ['langchain', 'the_text_that_the_model_wrote_reaches_the_session']; play.main()"
    )
    [error] = ends(must(python("langchain"), "-c", spoilt, cwd=ROOT)).values()
    assert error != ""


def test_a_tool_of_langchain_can_be_called_without_an_agent(python: Callable[[str], Path]) -> None:
    program = """
import anyio
from handrail import Session
from handrail.adapters import langchain

def double(number: int) -> int:
    "Twice the number."
    return number * 2

async def main():
    async with Session([double]) as session:
        [tool] = langchain.tools(session)
        call = {"type": "tool_call", "id": "a", "name": "double", "args": {"number": "21"}}
        print((await tool.ainvoke(call)).content, await tool.ainvoke({"number": 4}), await tool.arun({"number": []}))

anyio.run(main)
"""
    said = must(python("langchain"), "-c", program, cwd=ROOT)
    assert '"result":42' in said
    assert '"result":8' in said
    assert '"kind":"invalid_args"' in said


def test_the_events_of_langchain_tell_of_a_call_and_of_what_it_prints(python: Callable[[str], Path]) -> None:
    """Also when the loop over them is left while the command runs, which ends it."""
    program = """
import anyio, json
from handrail import Session, builtin_tools, open_sandbox
from handrail.adapters import langchain
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from tests.adapters.drive_langchain import Script

class Streams(Script):
    def _stream(self, *given, **more):
        said = next(self.messages)
        calls = [{"name": "bash", "args": said, "id": "a", "index": 0}] if said != "done" else []
        yield ChatGenerationChunk(message=AIMessageChunk(content="" if calls else said, tool_call_chunks=calls))

async def main():
    async with open_sandbox() as sandbox, Session(builtin_tools(), sandbox=sandbox) as session:
        for command, last in (("echo one; sleep 0.2; echo two", "on_tool_end"), ("echo one; sleep 300", "one")):
            model = Streams(messages=iter([json.dumps({"command": command}), "done"]))
            agent = create_agent(model, tools=langchain.tools(session), middleware=[langchain.middleware(session)])
            asked = {"messages": [{"role": "user", "content": "go"}]}
            events = agent.astream_events(asked, version="v2", stream_mode=["values", "custom"])
            async for event in events:
                name, chunk = event["event"], event["data"].get("chunk")
                told = name if name.startswith("on_tool") else ""
                if name == "on_chain_stream" and isinstance(chunk, tuple) and chunk[0] == "custom":
                    told = chunk[1]["text"].strip()
                if told:
                    print(told)
                if told == last:
                    break
            await events.aclose()
    print([event.data["kind"] for event in session.trace if event.type == "call_ended"])

anyio.run(main)
"""
    said = must(python("langchain"), "-c", program, cwd=ROOT).splitlines()
    assert said[:4] == ["on_tool_start", "one", "two", "on_tool_end"]
    assert said[4:] == ["on_tool_start", "one", "[None, 'cancelled']"]


@pytest.mark.parametrize("extra", [*FRAMEWORKS, "inspect"])
def test_the_page_about_a_framework_runs_and_prints_what_it_promises(
    python: Callable[[str], Path], tmp_path: Path, extra: str
) -> None:
    [page] = [page for page in pages() if needs(page) == extra]
    assert complaints(page, tmp_path, python(extra)) == []


@pytest.mark.parametrize("extra", FRAMEWORKS)
def test_what_an_adapter_adds_to_a_call_can_be_measured(python: Callable[[str], Path], extra: str) -> None:
    said = must(python(extra), "-m", "bench", "adapters", "--quick", cwd=ROOT)
    assert f"{extra}: what that adds" in said


def test_inspect_finds_the_provider_and_its_own_checks_hold(inspected: dict[str, str]) -> None:
    checks = {name: error for name, error in inspected.items() if name.startswith("test_")}
    assert len(checks) == CHECKS
    assert {name for name, error in checks.items() if error} == set(NOT_HERE), checks


def test_an_eval_of_inspect_works_in_the_sandbox(inspected: dict[str, str]) -> None:
    evals = {name: error for name, error in inspected.items() if not name.startswith("test_")}
    assert len(evals) == 6
    assert {name: error for name, error in evals.items() if error} == {}
