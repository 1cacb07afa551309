"""The Host of an agent's loop: what a tool may ask of the program that runs it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import anyio

from handrail.aio import finish, in_background
from handrail.contract.errors import HandrailError, ToolFailed
from handrail.contract.event import Event
from handrail.contract.result import Failure, Image, Result
from handrail.misuse import expect
from handrail.toolkit.context import Host

if TYPE_CHECKING:
    from handrail.session.session import Session

StartTask = Callable[[str, int, str, str, Sequence[str] | None, str | None], Awaitable[Result]]
"""Of the call with this id, its task of this number: prompt, role, tools, cwd."""


def check_run(session: "Session", prompt: str, images: Sequence[Image]) -> None:
    """Raise HandrailError where no run can begin: two at once would leave calls without results.

    Also for a prompt that no model could answer.
    """
    expect("the prompt", prompt, str, "a text")
    expect("images", images, Sequence, "a list: [Image(data, media_type)]")
    for image in images:
        expect("one of the images", image, Image, "Image(data, media_type)")
    if not prompt.strip() and not images:
        raise HandrailError("the prompt is blank: say what the model should do")
    if session.ended:
        raise HandrailError(f"session {session.id} is closed; open a new one, or resume it from its store")
    if isinstance(session.host.outer, LoopHost):
        raise HandrailError(f"session {session.id} has a run already; wait for its end, or use another session")


class LoopHost:
    """The loop as a tool sees it. `finish` ends it; so does a question, which the person reads in the outcome."""

    def __init__(self, start: StartTask, outer: Host | None = None, *, inside_task: bool = False) -> None:
        self.ended: tuple[Literal["done", "asked_user"], str] | None = None
        self.person = outer
        """The session's own host, which is asked first."""
        self._start = start
        self._inside_task = inside_task

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        if (ask := getattr(self.person, "ask", None)) is not None:
            answer: str = await ask(question, choices)
            return answer
        listed = "".join(f"\n- {choice}" for choice in choices)
        self.ended = ("asked_user", question + listed)
        raise ToolFailed(
            Failure(
                "unavailable",
                "The question was passed to the user, who answers with the next message.",
                retryable=False,
            )
        )

    async def start_task(
        self, call_id: str, number: int, prompt: str, role: str, tools: Sequence[str] | None, cwd: str | None
    ) -> Result:
        """Start task `number` of a call, unless the session's own host does."""
        if (spawn := getattr(self.person, "spawn", None)) is not None:
            try:
                result: Result = await spawn(prompt, role=role, tools=tools, cwd=cwd)
                return result
            except ToolFailed as error:
                if error.failure.kind != "unavailable":
                    raise
        return await self._start(call_id, number, prompt, role, tools, cwd)

    def finish(self, summary: str) -> None:
        self.ended = ("done", summary)
        if (finish := getattr(self.person, "finish", None)) is not None and not self._inside_task:
            finish(summary)


async def watch_run(session: "Session", run: Callable[[], Awaitable[Any]]) -> AsyncIterator[Event]:
    """Yield the events of a run until it has ended.

    The run has its own task, because a generator that is left early may be closed in another task.
    """
    failed: list[BaseException] = []

    async def work() -> None:
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    seen = len(session.trace)
    task, ended = in_background(work()), anyio.Event()
    task.add_done_callback(lambda _: ended.set())
    try:
        async for event in session.events(seen):
            yield event
            if event.type == "run_ended" and event.parent == session.task:  # of this run, not of a task in it
                break
        else:
            raise HandrailError(f"session {session.id} was closed before its run ended")
    except BaseException:
        task.cancel()
        raise
    finally:
        await finish(ended.wait)
    if failed:
        raise failed[0]
