"""A stored session is exported for evaluation and training, and an outcome that nobody knows has no reward."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from handrail import Agent, Call, Session, Store, Turn, Usage
from handrail.contract.model import Tokens
from handrail.testing import ScriptedModel

pytestmark = pytest.mark.anyio


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def stored(path: Path, *, reward: float | None) -> str:
    calls = (Call("x", "add", '{"a": 1, "b": 2}'), Call("y", "add", "nonsense"))
    sampled = Tokens((1, 2), (3, 4), (-0.5, -0.25))
    answers = [Turn("Let me add.", calls, usage=Usage(10, 5, cost=0.25), tokens=sampled), "It is 3."]
    async with Session([add], store=Store(path)) as session:
        await Agent(ScriptedModel(answers), session=session, system="Be exact.").run("What is 1 + 2?")
        if reward is not None:
            session.emit("scored", data={"task": "t", "sample": 0, "reward": reward, "meta": {"k": 1}})
        return session.id


async def test_chat_messages_are_those_of_openais_own_types(tmp_path: Path) -> None:
    id = await stored(tmp_path / "s.db", reward=0.5)
    made = Store(tmp_path / "s.db").trajectory(id, "chat")
    checked = TypeAdapter(list[ChatCompletionMessageParam]).validate_python(made["messages"])
    assert len(checked) == len(made["messages"]) == 6
    assert [each["role"] for each in made["messages"]] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert json.loads(made["messages"][3]["content"])["result"] == 3
    assert [each["tool_call_id"] for each in made["messages"][3:5]] == ["x", "y"]
    assert made["reward"] == 0.5


async def test_an_atif_trajectory_has_steps_results_tokens_and_the_reward(tmp_path: Path) -> None:
    id = await stored(tmp_path / "s.db", reward=0.5)
    made = Store(tmp_path / "s.db").trajectory(id, "atif")
    assert [(step["step_id"], step["source"]) for step in made["steps"]] == [
        (1, "system"), (2, "user"), (3, "agent"), (4, "agent"),
    ]  # fmt: skip
    step = made["steps"][2]
    assert [each["source_call_id"] for each in step["observation"]["results"]] == ["x", "y"]
    assert step["tool_calls"][1]["arguments"] == {"arguments": "nonsense"}
    assert step["metrics"]["completion_token_ids"] == [3, 4]
    assert step["metrics"]["logprobs"] == [-0.5, -0.25]
    assert made["extra"] == {"reward": 0.5, "task": "t", "sample": 0, "meta": {"k": 1}}
    assert made["final_metrics"]["total_cost_usd"] == 0.25


def rewards(trajectory: dict[str, Any]) -> list[Any]:
    """Every reward that is written anywhere in it."""
    text = json.dumps(trajectory)
    found: list[Any] = []
    json.loads(text, object_hook=lambda each: found.extend([each["reward"]] if "reward" in each else []))
    return found


@pytest.mark.parametrize("form", ["chat", "atif"])
async def test_a_session_that_nobody_scored_has_the_reward_null(tmp_path: Path, form: Any) -> None:
    lost, planted = await stored(tmp_path / "s.db", reward=None), await stored(tmp_path / "s.db", reward=0.0)
    store = Store(tmp_path / "s.db")
    assert rewards(store.trajectory(lost, form)) == [None]
    assert rewards(store.trajectory(planted, form)) == [0.0], "the check finds a zero where there is one"


HARBOR = """
import json, sys
from harbor.models.trajectories.trajectory import Trajectory
print(Trajectory.model_validate(json.load(sys.stdin)).extra["reward"])
"""


@pytest.mark.long
async def test_harbors_own_models_accept_the_trajectory(tmp_path: Path) -> None:
    python = Path(os.environ.get("HARBOR_PYTHON", ""))
    if not python.is_file():
        python = tmp_path / "harbor" / "bin" / "python"
        for argv in (["python3.12", "-m", "venv", "harbor"], [str(python), "-m", "pip", "install", "-q", "harbor"]):
            subprocess.run(argv, cwd=tmp_path, check=True, timeout=900, capture_output=True)
    made = Store(tmp_path / "s.db").trajectory(await stored(tmp_path / "s.db", reward=0.5), "atif")
    ran = subprocess.run(
        [str(python), "-c", HARBOR], input=json.dumps(made), capture_output=True, text=True, check=False
    )
    assert ran.stdout.strip() == "0.5", ran.stderr
