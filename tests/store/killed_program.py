"""An agent that appends numbered lines to a file, shows every event it sees, and may be killed at any moment."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from handrail import Agent, Call, Event, Message, Policy, Session, Store, Turn, tool
from handrail.store.stored import StoredSession

LINES = 40


class Counts:
    """A model that asks for two lines at a time, the next ones, whatever came of the last; then it is done."""

    name = "counts"

    async def ask(self, messages: Sequence[Message], tools: Any, *, system: str) -> AsyncIterator[Turn]:
        await asyncio.sleep(0)
        asked = sum(len(message.calls) for message in messages)
        made = [Call(f"c{n}", "append", {"n": n}) for n in range(asked, min(asked + 2, LINES))]
        yield Turn("" if made else "done", tuple(made), "tool_use" if made else "end")


class Late(StoredSession):
    """Writes only when it is closed."""

    def append(self, events: Any, changed: Any = ()) -> None:
        self.__dict__.setdefault("waiting", []).extend(events)

    def close(self) -> None:
        super().append(self.__dict__.pop("waiting", []))
        super().close()


class LateStore(Store):
    def claim(self, id: str, *, exists: bool = False) -> StoredSession:
        stored = super().claim(id, exists=exists)
        return Late(stored._database, stored._claim, stored._mark, stored.id, stored._number)


async def main(directory: Path, late: bool) -> None:
    @tool(effects=["writes"])
    async def append(n: int) -> str:
        """Append a line."""
        with (directory / "effects").open("a") as file:
            file.write(f"{n}\n")
        await asyncio.sleep(0.001)
        return f"appended {n}"

    def show(event: Event) -> None:
        sys.stdout.write(json.dumps([event.seq, event.type, event.call_id]) + "\n")
        sys.stdout.flush()

    store = (LateStore if late else Store)(directory / "sessions.db")
    known = [each.id for each in store.sessions()]
    options: dict[str, Any] = {"tools": [append], "readers": [show], "policy": Policy(mode="open")}
    if known:
        agent = Agent.resume(Counts(), store, known[0], **options)
    else:
        agent = Agent(Counts(), session=Session(**options, store=store))
    async with agent.session:
        outcome = await agent.run("go on")
    sys.stdout.write(json.dumps(["ended", outcome.reason]) + "\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] == "late"))
