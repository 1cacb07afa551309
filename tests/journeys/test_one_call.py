"""Every kind of outcome that a call can have here walks the whole path and leaves exactly one ending behind."""

import errno
import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from handrail import Budget, Context, Failure, Policy, Session, Tool, ToolFailed, read_envelope, tool
from handrail.contract.errors import Unavailable
from handrail.contract.result import FAILURE_KINDS
from tests.journeys.evidence import endings, only_ending

pytestmark = pytest.mark.anyio


class Ended(BaseException):
    """Not an Exception, not an interrupt, not a cancellation."""


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this")


def raising(error: BaseException) -> Callable[[], Any]:
    async def body() -> Any:
        raise error

    return body


def returning(value: object) -> Callable[[], Any]:
    async def body() -> Any:
        return value

    return body


def deep() -> Any:
    return deep()


def circle() -> Any:
    around: dict[str, Any] = {}
    around["again"] = around
    return around


async def self_cancelled() -> Any:
    raise anyio.get_cancelled_exc_class()


async def wrong_type() -> int:
    return "seven"  # type: ignore[return-value]


@tool(timeout=0.05)
async def too_long() -> str:
    await anyio.sleep(30)
    return "never"


def of(kind: Any, **more: Any) -> Callable[[], Any]:
    return raising(ToolFailed(Failure(kind, "as told", **more)))


def os_error(number: int) -> Callable[[], Any]:
    return raising(OSError(number, "as the system says", "/some/path"))


RAISED: list[tuple[Any, str, str]] = [
    (raising(ValueError("broken inside")), "execution_error", "ValueError: broken inside"),
    (raising(Silent()), "execution_error", "Silent: its message cannot be shown"),
    (raising(TimeoutError()), "execution_error", "TimeoutError"),
    (raising(Ended("far out")), "execution_error", "Ended: far out"),
    (raising(SystemExit(3)), "execution_error", "SystemExit: 3"),
    (raising(MemoryError()), "execution_error", "MemoryError"),
    (self_cancelled, "execution_error", "CancelledError"),
    (deep, "execution_error", "RecursionError"),
    (raising(StopAsyncIteration()), "execution_error", "StopAsyncIteration"),
    (raising(BaseExceptionGroup("two", [ValueError("a"), SystemExit(1)])), "execution_error", "two"),
    (of("user_denied"), "user_denied", "as told"),
    (of("approval_timeout"), "approval_timeout", "as told"),
    (of("unknown_outcome"), "unknown_outcome", "as told"),
    (raising(Unavailable("booting")), "unavailable", "booting"),
    (os_error(errno.ENOENT), "not_found", "/some/path"),
    (raising(FileNotFoundError("no such thing")), "not_found", "no such thing"),
    (os_error(errno.EISDIR), "invalid_args", "/some/path"),
    (os_error(errno.ENOTDIR), "invalid_args", "/some/path"),
    (os_error(errno.ELOOP), "invalid_args", "/some/path"),
    (os_error(errno.EACCES), "rejected", "/some/path"),
    (os_error(errno.EPERM), "rejected", "/some/path"),
    (os_error(errno.EROFS), "rejected", "/some/path"),
    (os_error(errno.EXDEV), "rejected", "/some/path"),
    (raising(PermissionError("not yours")), "rejected", "not yours"),
    (os_error(errno.ENOSPC), "execution_error", "as the system says"),
    (os_error(errno.ECONNREFUSED), "execution_error", "ConnectionRefusedError"),
    (returning(object()), "execution_error", "object"),
    (returning({"deep": [object()]}), "execution_error", "no JSON form"),
    (circle, "execution_error", "contains itself"),
    (returning(10**5000), "execution_error", "digits"),
    (returning([10**5000]), "execution_error", "digits"),
    (wrong_type, "execution_error", "output schema"),
    (too_long, "timeout", "0.05 s"),
]


def str_of(part: Any) -> str:
    return part if isinstance(part, str) else part.name if isinstance(part, Tool) else part.__qualname__


@pytest.mark.parametrize(("body", "kind", "said"), RAISED, ids=str_of)
async def test_whatever_comes_out_of_a_body_is_one_failure_with_its_kind(body: Any, kind: str, said: str) -> None:
    made = body if isinstance(body, Tool) else tool(name="t")(body)
    async with Session([made]) as session:
        result = await session.call(made.name)
    assert isinstance(result, Failure)
    assert result.kind == kind
    assert said in result.message
    ended = only_ending(session)
    assert (ended.data["status"], ended.data["kind"]) == ("failed", kind)
    assert read_envelope(json.dumps(ended.data["result"])) == result


async def test_the_calls_that_never_reach_a_body_end_as_well() -> None:
    ran: list[str] = []

    @tool(risk="high", effects=["writes"])
    async def danger(path: str) -> None:
        ran.append(path)

    only_user = Tool("by_hand", {"type": "object"}, lambda context, arguments: ran.append("hand"), callable_from="user")
    budget = Budget(calls=1)
    async with Session([danger, only_user], policy=Policy(mode="strict"), budget=budget) as session:
        results = [
            await session.call("danger", '{"path": 5'),
            await session.call("danger", {"path": 5, "other": 1}),
            await session.call("nothing_here", "not even JSON"),
            await session.call("danger", {"path": "a"}),
            await session.call("by_hand"),
        ]
        assert not ran
        results.append(await session.call("by_hand", origin="user"))
        results.append(await session.call("by_hand", origin="user"))
    kinds = [None if result.ok else result.kind for result in results]
    assert kinds == [
        "invalid_args", "invalid_args", "tool_not_found", "rejected", "rejected", None, "budget_exhausted",
    ]  # fmt: skip
    assert ran == ["hand"]
    assert [event.data["kind"] for event in endings(session).values()] == kinds


async def test_a_body_may_end_with_any_kind_there_is() -> None:
    made = [tool(name=kind)(of(kind)) for kind in sorted(FAILURE_KINDS)]
    async with Session(made) as session:
        for each in made:
            result = await session.call(each.name)
            assert not result.ok
            assert result.kind == each.name
    assert {event.data["kind"] for event in endings(session).values()} == FAILURE_KINDS


async def test_an_interrupt_is_recorded_as_cancelled_and_raised_again() -> None:
    tools = [tool(name="t")(raising(KeyboardInterrupt())), tool(name="s")(raising(SystemExit()))]
    async with Session(tools) as session:
        with pytest.raises(KeyboardInterrupt):
            await session.call("t")
        control = await session.call("s")  # which is not raised again
    assert not control.ok
    first, second = endings(session).values()
    assert (first.data["kind"], second.data["kind"]) == ("cancelled", "execution_error")
    assert "interrupt" in first.data["result"]["message"]


async def test_500_megabytes_are_cut_to_what_a_model_can_read() -> None:
    async def flood(size: int) -> str:
        return "x" * size

    async with Session([flood]) as session:
        result = await session.call("flood", {"size": 500_000_000})
        small = await session.call("flood", {"size": 5})
    assert result.ok
    assert len(result.value) < 49_000
    assert "of 500,000,000 characters left out" in result.value
    assert small.value == "xxxxx"
    assert len(json.dumps(endings(session)["call_1"].data)) < 110_000


async def test_the_ending_says_who_asked_for_what_and_how_long_it_took() -> None:
    async def outer(context: Context) -> Any:
        return await context.use("inner", {"n": 2})

    async def inner(n: int) -> int:
        return n

    async with Session([outer, inner]) as session:
        result = await session.call("outer", origin="user", id="a")
        await session.call("inner", '{"n":  2}', id="b")
        await session.call("inner", {"n": 3}, id="c")
    assert result.value == 2
    ended = endings(session)
    (child,) = (event for event in ended.values() if event.parent == "a")
    assert child.data["tool"] == "inner"
    assert ended["a"].data["origin"] == "user"
    assert ended["a"].data["duration_ms"] >= child.data["duration_ms"] >= 0
    assert len(ended["b"].data["arguments_hash"]) == 64
    assert ended["b"].data["arguments_hash"] != ended["c"].data["arguments_hash"]
    calls = [(event.type.removeprefix("call_"), event.call_id) for event in session.trace if event.call_id]
    assert calls[:6] == [
        ("started", "a"), ("running", "a"),
        ("started", child.call_id), ("running", child.call_id), ("ended", child.call_id), ("ended", "a"),
    ]  # fmt: skip


async def test_two_hundred_calls_at_once_have_two_hundred_endings() -> None:
    async def waits(n: int) -> int:
        await anyio.sleep(0.01)
        return n

    def works(n: int) -> int:
        return n

    results: dict[int, Any] = {}

    async def one(session: Session, n: int) -> None:
        name = ("waits", "works", "missing", "waits")[n % 4]
        results[n] = await session.call(name, {"n": n if n % 4 != 3 else f"no number {n}"})

    async with Session([waits, works], budget=Budget(refusals=None)) as session, anyio.create_task_group() as group:
        for n in range(200):
            group.start_soon(one, session, n)
    assert all(results[n].value == n for n in range(200) if n % 4 < 2)
    kinds = [event.data["kind"] for event in endings(session).values()]
    assert len(kinds) == 200
    assert [kinds.count(kind) for kind in (None, "tool_not_found", "invalid_args")] == [100, 50, 50]
