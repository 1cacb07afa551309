"""Inside other frameworks, each in an environment of its own: a real agent of it uses the tools of a session."""

import json
import sys
from pathlib import Path

import pytest

from tests.adapters.scenarios import SCENARIOS, STREAMING
from tests.installing import ROOT, make_environment, must, wheel  # noqa: F401 - a fixture

pytestmark = pytest.mark.long

FRAMEWORKS = {"openai_agents": "openai-agents==0.24.0", "langchain": "langchain==1.4.7", "agno": "agno==3.1.10"}
"""By the module of its adapter: what is installed."""
INSPECT = "inspect-ai==0.3.285"
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


def environment(wheel: Path, at: Path, framework: str) -> Path:  # noqa: F811 - the fixture
    """A fresh environment with Handrail and one framework. Returns its Python."""
    python = make_environment(at / "environment")
    must(sys.executable, "-m", "pip", "--python", python, "install", "-q", wheel, framework, cwd=at)
    return python


def ends(said: str) -> dict[str, str]:
    """What was played, and "" or what was raised."""
    return dict(json.loads(line) for line in said.splitlines() if line.startswith("["))


@pytest.fixture(scope="session")
def played(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:  # noqa: F811
    """By framework and scenario: "", or what was raised."""
    ended: dict[tuple[str, str], str] = {}
    for framework, requirement in FRAMEWORKS.items():
        python = environment(wheel, tmp_path_factory.mktemp(framework), requirement)
        said = must(python, "-m", "tests.adapters.play", framework, cwd=ROOT)
        ended |= {(framework, scenario): error for scenario, error in ends(said).items()}
    return ended


@pytest.fixture(scope="session")
def inspected(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:  # noqa: F811
    """How Inspect's own checks of the provider ended, and some evals that use it."""
    python = environment(wheel, tmp_path_factory.mktemp("inspect"), INSPECT)
    return ends(must(python, "-m", "tests.adapters.check_inspect", cwd=ROOT, INSPECT_DISPLAY="none"))


@pytest.mark.parametrize(("framework", "scenario"), PLAYED, ids="-".join)
def test_an_agent_uses_the_tools_of_a_session(
    played: dict[tuple[str, str], str], framework: str, scenario: str
) -> None:
    assert played[framework, scenario] == "", played[framework, scenario]


def test_a_scenario_that_fails_is_reported(wheel: Path, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    """The control: an agent without the adapter's middleware, which LangChain's silent end needs."""
    python = environment(wheel, tmp_path, FRAMEWORKS["langchain"])
    spoilt = (
        "from handrail.adapters import langchain; from langchain.agents.middleware import AgentMiddleware;"
        "langchain.middleware = lambda session: AgentMiddleware();"
        "from tests.adapters import play; import sys;"
        "sys.argv[1:] = ['langchain', 'the_text_that_the_model_wrote_reaches_the_session']; play.main()"
    )
    [error] = ends(must(python, "-c", spoilt, cwd=ROOT)).values()
    assert error != ""


def test_inspect_finds_the_provider_and_its_own_checks_hold(inspected: dict[str, str]) -> None:
    checks = {name: error for name, error in inspected.items() if name.startswith("test_")}
    assert len(checks) == CHECKS
    assert {name for name, error in checks.items() if error} == set(NOT_HERE), checks


def test_an_eval_of_inspect_works_in_the_sandbox(inspected: dict[str, str]) -> None:
    evals = {name: error for name, error in inspected.items() if not name.startswith("test_")}
    assert len(evals) == 6
    assert {name: error for name, error in evals.items() if error} == {}
