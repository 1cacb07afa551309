"""Show a run as events while it happens; whoever stops watching ends it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio

from handrail.aio import finish
from handrail.contract.errors import HandrailError
from handrail.contract.event import Event
from handrail.sandbox.background import in_background
from handrail.session.session import Session


async def watch(session: Session, run: Callable[[str], Awaitable[Any]], prompt: str) -> AsyncIterator[Event]:
    """The run has a task of its own, because a generator that is left early may be closed in any other."""
    failed: list[BaseException] = []

    async def work() -> None:
        try:
            await run(prompt)
        except Exception as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    seen = len(session.trace)
    task, ended = in_background(work()), anyio.Event()
    task.add_done_callback(lambda _: ended.set())
    try:
        async for event in session.events(seen):
            yield event
            if event.type == "run_ended":
                break
        else:
            raise HandrailError(f"session {session.id} was closed before its run had ended")
    except BaseException:
        task.cancel()
        raise
    finally:
        await finish(ended.wait)
    if failed:
        raise failed[0]
