"""A whole agent without a key or a network: a model that says what it was told to say, and a real loop around it."""

from handrail import Agent, Call, run_sync, tool
from handrail.testing import ScriptedModel, Turn


@tool
async def stock(item: str) -> int:
    """How many of an item are there?"""
    return {"apples": 3, "pears": 0}[item]


model = ScriptedModel(
    [
        Turn("I will look.", calls=(Call("1", "stock", '{"item": "apples"}'), Call("2", "stok", '{"item": "pears"}'))),
        Turn("One name was wrong.", calls=(Call("3", "stock", '{"item": "pears"}'),)),
        lambda messages: f"No pears, for the stock says {messages[-1].results[0].value}.",
    ]
)


async def main() -> None:
    agent = Agent(model, tools=[stock])
    async for event in agent.stream("What do we have?"):
        if event.type == "text":
            print("model:", event.data["text"])
        if event.type == "call_ended":
            print("tool: ", event.data["tool"], event.data["status"], event.data["kind"] or "")
        if event.type == "run_ended":
            print(event.data["reason"])


run_sync(main)
# > model: I will look.
# > tool:  stock ok
# > tool:  stok failed tool_not_found
# > model: One name was wrong.
# > tool:  stock ok
# > model: No pears, for the stock says 0.
# > done
