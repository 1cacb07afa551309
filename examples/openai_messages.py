"""OpenAI's messages by hand: your client and your loop, with Handrail below them.

With OPENAI_API_KEY it asks the model in MODEL. Without a key it plays answers that were recorded.
"""

import json
import os
from typing import Any

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion

from handrail import Call, Session, builtin_tools, open_sandbox, run_sync

MODEL = os.environ.get("MODEL", "gpt-5-mini")
PROGRAM = json.dumps({"path": "sum.py", "content": "print(sum(range(101)))\n"})
RUN = '{"command": "python3 sum.py", "timeout": "9"}'
RECORDED: list[dict[str, Any]] = [
    {
        "content": "I write a program and run it.",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "write", "arguments": PROGRAM}},
            {"id": "call_2", "type": "function", "function": {"name": "bash", "arguments": RUN}},
        ],
    },
    {"content": "The sum is 5050."},
]


async def ask(client: AsyncOpenAI | None, messages: list[Any], tools: Any) -> ChatCompletion:
    if client is not None:
        return await client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
    said = {"role": "assistant", **RECORDED[sum(it["role"] == "assistant" for it in messages)]}
    head = {"id": "c", "object": "chat.completion", "created": 0, "model": "recorded"}
    return ChatCompletion.model_validate({**head, "choices": [{"index": 0, "finish_reason": "stop", "message": said}]})


async def main() -> None:
    client = AsyncOpenAI() if os.environ.get("OPENAI_API_KEY") else None
    print(f"model: {MODEL}" if client else "model: recorded, because OPENAI_API_KEY is not set")
    messages: list[Any] = [{"role": "user", "content": "Add the numbers from 1 to 100 with a program."}]
    async with open_sandbox() as sandbox, Session(builtin_tools(), sandbox=sandbox) as session:
        while messages[-1]["role"] != "assistant":
            said = (await ask(client, messages, session.schemas("openai"))).choices[0].message
            messages.append(said.to_dict())
            print(said.content or "")
            asked = [it for it in said.tool_calls or () if it.type == "function"]
            calls = [Call(it.id, it.function.name, it.function.arguments) for it in asked]
            for call, result in zip(calls, await session.call_all(calls), strict=True):
                text = json.dumps(result.to_envelope(call.name))
                print("tool:", text[:71], "…")
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


run_sync(main)
# > model: recorded, because OPENAI_API_KEY is not set
# > I write a program and run it.
# > tool: {"ok": true, "tool": "write", "result": {"path": "sum.py", "bytes_writt …
# > tool: {"ok": true, "tool": "bash", "result": {"exit_code": 0, "stdout": "5050 …
# > The sum is 5050.
