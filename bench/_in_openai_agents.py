"""An agent of the OpenAI Agents SDK that calls `plus`, for the bench of adapters."""

from agents import Agent, RunConfig, Runner, Tool, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from bench.adapters import plus
from handrail import Session
from handrail.adapters import openai_agents


async def play(count: int, session: Session | None) -> None:
    calls = [function_call("plus", '{"a": 1, "b": 1}', call_id=f"call-{number}") for number in range(count)]
    tools: list[Tool] = [function_tool(plus)] if session is None else [*openai_agents.tools(session)]
    agent = Agent(name="bench", model=ScriptedModel([calls, [assistant_message("done")]]), tools=tools)
    await Runner.run(agent, "go", run_config=RunConfig(tracing_disabled=True))
