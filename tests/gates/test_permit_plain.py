"""A plain function is an approver too: it answers in a thread, while the event loop goes on."""

import threading
from collections.abc import Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint

from handrail import ApprovalRequest, Decision, Event, Policy, Session, run_sync, tool

pytestmark = pytest.mark.anyio
ASK = Policy(mode="ask")
ran: list[str] = []


@tool(effects=["writes"])
def save(path: str) -> str:
    """Save."""
    ran.append(path)
    return f"saved {path}"


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def settled(session: Session) -> list[str]:
    return [event.data["decision"] for event in session.trace if event.type == "approval_settled"]


async def test_a_plain_function_approves_and_denies() -> None:
    def only_a(request: ApprovalRequest) -> Decision:
        return Decision.approve() if request.arguments["path"] == "a" else Decision.deny("not that one")

    async with Session([save], policy=ASK, approver=only_a) as session:
        approved = await session.call("save", {"path": "a"})
        denied = await session.call("save", {"path": "b"})
    assert approved.value == "saved a"
    assert (denied.kind, denied.message) == ("user_denied", "The user did not allow save: not that one")
    assert settled(session) == ["approve", "deny"]
    assert ran == ["a"]


async def test_the_event_loop_goes_on_while_a_plain_function_thinks() -> None:
    asked, ticked = threading.Event(), threading.Event()
    where: list[bool] = []

    def waits_for_the_loop(request: ApprovalRequest) -> Decision:
        where.append(threading.current_thread() is threading.main_thread())
        asked.set()
        return Decision.approve() if ticked.wait(60) else Decision.deny("the event loop stood still")

    async with Session([save], policy=ASK, approver=waits_for_the_loop) as session, anyio.create_task_group() as group:
        group.start_soon(tick, asked, ticked)
        result = await session.call("save", {"path": "a"})
    assert result.value == "saved a", result
    assert where == [False]


async def tick(asked: threading.Event, ticked: threading.Event) -> None:
    await anyio.to_thread.run_sync(asked.wait, 60)
    ticked.set()


async def test_a_plain_function_that_does_not_answer_in_time_has_not_approved() -> None:
    released = threading.Event()

    def never(request: ApprovalRequest) -> Decision:
        released.wait(60)
        return Decision.approve()

    never.wait = 0.05  # type: ignore[attr-defined]
    try:
        async with Session([save], policy=ASK, approver=never) as session:
            result = await session.call("save", {"path": "a"})
    finally:
        released.set()
    assert result.kind == "approval_timeout"
    assert ran == []


async def test_a_call_that_a_person_ends_leaves_a_plain_function_behind() -> None:
    asked, released = threading.Event(), threading.Event()

    def stuck(request: ApprovalRequest) -> Decision:
        asked.set()
        released.wait(60)
        return Decision.approve()

    try:
        async with Session([save], policy=ASK, approver=stuck) as session, anyio.create_task_group() as group:
            group.start_soon(session.call, "save", {"path": "a"})
            await anyio.to_thread.run_sync(asked.wait, 60)
            assert await session.terminate("call_1")
    finally:
        released.set()
    assert [event.data["kind"] for event in session.trace if event.type == "call_ended"] == ["cancelled"]
    assert ran == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda: True, "the approver returned True, not a Decision such as Decision.approve()"),
        (lambda: Decision.approve, "the approver returned the function approve, not a Decision"),
        (lambda: 1 / 0, "the approver raised ZeroDivisionError"),
    ],
)
async def test_what_a_plain_function_does_wrong_is_no_approval(answer: Callable[[], Decision], said: str) -> None:
    async with Session([save], policy=ASK, approver=lambda _: answer()) as session:
        result = await session.call("save", {"path": "a"})
    assert result.kind == "rejected"
    assert said in result.message
    assert ran == []


async def test_a_plain_function_may_return_what_an_async_one_will_answer() -> None:
    async def later() -> Decision:
        await checkpoint()
        return Decision.approve()

    async with Session([save], policy=ASK, approver=lambda request: later()) as session:
        assert (await session.call("save", {"path": "a"})).value == "saved a"


def test_a_plain_function_approves_for_plain_code_in_a_thread_too() -> None:
    async def work() -> tuple[str, list[Event]]:
        async with Session([save], policy=ASK, approver=lambda request: Decision.approve()) as session:
            return str((await session.call("save", {"path": "a"})).value), list(session.trace)

    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(run_sync(work)[0]))
    thread.start()
    thread.join(60)
    assert found == ["saved a"]
