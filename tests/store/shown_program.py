"""Programs that write down what they are shown, and are killed right after: `shown_program ROOT STORE MOST KIND...`.

Each trial is a forked process with a directory of its own, ROOT/KIND-POINT, which has the file `shown` and the store.
It kills itself as soon as it has written its POINT-th line; with POINT 0 it goes on to its end.
"""

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

from handrail import (
    STANDARD,
    Agent,
    ApprovalRequest,
    Call,
    Context,
    Decision,
    Event,
    Message,
    Next,
    Policy,
    Result,
    Session,
    Step,
    Store,
    TextDelta,
    Turn,
    Usage,
    builtin_tools,
    tool,
)
from handrail.contract.model import Stop
from handrail.lazy import load_all
from handrail.session.session import core_of
from handrail.testing import ScriptedModel
from tests.store.killed_program import LateStore

ID = "s"
ASKS = Policy(mode="ask")
TASKS = [each for each in builtin_tools("all") if each.name in ("task", "ask_user", "complete")]


def value_of(result: Result) -> Any:
    return result.to_envelope("")["result"] if result.ok else result.message


class Shown:
    """Writes each line with one system call, and kills its process after the line that it was told."""

    def __init__(self, directory: Path, point: int) -> None:
        self._file = os.open(directory / "shown", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._left = point

    def __call__(self, *fact: Any) -> None:
        os.write(self._file, json.dumps(fact, default=str).encode() + b"\n")
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def event(self, event: Event) -> None:
        self("event", event.seq, event.type, event.call_id, event.data)

    def events(self, events: Sequence[Event]) -> None:
        self("events", [[event.seq, event.type, event.call_id, event.data] for event in events])

    def result(self, result: Result) -> None:
        self("result", value_of(result))

    def request(self, request: ApprovalRequest) -> None:
        self("request", request.id, request.text)


Kind = Callable[[Store, Shown], Awaitable[None]]
KINDS: dict[str, Kind] = {}


def kind(function: Kind) -> Kind:
    KINDS[function.__name__] = function
    return function


@tool(effects=["writes"])
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await asyncio.sleep(0)
    return a + b


@tool(effects=["reaches_out"], risk="high")
async def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


class Streams:
    """A model that writes in pieces, makes one call in each run, and answers in pieces; it shows what it is told."""

    name = "streams"

    def __init__(self, shown: Callable[[Sequence[Message]], None] = lambda _: None) -> None:
        self._shown = shown

    async def ask(self, messages: Sequence[Message], tools: Any, *, system: str) -> AsyncIterator[TextDelta | Turn]:
        self._shown(messages)
        for number in range(3):
            await asyncio.sleep(0)
            yield TextDelta(f"{len(messages)}.{number} ")
            yield TextDelta(f"{len(messages)}.{number}b ")
        call = Call(f"c{len(messages)}", "add", {"a": len(messages), "b": 1})
        if messages[-1].role == "user":
            yield Turn(f"call {len(messages)}", (call,), "tool_use", Usage(3, 2))
        else:  # a provider may pause an answer, and is asked to go on
            stop: Stop = "paused" if messages[-1].role == "tool" else "end"
            yield Turn(f"answer {len(messages)}", (), stop, Usage(3, 2))


def calling(*calls: Call) -> Turn:
    return Turn(calls=calls, stop="tool_use")


def session_in(store: Store, **options: Any) -> Session:
    return Session(**{"tools": [add, send, *TASKS], "policy": Policy(mode="open"), **options}, store=store, id=ID)


@kind
async def run(store: Store, shown: Shown) -> None:
    async with session_in(store) as session:
        agent = Agent(
            ScriptedModel(["one", "two", calling(Call("c", "add", {"a": 1, "b": 2})), "three"]), session=session
        )
        for prompt in ("first", "second", "third"):
            outcome = await agent.run(prompt)
            shown("outcome", outcome.reason, outcome.text)


@kind
async def ends(store: Store, shown: Shown) -> None:
    """Runs that end otherwise: with a question, with an error, cut, cancelled."""
    question = calling(Call("q", "ask_user", {"question": "Which one?"}))
    async with session_in(store) as session:
        agent = Agent(ScriptedModel([question, Turn("half of", stop="max_tokens")]), session=session)
        for prompt in ("first", "second", "no turn is left"):
            outcome = await agent.run(prompt)
            shown("outcome", outcome.reason, outcome.text)

        class Hangs:
            async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[Turn]:
                await anyio.sleep_forever()
                yield Turn("never")

        with anyio.move_on_after(0.01):
            await Agent(Hangs(), session=session).run("third")
        shown("outcome", "cancelled", "")


@kind
async def stream(store: Store, shown: Shown) -> None:
    async with session_in(store) as session:
        async for event in Agent(Streams(), session=session).stream("go"):
            shown.event(event)


@kind
async def reader(store: Store, shown: Shown) -> None:
    async with session_in(store, readers=[shown.event]) as session:
        await Agent(Streams(), session=session).run("go")


@kind
async def async_reader(store: Store, shown: Shown) -> None:
    async def read(event: Event) -> None:
        shown.event(event)

    async with session_in(store, readers=[read]) as session:
        await Agent(Streams(), session=session).run("go")


@kind
async def follower(store: Store, shown: Shown) -> None:
    async def follow(session: Session) -> None:
        async for event in session.events():
            shown.event(event)

    async with anyio.create_task_group() as group, session_in(store) as session:
        group.start_soon(follow, session)
        await Agent(Streams(), session=session).run("go")


@kind
async def looks(store: Store, shown: Shown) -> None:
    """What a program reads of a session while it runs."""

    async with session_in(store) as session:

        def look(_: Sequence[Message]) -> None:
            shown("told", [message.text for message in agent.messages])
            shown("usage", agent.usage.input_tokens)
            shown.events(session.trace)

        agent = Agent(Streams(look), session=session)
        await agent.run("go")
        session.emit("warning", data={"message": "by the program"})
        shown.events(session.trace)
        shown("told", [message.text for message in agent.messages])


@kind
async def model(store: Store, shown: Shown) -> None:
    """A model may be a person, who reads what it is told."""

    def told(messages: Sequence[Message]) -> None:
        results = [result for message in messages for result in message.results]
        shown("told", [message.text for message in messages])
        for result in results:
            shown.result(result)

    async with session_in(store) as session:
        agent = Agent(Streams(told), session=session, steer=lambda state: "Go on like this.")
        await agent.run("go")
        await agent.run("go on")


@kind
async def call(store: Store, shown: Shown) -> None:
    async with session_in(store) as session:
        shown.result(await session.call("add", {"a": 1, "b": 2}))
        shown.result(await session.call("add", {"a": "x"}))
        shown.result(await session.call("nothing"))


@kind
async def call_all(store: Store, shown: Shown) -> None:
    class Into(dict[int, Result]):
        def __setitem__(self, number: int, result: Result) -> None:
            shown.result(result)
            super().__setitem__(number, result)

    calls = [Call(f"c{n}", "add", {"a": n, "b": 1}) for n in range(3)]
    async with session_in(store) as session:
        for result in await session.call_all(calls, into=Into()):
            shown.result(result)


@kind
async def begin(store: Store, shown: Shown) -> None:
    async with session_in(store, policy=ASKS) as session:
        pending = session.begin("add", {"a": 2, "b": 1})
        shown("begun", pending.id)
        asked = await pending.next()
        assert isinstance(asked, ApprovalRequest)
        shown.request(asked)
        pending.answer(asked.id, Decision.edit({"a": 5, "b": 1}))
        result = await pending.next()
        assert not isinstance(result, ApprovalRequest)
        shown.result(result)
        for waits in (True, False):  # for its approval, or not even that
            cancelled = session.begin("add", {"a": 3, "b": 1})
            if waits:
                await cancelled.next()
            cancelled.cancel()
            result = await cancelled.next()
            assert not isinstance(result, ApprovalRequest)
            shown.result(result)


@kind
async def approver(store: Store, shown: Shown) -> None:
    async def approve(request: ApprovalRequest) -> Decision:
        shown.request(request)
        return Decision.approve()

    async with session_in(store, policy=ASKS, approver=approve) as session:
        await session.call("add", {"a": 1, "b": 2})
        await Agent(ScriptedModel([calling(Call("c", "send", {"text": "x"})), "sent"]), session=session).run("go")


@kind
async def plain_approver(store: Store, shown: Shown) -> None:
    def deny(request: ApprovalRequest) -> Decision:
        shown.request(request)
        return Decision.deny("no")

    async with session_in(store, policy=ASKS, approver=deny) as session:
        shown.result(await session.call("add", {"a": 1, "b": 2}))


@kind
async def ask_user(store: Store, shown: Shown) -> None:
    class Person:
        async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
            shown("told", [question])
            return "this one"

    async with session_in(store, host=Person()) as session:
        question = calling(Call("q", "ask_user", {"question": "Which one?"}))
        outcome = await Agent(ScriptedModel([question, "thanks"]), session=session).run("go")
        shown("outcome", outcome.reason, outcome.text)


@kind
async def inside(store: Store, shown: Shown) -> None:
    """What a body gets of the calls and the tasks that it makes, and a gate of the call."""

    @tool
    async def uses(context: Context) -> str:
        """Use another tool, and give a task."""
        context.show("on the way")
        shown.result(await context.use("add", {"a": 3, "b": 4}))
        part: Any = await context.host.spawn("a part")
        shown("told", [part.value["text"]])
        return "used"

    async def gate(step: Step, proceed: Next) -> Result:
        result = await proceed(step)
        shown.result(result)
        return result

    async with session_in(store, tools=[add, uses, *TASKS], gates=[gate, *STANDARD]) as session:
        turns = [calling(Call("u", "uses", {})), calling(Call("t", "add", {"a": 1, "b": 1})), "the part", "the whole"]
        outcome = await Agent(ScriptedModel(turns), session=session).run("go")
        shown("outcome", outcome.reason, outcome.text)


@kind
async def resume(store: Store, shown: Shown) -> None:
    """Of a session that was interrupted in a call."""
    session = Session.resume(store, ID, tools=[add], policy=Policy(mode="open"))
    shown("resumed", session.id)
    async with session:
        shown.events(session.trace)
        agent = Agent(Streams(), session=session)
        shown("told", [message.text for message in agent.messages])
        outcome = await agent.run("go on")
        shown("outcome", outcome.reason, outcome.text)


async def interrupted(store: Store, shown: Shown) -> None:
    """Leave a session with a call that ran and did not end."""

    @tool(name="add")
    async def dies(a: int, b: int) -> None:
        """Die."""
        os.kill(os.getpid(), signal.SIGKILL)

    await Agent(Streams(), session=session_in(store, tools=[dies])).run("go")


@kind
async def raw(store: Store, shown: Shown) -> None:
    """The control: it shows what the loop reads for itself, stored or not."""

    async with session_in(store) as session:

        def look(_: Sequence[Message]) -> None:
            shown.events(core_of(session).transcript.since(0))

        await Agent(Streams(look), session=session).run("go")


def trial(root: Path, name: str, point: int, late: bool) -> tuple[int, bool]:
    """Run a kind in a process of its own. Returns how many lines it wrote, and whether it was killed."""
    directory = root / f"{name}-{point}"
    directory.mkdir()
    if name == "resume":
        forked(interrupted, Store, directory, 0)
    status = forked(KINDS[name], LateStore if late else Store, directory, point)
    killed = status == -signal.SIGKILL
    if status and not killed:
        sys.exit(f"{name} failed at point {point}")
    return (directory / "shown").read_bytes().count(b"\n"), killed


def forked(kind: Kind, store: type[Store], directory: Path, point: int) -> int:
    """The exit code of a forked process that runs the kind; minus the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(kind(store(directory / "sessions.db"), Shown(directory, point)))  # type: ignore[arg-type]
            code = 0
        except BaseException:  # noqa: BLE001 - told below, by the exit code
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(root: Path, late: bool, most: int, names: Sequence[str]) -> None:
    """Run each kind to its end, then once for each line that it wrote; of many lines, for `most` of them."""
    load_all()
    for name in names:
        lines, _ = trial(root, name, 0, late)
        for point in sorted({1 + round(each * (lines - 1) / (most - 1)) for each in range(most)}):
            if not trial(root, name, point, late)[1]:
                sys.exit(f"{name} was not killed at point {point}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "late", int(sys.argv[3]), sys.argv[4:])
