"""What every adapter must do inside a real agent of its framework. It runs where no test tool is installed.

A driver, `drive_FRAMEWORK.py`, has the framework's own test model say a script: rounds of calls, then a last text.
"""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import anyio

from handrail import Budget, Decision, Image, Policy, Session, builtin_tools, open_sandbox
from handrail.testing import HeldApprovals

PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d494844520000000100000001080600000"
    "01f15c4890000000d49444154789c63f8cfc0f01f0005000"
    "1ff56c72f0d0000000049454e44ae426082"
)
"""A PNG of one pixel."""
PATIENCE = 60.0
"""Seconds to wait for what must happen, on a busy machine."""


@dataclass(frozen=True)
class Ask:
    """A call as the model writes it."""

    name: str
    text: str


@dataclass(frozen=True)
class Told:
    """What the model is told of a call."""

    text: str
    images: tuple[bytes, ...] = ()

    @property
    def envelope(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.text)
        return read


Rounds = Sequence[Sequence[Ask]]
Run = Callable[[Rounds], Awaitable[list[list[Told]]]]
"""One run of the agent: the model makes the calls of each round at once. Returns what it was told, by round."""


class Framework(Protocol):
    """A framework's agent, over the tools of a session."""

    gives_text: bool
    """Whether arguments reach the session as the model wrote them."""
    images: bool
    """Whether its models are shown pictures."""

    streams: bool
    """Whether a running tool can show something."""

    def agent(self, session: Session, shown: list[str] | None = None) -> Run:
        """An agent whose every run plays a script. What a running call shows is added to `shown`."""


def asks(name: str, **arguments: Any) -> Ask:
    return Ask(name, json.dumps(arguments))


@asynccontextmanager
async def coding(**options: Any) -> AsyncIterator[Session]:
    """A session with the built-in tools in a jail."""
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(open_sandbox())
        yield await stack.enter_async_context(Session(builtin_tools(), sandbox=sandbox, **options))


async def until(reached: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE):
        while not reached():  # noqa: ASYNC110 - what another process does sets no event
            await anyio.sleep(0.02)


class Child:
    """A process that leaves its session and its process group, known by the number of seconds that it sleeps."""

    def __init__(self) -> None:
        self.seconds = f"{random.randrange(10**7, 10**8)}.5"
        self.line = f"setsid sleep {self.seconds} & sleep {self.seconds}"

    def count(self) -> int:
        found = 0
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                found += Path("/proc", process, "cmdline").read_bytes() == f"sleep\0{self.seconds}\0".encode()
            except OSError:
                pass  # it has just ended
        return found

    async def becomes(self, count: int) -> None:
        await until(lambda: self.count() == count)


def meeting() -> Callable[[str], Awaitable[str]]:
    """A tool that answers once two of its calls run."""
    arrived: list[str] = []
    both = anyio.Event()

    async def meet(who: str) -> str:
        """Wait for the other one."""
        arrived.append(who)
        if len(arrived) == 2:
            both.set()
        with anyio.fail_after(PATIENCE):
            await both.wait()
        return who

    return meet


async def calls_of_one_round_run_at_once(framework: Framework) -> None:
    async with Session([meeting()]) as session:
        [[first, second]] = await framework.agent(session)([[asks("meet", who="a"), asks("meet", who="b")]])
    assert (first.envelope["result"], second.envelope["result"]) == ({"text": "a"}, {"text": "b"})


async def runs_at_once_keep_their_calls_apart(framework: Framework) -> None:
    told: dict[str, Told] = {}

    async with Session([meeting()]) as session, anyio.create_task_group() as group:
        run = framework.agent(session)

        async def one(who: str) -> None:
            text = json.dumps({"who": who})
            [[told[who]]] = await run([[Ask("meet", f"```json\n{text}\n```" if framework.gives_text else text)]])

        group.start_soon(one, "a")
        group.start_soon(one, "b")
    assert {who: each.envelope["result"] for who, each in told.items()} == {"a": {"text": "a"}, "b": {"text": "b"}}


async def an_argument_with_one_meaning_is_repaired(framework: Framework) -> None:
    def double(number: int, loud: bool = False) -> int:
        """Twice the number."""
        return number * (4 if loud else 2)

    async with Session([double]) as session:
        [[told]] = await framework.agent(session)([[Ask("double", '{"number": "21", "loud": "no"}')]])
    assert told.envelope["result"] == 42


async def the_text_that_the_model_wrote_reaches_the_session(framework: Framework) -> None:
    """Text that is no JSON is repaired where it has one meaning, and else answered; the run goes on."""

    def double(number: int) -> int:
        """Twice the number."""
        return number * 2

    fenced, cut = '```json\n{"number": 21}\n```', '{"number": 2'
    async with Session([double]) as session:
        rounds = [[Ask("double", fenced)], [Ask("double", cut)], [asks("double", number=3)]]
        [[repaired], [bounced], [fine]] = await framework.agent(session)(rounds)
        started = [event.data["arguments"] for event in session.trace if event.type == "call_started"]
    assert fine.envelope["result"] == 6
    if framework.gives_text:
        assert repaired.envelope["result"] == 42
        assert bounced.envelope["kind"] == "invalid_args"
        assert started[:2] == [fenced, cut]


async def a_call_that_cannot_run_comes_back_with_instructions(framework: Framework) -> None:
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"{city}: sunny"

    def broken() -> None:
        """Fail."""
        raise RuntimeError("no luck")

    async with Session([weather, broken]) as session:
        rounds = [[asks("weather", town=3)], [asks("broken")], [asks("weather", city="Oslo")]]
        [[bounced], [failed], [fine]] = await framework.agent(session)(rounds)
    assert (bounced.envelope["ok"], bounced.envelope["kind"]) == (False, "invalid_args")
    assert "`city` is missing" in bounced.envelope["message"]
    assert (failed.envelope["ok"], failed.envelope["kind"]) == (False, "execution_error")
    assert fine.envelope["result"] == {"text": "Oslo: sunny"}


async def a_timeout_kills_a_child_that_left_its_process_group(framework: Framework) -> None:
    child = Child()
    async with coding() as session, anyio.create_task_group() as group:
        group.start_soon(child.becomes, 2)  # the control: they have been there
        [[told]] = await framework.agent(session)([[asks("bash", command=child.line, timeout=3)]])
        assert told.envelope["kind"] == "timeout"
        await child.becomes(0)


async def the_session_asks_a_person(framework: Framework) -> None:
    approvals = HeldApprovals()

    async def answer() -> None:
        for decision in (Decision.approve(), Decision.deny("not this")):
            request = await approvals.next()
            assert approvals.answer(request.id, decision)

    asked = coding(policy=Policy(ask=["bash"]), approver=approvals)
    async with asked as session, anyio.create_task_group() as group:
        group.start_soon(answer)
        run = framework.agent(session)
        [[allowed], [denied]] = await run([[asks("bash", command="echo hi")], [asks("bash", command="echo no")]])
    assert allowed.envelope["result"]["stdout"] == "hi\n"
    assert (denied.envelope["kind"], "not this" in denied.envelope["message"]) == ("user_denied", True)


async def a_picture_reaches_the_model(framework: Framework) -> None:
    def draw() -> Image:
        """Draw one pixel."""
        return Image(PICTURE)

    async with Session([draw]) as session:
        [[told]] = await framework.agent(session)([[asks("draw")]])
    shown = told.envelope["result"]
    assert shown.pop("$artifact"), "a model can pass it on"
    assert shown == {"kind": "image", "media_type": "image/png", "size": len(PICTURE)}
    assert told.images == ((PICTURE,) if framework.images else ())


async def a_megabyte_of_output_is_cut_and_kept(framework: Framework) -> None:
    async with coding() as session:
        [[told]] = await framework.agent(session)([[asks("bash", command="head -c 1000000 /dev/zero | tr '\\0' x")]])
    assert told.envelope["result"]["exit_code"] == 0
    assert 1_000 < len(told.text) < 60_000
    assert "read_artifact(" in told.envelope["warnings"][0]


async def a_cancelled_run_ends_its_command(framework: Framework) -> None:
    """By the event loop itself, and by a scope of anyio, which cancels again until the run has ended."""
    async with coding() as session:
        for shown in [None, list[str]()] if framework.streams else [None]:
            run, child = framework.agent(session, shown), Child()
            running = asyncio.ensure_future(run([[asks("bash", command=child.line)]]))
            await child.becomes(2)
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled()
            await child.becomes(0)
            child = Child()
            async with anyio.create_task_group() as group:
                group.start_soon(run, [[asks("bash", command=child.line)]])
                await child.becomes(2)
                group.cancel_scope.cancel()
            await child.becomes(0)
        ended = lambda: [event.data["kind"] for event in session.trace if event.type == "call_ended"]  # noqa: E731
        await until(lambda: len(ended()) == (4 if framework.streams else 2))
        assert set(ended()) == {"cancelled"}


async def six_hundred_calls_and_sixty_bounces_fit_into_a_session(framework: Framework) -> None:
    """Neither the 500 calls nor the 50 refusals of the default budget, which is that of one run, end it."""

    def increase(number: int) -> int:
        """One more."""
        return number + 1

    async with Session([increase]) as session:
        run = framework.agent(session)
        told = []
        for start in range(0, 600, 150):
            numbers = range(start, start + 150)
            rounds = [[asks("increase", number=n) for n in numbers[at : at + 50]] for at in range(0, 150, 50)]
            told += await run([*rounds, [asks("increase", number="x", at=n) for n in range(start, start + 15)]])
    results = [each.envelope for answers in told for each in answers]
    assert [each["result"] for each in results if each["ok"]] == list(range(1, 601))
    assert [each["kind"] for each in results if not each["ok"]] == ["invalid_args"] * 60


async def a_budget_that_was_chosen_stays(framework: Framework) -> None:
    def increase(number: int) -> int:
        """One more."""
        return number + 1

    async with Session([increase], budget=Budget(calls=2)) as session:
        [told] = await framework.agent(session)([[asks("increase", number=n) for n in range(3)]])
    assert sorted(str(each.envelope.get("kind")) for each in told) == ["None", "None", "budget_exhausted"]


async def what_a_command_prints_is_shown_while_it_runs(framework: Framework) -> None:
    shown: list[str] = []
    async with coding() as session:
        run = framework.agent(session, shown)

        async def let_it_end() -> None:
            await until(lambda: "".join(shown) == "first\n")
            assert session.sandbox is not None
            await session.sandbox.write_text("go", "")

        async with anyio.create_task_group() as group:
            group.start_soon(let_it_end)
            line = "echo first; while [ ! -e go ]; do sleep 0.05; done; echo last"
            [[told]] = await run([[asks("bash", command=line)]])
    assert told.envelope["result"]["stdout"] == "first\nlast\n"
    assert "".join(shown) == "first\nlast\n"


Scenario = Callable[[Framework], Awaitable[None]]
SCENARIOS: tuple[Scenario, ...] = (
    calls_of_one_round_run_at_once,
    runs_at_once_keep_their_calls_apart,
    an_argument_with_one_meaning_is_repaired,
    the_text_that_the_model_wrote_reaches_the_session,
    a_call_that_cannot_run_comes_back_with_instructions,
    a_timeout_kills_a_child_that_left_its_process_group,
    the_session_asks_a_person,
    a_picture_reaches_the_model,
    a_megabyte_of_output_is_cut_and_kept,
    a_cancelled_run_ends_its_command,
    six_hundred_calls_and_sixty_bounces_fit_into_a_session,
    a_budget_that_was_chosen_stays,
)
STREAMING: tuple[Scenario, ...] = (what_a_command_prints_is_shown_while_it_runs,)
"""For frameworks in which a running tool can show something."""
