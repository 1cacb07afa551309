"""Write the golden store: `python tests/store/make_golden.py`, when the format changes. Older ones stay beside it.

A later version must open every store below golden/. Each has the number of its format.
"""

import asyncio
import json
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from handrail import (
    Agent,
    Call,
    Context,
    Decision,
    Failure,
    Image,
    Message,
    Policy,
    Session,
    Store,
    ToolFailed,
    Turn,
    Usage,
    tool,
)
from handrail.session.session import core_of
from handrail.store._database import MIGRATIONS
from handrail.testing import ScriptedModel

GOLDEN = Path(__file__).with_name("golden")
PICTURE = b"\x89PNG\r\n\x1a\n golden"


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(risk="high", effects=["writes"])
async def note(text: str, context: Context) -> dict[str, Any]:
    """Note a text, show it, and draw it."""
    context.show(f"noting {text}\n")
    memory = context.memory("note", lasts=True)
    memory["texts"] = [*memory.get("texts", []), text]
    kept = await context.artifacts.put(f"kept: {text}\n" * 3, name="note.txt")
    return {"kept": kept, "drawn": Image(PICTURE)}


@tool
async def fail() -> None:
    """Fail."""
    raise ToolFailed(Failure("not_found", "There is none.", data={"tried": 2}))


TOOLS = [add, note, fail]


async def remember(request: object) -> Decision:
    return Decision.remember()


def options() -> dict[str, Any]:
    """Those of the session in the golden store."""
    return {"tools": TOOLS, "policy": Policy(mode="ask"), "approver": remember}


def as_json(messages: Sequence[Message]) -> str:
    """What a model is told."""
    return json.dumps(
        [
            {
                "role": message.role,
                "text": message.text,
                "calls": [[call.id, call.name, call.arguments, call.cut] for call in message.calls],
                "results": [[result.to_envelope("tool"), repr(result.value)] for result in message.results],
                "keep": message.keep,
            }
            for message in messages
        ],
        indent=1,
    )


async def fill(store: Store) -> str:
    """Two runs of a session, and a second session that was interrupted in a call. Returns the first one's messages."""
    lines = [
        Turn("Let me see.", (Call("a", "add", '{"a": 1, "b": "2"}'), Call("b", "note", {"text": "é 1"})), "tool_use",
             Usage(10, 5), keep={"signature": "c2lnbmVk"}),
        "First.",
        Turn("", (Call("a", "fail", "{}"), Call("c", "nothing", "{}"), Call("d", "add", '{"a": 1')), "max_tokens"),
        Turn("", (Call("e", "note", {"text": "two"}),)),
        "Second.",
    ]  # fmt: skip
    session = Session(**options(), store=store, id="golden")
    agent = Agent(ScriptedModel(lines), session=session, system="Be brief.")
    async with session:
        await agent.run("Add and note.\nPlease.")
        await agent.run("Again.")
    open_one = Session([add], store=store, id="interrupted")
    await open_one.__aenter__()
    open_one.emit("run_started", data={"model": "m", "rounds": 1})
    open_one.emit("user", data={"text": "Never answered", "images": []})
    calls = [{"id": "x", "name": "add", "arguments": "{}", "cut": False}]
    answered = {"text": "", "calls": calls, "stop": "tool_use", "model": "m", "usage": {}, "keep": None}
    open_one.emit("model_answered", data=answered)
    open_one.emit(
        "call_started", "x", None, {"tool": "add", "arguments": "{}", "arguments_hash": "h", "origin": "model"}
    )
    core_of(open_one).begin_body("x", None)
    return as_json(agent.messages)


def main() -> None:
    home = GOLDEN / f"format-{len(MIGRATIONS)}"
    shutil.rmtree(home, ignore_errors=True)
    store = Store(home / "sessions.db")
    messages = asyncio.run(fill(store))
    (home / "messages.json").write_text(messages + "\n", encoding="ascii")
    for id in ("golden", "interrupted"):
        (home / f"{id}.jsonl").write_text("\n".join(store.export(id)) + "\n", encoding="ascii")
    store.close()
    with closing(sqlite3.connect(home / "sessions.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("VACUUM")
    shutil.rmtree(home / "sessions.db.claims", ignore_errors=True)
    for left in home.glob("sessions.db-*"):
        left.unlink()
    shutil.rmtree(home / "sessions.db.artifacts" / "incoming", ignore_errors=True)
    print(f"{home}: {sum(path.stat().st_size for path in home.rglob('*') if path.is_file()):,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
