"""Anthropic's messages by hand: your client and your loop, with Handrail below them.

With ANTHROPIC_API_KEY it asks the model in MODEL. Without a key it plays answers that were recorded.
"""

import json
import os
from typing import Any

from anthropic import AsyncAnthropic
from anthropic.types import Message

from handrail import Call, Session, builtin_tools, open_sandbox, run_sync

MODEL = os.environ.get("MODEL", "claude-haiku-4-5")
PROGRAM = {"path": "sum.py", "content": "print(sum(range(101)))\n"}
RECORDED: list[list[dict[str, Any]]] = [
    [
        {"type": "text", "text": "I write a program and run it."},
        {"type": "tool_use", "id": "toolu_1", "name": "write", "input": PROGRAM},
        {"type": "tool_use", "id": "toolu_2", "name": "bash", "input": {"command": "python3 sum.py", "timeout": "9"}},
    ],
    [{"type": "text", "text": "The sum is 5050."}],
]


async def ask(client: AsyncAnthropic | None, messages: list[Any], tools: Any) -> Message:
    if client is not None:
        return await client.messages.create(model=MODEL, max_tokens=1000, messages=messages, tools=tools)
    usage = {"input_tokens": 0, "output_tokens": 0}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "recorded", "usage": usage}
    return Message.model_validate({**head, "content": RECORDED[len(messages) // 2]})


async def main() -> None:
    client = AsyncAnthropic() if os.environ.get("ANTHROPIC_API_KEY") else None
    print(f"model: {MODEL}" if client else "model: recorded, because ANTHROPIC_API_KEY is not set")
    messages: list[Any] = [{"role": "user", "content": "Add the numbers from 1 to 100 with a program."}]
    async with open_sandbox() as sandbox, Session(builtin_tools(), sandbox=sandbox) as session:
        while messages[-1]["role"] == "user":
            said = await ask(client, messages, session.schemas("anthropic"))
            messages.append({"role": "assistant", "content": said.content})
            print(*(block.text for block in said.content if block.type == "text"))
            uses = [block for block in said.content if block.type == "tool_use"]
            calls = [Call(use.id, use.name, use.input) for use in uses]
            answers: list[Any] = []
            for call, result in zip(calls, await session.call_all(calls), strict=True):
                text = json.dumps(result.to_envelope(call.name))
                print("tool:", text[:71], "…")
                answers.append({"type": "tool_result", "tool_use_id": call.id, "content": text})
            if answers:
                messages.append({"role": "user", "content": answers})


run_sync(main)
# > model: recorded, because ANTHROPIC_API_KEY is not set
# > I write a program and run it.
# > tool: {"ok": true, "tool": "write", "result": {"path": "sum.py", "bytes_writt …
# > tool: {"ok": true, "tool": "bash", "result": {"exit_code": 0, "stdout": "5050 …
# > The sum is 5050.
