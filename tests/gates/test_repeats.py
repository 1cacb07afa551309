"""A call that gives the same result again and again is remarked on, then not run, until something else is called."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from handrail import (
    Agent,
    Budget,
    Call,
    Context,
    Failure,
    Image,
    Policy,
    Result,
    Session,
    Success,
    Tool,
    Turn,
    builtin_tools,
    open_sandbox,
    tool,
)  # fmt: skip
from handrail.testing import ScriptedModel
from handrail.tools.task import task
from tests.journeys.evidence import endings

pytestmark = pytest.mark.anyio
OPEN = Policy(mode="open")
LOOSE = Budget(calls=None, refusals=None)


def answering(values: Callable[[int], Any], **options: Any) -> Tool:
    """A tool that gives the value of each number in turn."""
    numbers = count(1)

    async def look(at: str = "") -> Any:
        return values(next(numbers))

    return tool(name="look", **options)(look)


async def times(number: int, looked: Tool, arguments: Any = "{}") -> list[Result]:
    async with Session([looked], policy=OPEN, budget=LOOSE) as session:
        return [await session.call("look", arguments) for _ in range(number)]


def told(results: list[Result]) -> list[int]:
    """The numbers of the calls whose result says that it came before."""
    return [at for at, result in enumerate(results, 1) if any("same call" in each for each in result.warnings)]


def refused(results: list[Result]) -> list[int]:
    return [at for at, result in enumerate(results, 1) if result.kind == "rejected"]


async def test_the_third_equal_result_in_a_row_is_told_and_after_ten_the_call_is_refused() -> None:
    results = await times(13, answering(lambda n: {"a": 1}))
    assert told(results) == [3, 4, 5, 6, 7, 8, 9, 10]
    assert refused(results) == [11, 12, 13]
    assert "3 times in a row" in results[2].warnings[0]
    assert isinstance(results[10], Failure)
    assert results[10].data == {"repeats": 10}
    assert "do something else" in results[10].message
    assert results[9].value == {"a": 1}


DIFFERENT: dict[str, Callable[[int], Any]] = {
    "numbers": lambda n: n,
    "ids that nobody declared": lambda n: {"id": n},
    "a text": lambda n: f"line {n}",
    "a list that grows": lambda n: [1] * n,
    "its order": lambda n: [n % 2, 1 - n % 2],
    "pictures": lambda n: Image(f"{n}".encode()),
    "the end of a long text": lambda n: "x" * 1_000_000 + str(n),
    "how long a text is": lambda n: "x" * (1_000_000 + n),
    "where a text ends and the next begins": lambda n: ["a" * n, "a" * (20 - n)],
    "true and 1": lambda n: n % 2 == 0 or 1,
    "a number that only looks like a time": lambda n: f"{n} sheep, {n}:{n}",
}
EQUAL: dict[str, Callable[[int], Any]] = {
    "nothing": lambda n: None,
    "a duration in a text": lambda n: f"3 passed in 0.{n:02}s",
    "a duration in words": lambda n: {"text": f"took {n} seconds"},
    "a time of day": lambda n: [f"2026-01-{n:02}T10:00:{n:02}.5 started"],
    "pictures": lambda n: Image(b"same"),
    "a command's own duration": lambda n: {"exit_code": 0, "stdout": "x", "duration_ms": n},
}


@pytest.mark.parametrize("what", DIFFERENT)
async def test_results_that_differ_are_never_counted(what: str) -> None:
    results = await times(13, answering(DIFFERENT[what]))
    assert (told(results), refused(results)) == ([], [])


@pytest.mark.parametrize("what", EQUAL)
async def test_results_that_differ_in_times_alone_are_equal(what: str) -> None:
    assert refused(await times(12, answering(EQUAL[what]))) == [11, 12]


async def test_fields_that_a_tool_declares_to_vary_do_not_make_a_difference() -> None:
    def value(n: int) -> Any:
        return {"jobs": [{"job": n, "state": "running"}]}

    assert refused(await times(12, answering(value, varies=["job"]))) == [11, 12]
    assert refused(await times(12, answering(value))) == []  # the control


async def test_a_tool_that_is_made_for_polling_is_never_refused() -> None:
    results = await times(30, answering(lambda n: "running", polls=True))
    assert (told(results), refused(results)) == ([], [])


async def test_another_call_between_begins_the_count_anew() -> None:
    looked = answering(lambda n: "same")

    @tool(effects=["writes"])
    async def other(fails: bool = False) -> None:
        if fails:
            raise OSError("no")

    async with Session([looked, other], policy=OPEN, budget=LOOSE) as session:
        for between in (("look", {"at": "elsewhere"}), ("other", {}), ("other", {"fails": True}), ("none", {})):
            results = [await session.call("look") for _ in range(10)]
            assert told(results) == [3, 4, 5, 6, 7, 8, 9, 10]
            assert refused([await session.call("look")]) == [1]
            await session.call(*between)
        session.begin_run()
        assert told([await session.call("look") for _ in range(2)]) == []


async def test_a_different_result_begins_the_count_anew() -> None:
    results = await times(20, answering(lambda n: n // 9))
    assert told(results) == [3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 20]
    assert refused(results) == []


async def test_the_same_call_counts_however_it_is_spelled() -> None:
    @tool
    async def look(a: int, b: int) -> str:
        return "same"

    spelled: Iterator[Any] = iter(['{"a": 1, "b": 2}', '{"b":2,"a":1}', {"b": 2, "a": 1}, '{"a": "1", "b": 2}'] * 4)
    async with Session([look], budget=LOOSE) as session:
        results = [await session.call("look", next(spelled)) for _ in range(10)]
        assert told(results) == [3, 4, 5, 6, 7, 8, 9, 10]
        assert refused([await session.call("look", '{"b": 2,   "a": 1}')]) == [1]


async def test_a_body_that_changes_its_arguments_does_not_make_calls_the_same() -> None:
    def body(context: Context, arguments: dict[str, Any]) -> str:
        arguments.clear()
        return "done"

    made = Tool("look", {"type": "object"}, body)
    async with Session([made], budget=LOOSE) as session:
        results = [await session.call("look", {"n": n}) for n in range(12)]
        assert (told(results), refused(results)) == ([], [])
        assert refused([await session.call("look", {"n": 1}) for n in range(12)]) == [11, 12]  # the control


async def test_equal_calls_of_one_answer_count_and_each_has_its_result() -> None:
    async with Session([answering(lambda n: "same")], budget=LOOSE) as session:
        results = await session.call_all([Call(str(n), "look", {}) for n in range(12)])
    assert (told(results), refused(results)) == ([3, 4, 5, 6, 7, 8, 9, 10], [11, 12])


async def test_calls_of_a_script_or_of_a_tool_and_of_a_person_do_not_count() -> None:
    looked = answering(lambda n: "same")

    @tool
    async def loop(context: Context, origin: str) -> list[str | None]:
        return [(await context.use("look", {}, origin=origin)).kind for _ in range(15)]  # type: ignore[arg-type]

    async with Session([looked, loop], budget=LOOSE) as session:
        assert (await session.call("loop", {"origin": "script"})).value == [None] * 15
        assert (await session.call("loop", {"origin": "model"})).value == [None] * 15
        assert refused([await session.call("look", origin="user") for _ in range(15)]) == []
        assert refused([await session.call("look", origin="mcp") for _ in range(15)]) == [11, 12, 13, 14, 15]


async def test_each_task_counts_for_itself() -> None:
    def child(messages: Any) -> Turn:
        return Turn("", tuple(Call(f"c{n}", "look", {}) for n in range(2)))

    model = ScriptedModel([
        Turn("", (Call("a", "look", {}), Call("b", "look", {}))),
        Turn("", (Call("t", "task", {"prompt": "look"}),)),
        child, "seen", "done",
    ])  # fmt: skip
    agent = Agent(model, tools=[answering(lambda n: "same"), task])
    async with agent:
        assert (await agent.run("go")).text == "done"
        looks = [event for event in endings(agent.session).values() if event.data["tool"] == "look"]
    assert len(looks) == 4
    assert not any("warnings" in event.data["result"] for event in looks)


async def test_a_job_that_is_started_again_and_again_is_refused_and_polling_it_is_not(tmp_path: Path) -> None:
    async with (
        open_sandbox(workspace=tmp_path) as sandbox,
        Session(builtin_tools("coding"), sandbox=sandbox, policy=OPEN, budget=LOOSE) as session,
    ):
        started = [await session.call("bash", {"command": "ls", "background": True}) for _ in range(12)]
        assert (told(started), refused(started)) == ([3, 4, 5, 6, 7, 8, 9, 10], [11, 12])
        job = started[0].value["job"]
        for action in ("list", "poll", "tail", "wait"):
            polled = [await session.call("process", {"action": action, "job": job}) for _ in range(13)]
            assert (told(polled), refused(polled)) == ([], [])
        ran = [await session.call("bash", {"command": "echo hi; sleep 0.00$RANDOM"}) for _ in range(12)]
        assert refused(ran) == [11, 12], "its duration is not its result"


async def test_a_model_that_makes_the_same_call_for_ever_runs_it_ten_times(capsys: pytest.CaptureFixture[str]) -> None:
    """The figure of before: 64 bodies, and as many results of this size for the model to read."""
    ran, text = count(), "x" * 5_000

    @tool
    async def look() -> str:
        next(ran)
        return text

    model = ScriptedModel([Turn("", (Call("c", "look", {}),))] * 64)
    async with Agent(model, tools=[look]) as agent:
        outcome = await agent.run("go")
        told_to_model = sum(len(str(event.data["result"])) for event in endings(agent.session).values())
    bodies = next(ran)
    with capsys.disabled():
        print(f"\nthe same call for ever: {bodies} bodies, {told_to_model:,} characters, ended as {outcome.reason}")
    assert bodies == 10
    assert told_to_model < 10 * 6_000 + 54 * 600


async def test_comparing_a_huge_result_costs_no_more_than_a_large_one() -> None:
    """Compared are the beginnings: a bound that holds whatever a tool gives back."""
    spent = []
    for size in (20_000, 200_000):
        value = [{"n": n} for n in range(size)]
        looked = answering(lambda n, value=value: Success(value))  # type: ignore[misc]
        async with Session([looked], budget=LOOSE) as session:
            taken = []
            for _ in range(3):
                began = process_time()
                await session.call("look")
                taken.append(process_time() - began)
        spent.append((taken[2] - taken[0]) / taken[0])
    assert spent[1] < spent[0] + 1


async def test_a_call_that_is_spelled_in_two_ways_in_turn_is_refused_as_one() -> None:
    @tool
    async def look(at: int) -> str:
        """Look at a number."""
        return "the same"

    async with Session([look], policy=OPEN, budget=LOOSE) as session:
        results = [await session.call("look", {"at": "1"} if number % 2 else {"at": 1}) for number in range(14)]
    assert refused(results) == [11, 12, 13, 14]
