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
STREAMS = {"langchain"}
PLAYED = [
    (framework, scenario.__name__)
    for framework in FRAMEWORKS
    for scenario in (*SCENARIOS, *(STREAMING if framework in STREAMS else ()))
]


def environment(wheel: Path, at: Path, framework: str) -> Path:  # noqa: F811 - the fixture
    """A fresh environment with Handrail and one framework. Returns its Python."""
    python = make_environment(at / framework)
    must(sys.executable, "-m", "pip", "--python", python, "install", "-q", wheel, FRAMEWORKS[framework], cwd=at)
    return python


@pytest.fixture(scope="session")
def played(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:  # noqa: F811
    """By framework and scenario: "", or what was raised."""
    ended: dict[tuple[str, str], str] = {}
    for framework in FRAMEWORKS:
        python = environment(wheel, tmp_path_factory.mktemp("environments"), framework)
        said = must(python, "-m", "tests.adapters.play", framework, cwd=ROOT)
        for line in said.splitlines():
            if line.startswith("["):
                scenario, error = json.loads(line)
                ended[framework, scenario] = error
    return ended


@pytest.mark.parametrize(("framework", "scenario"), PLAYED, ids="-".join)
def test_an_agent_uses_the_tools_of_a_session(
    played: dict[tuple[str, str], str], framework: str, scenario: str
) -> None:
    assert played[framework, scenario] == "", played[framework, scenario]


def test_a_scenario_that_fails_is_reported(wheel: Path, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    """The control: an agent without the adapter's middleware, which LangChain's silent end needs."""
    python = environment(wheel, tmp_path, "langchain")
    spoilt = (
        "from handrail.adapters import langchain; from langchain.agents.middleware import AgentMiddleware;"
        "langchain.middleware = lambda session: AgentMiddleware();"
        "from tests.adapters import play; import sys;"
        "sys.argv[1:] = ['langchain', 'the_text_that_the_model_wrote_reaches_the_session']; play.main()"
    )
    [line] = [line for line in must(python, "-c", spoilt, cwd=ROOT).splitlines() if line.startswith("[")]
    assert json.loads(line)[1] != ""
