"""Make stored calls, as many as told, in a process of its own: `python loaded_program.py STORE CALLS WAIT_FOR`.

It begins when the file WAIT_FOR is there, and prints how many calls were refused, and the longest wait for a turn of
its event loop, as JSON.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from handrail import Budget, Failure, Session, Store


async def note(n: int) -> int:
    """Note a number."""
    return n


async def stalls(longest: list[float]) -> None:
    """Measure how long others hold the event loop."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(0.001)
        longest[0] = max(longest[0], time.monotonic() - began)


async def main(path: str, calls: int, wait_for: Path) -> None:
    print("ready", flush=True)
    while not wait_for.exists():
        time.sleep(0.001)
    store, refused, longest = Store(path), list[str](), [0.0]
    watching = asyncio.ensure_future(stalls(longest))
    async with Session([note], store=store, budget=Budget(calls=None, refusals=None)) as session:
        for n in range(calls):
            result = await session.call("note", {"n": n})
            if isinstance(result, Failure):
                refused.append(result.message)
    watching.cancel()
    same = list(store.events(session.id)) == list(session.trace)
    warnings = sum(event.type == "warning" for event in session.trace)
    print(json.dumps({"refused": refused, "same": same, "warnings": warnings, "stall": longest[0]}))


asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
