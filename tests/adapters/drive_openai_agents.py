"""An agent of the OpenAI Agents SDK whose model, its own ScriptedModel, plays a script."""

from base64 import b64decode
from itertools import count

from agents import Agent, RunConfig, Runner
from agents.testing import ScriptedModel, assistant_message, function_call

from handrail import Session
from handrail.adapters import openai_agents
from tests.adapters.scenarios import Rounds, Run, Told


class OpenAIAgents:
    gives_text = True
    images = True
    streams = False

    def agent(self, session: Session, shown: list[str] | None = None) -> Run:
        tools, ids = openai_agents.tools(session), count()

        async def run(rounds: Rounds) -> list[list[Told]]:
            steps = [
                [function_call(ask.name, ask.text, call_id=f"call-{next(ids)}") for ask in asked] for asked in rounds
            ]
            model = ScriptedModel([*steps, [assistant_message("done")]])
            agent = Agent(name="tester", model=model, tools=tools)
            done = await Runner.run(agent, "go", max_turns=50, run_config=RunConfig(tracing_disabled=True))
            assert done.final_output == "done"
            outputs = [each for each in model.calls[-1].input if each.get("type") == "function_call_output"]
            told = iter([as_told(each["output"]) for each in outputs])
            return [[next(told) for _ in asked] for asked in rounds]

        return run


def as_told(output: object) -> Told:
    if isinstance(output, str):
        return Told(output)
    assert isinstance(output, list)
    [text] = [part["text"] for part in output if part["type"] == "input_text"]
    urls = [part["image_url"] for part in output if part["type"] == "input_image"]
    return Told(text, tuple(b64decode(url.partition("base64,")[2]) for url in urls))


FRAMEWORK = OpenAIAgents()
