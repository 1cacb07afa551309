"""A call that fails three times in the same way is not run a fourth time, until something may have changed."""

from typing import Any

import pytest

from handrail import Budget, Failure, Policy, Session, Tool, ToolFailed, tool
from handrail.contract.errors import Unavailable
from handrail.contract.result import FAILURE_KINDS
from handrail.gates.breaker import repeats_in
from handrail.session.session import core_of

pytestmark = pytest.mark.anyio
OPEN = Policy(mode="open")
LOOSE = Budget(refusals=None)


class Shelf:
    """Tools over a dict of files; `ran` counts bodies."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.ran = 0

    def tools(self) -> list[Tool]:
        @tool(effects=["reads"])
        async def read(path: str, again: int = 0) -> str:
            self.ran += 1
            if path not in self.files:
                raise FileNotFoundError(2, "No such file", path)
            return self.files[path]

        @tool(effects=["writes"])
        async def write(path: str) -> None:
            self.ran += 1
            if path == "full":
                raise OSError("no space")
            self.files[path] = "content"

        return [read, write]


async def test_read_what_is_missing_three_times_then_write_it_then_read_it() -> None:
    shelf = Shelf()
    async with Session(shelf.tools(), policy=OPEN) as session:
        for _ in range(3):
            assert (await session.call("read", {"path": "a"})).kind == "not_found"  # type: ignore[union-attr]
        refused = await session.call("read", {"path": "a"})
        assert isinstance(refused, Failure)
        assert refused.kind == "rejected"
        assert refused.data == {"repeats": 3, "kind": "not_found"}
        assert "create it" in refused.message
        assert shelf.ran == 3
        assert (await session.call("write", {"path": "a"})).ok
        assert (await session.call("read", {"path": "a"})).ok


async def test_refusals_do_not_count_and_the_fifth_is_refused_like_the_fourth() -> None:
    shelf = Shelf()
    async with Session(shelf.tools(), policy=OPEN) as session:
        results = [await session.call("read", {"path": "a"}) for _ in range(6)]
    assert [result.kind for result in results] == ["not_found"] * 3 + ["rejected"] * 3  # type: ignore[union-attr]
    assert all(result.data["repeats"] == 3 for result in results[3:])  # type: ignore[union-attr, index]


async def test_the_same_call_is_the_same_however_it_is_spelled_and_another_is_another() -> None:
    shelf = Shelf()
    async with Session(shelf.tools(), policy=OPEN) as session:
        for same in ('{"path": "a", "again": 1}', '{ "again":1,"path":"a" }', {"again": 1, "path": "a"}):
            await session.call("read", same)
        assert (await session.call("read", {"path": "a", "again": 1})).kind == "rejected"  # type: ignore[union-attr]
        assert (await session.call("read", {"path": "a", "again": 2})).kind == "not_found"  # type: ignore[union-attr]
        assert (await session.call("read", {"path": "b"})).kind == "not_found"  # type: ignore[union-attr]


async def test_a_failed_write_resets_nothing_nor_does_a_read_of_something_else() -> None:
    shelf = Shelf()
    shelf.files["there"] = "x"
    async with Session(shelf.tools(), policy=OPEN) as session:
        for _ in range(3):
            await session.call("read", {"path": "a"})
        assert not (await session.call("write", {"path": "full"})).ok
        assert (await session.call("read", {"path": "there"})).ok
        assert (await session.call("read", {"path": "a"})).kind == "rejected"  # type: ignore[union-attr]


async def test_a_new_run_begins_anew() -> None:
    shelf = Shelf()
    async with Session(shelf.tools(), policy=OPEN) as session:
        for _ in range(4):
            last = await session.call("read", {"path": "a"})
        assert last.kind == "rejected"  # type: ignore[union-attr]
        session.begin_run()
        assert (await session.call("read", {"path": "a"})).kind == "not_found"  # type: ignore[union-attr]


async def test_a_polling_tool_that_answers_unavailable_ten_times_is_never_broken() -> None:
    asked = 0

    async def poll() -> str:
        nonlocal asked
        asked += 1
        if asked <= 10:
            raise Unavailable("not yet")
        return "done"

    async with Session([poll]) as session:
        results = [await session.call("poll") for _ in range(11)]
    assert [result.ok for result in results] == [False] * 10 + [True]
    assert {result.kind for result in results[:10]} == {"unavailable"}  # type: ignore[union-attr]


def failing(*kinds: str) -> tuple[Tool, list[str]]:
    """A tool that fails in these ways in turn, for ever; a way is a kind, or `kind:field`."""
    ran: list[str] = []

    async def fails() -> Any:
        way = kinds[len(ran) % len(kinds)]
        ran.append(way)
        kind, _, field = way.partition(":")
        raise ToolFailed(Failure(kind, "no", field=field or None))  # type: ignore[arg-type]

    return tool(name="fails")(fails), ran


async def test_two_failures_that_alternate_are_never_the_same_way_three_times() -> None:
    for ways in (("not_found", "execution_error"), ("invalid_args:a", "invalid_args:b")):
        fails, ran = failing(*ways)
        async with Session([fails], budget=LOOSE) as session:
            for _ in range(12):
                await session.call("fails")
        assert len(ran) == 12
    fails, ran = failing("execution_error", "not_found", "not_found", "not_found")
    async with Session([fails], budget=LOOSE) as session:
        for _ in range(12):
            await session.call("fails")
    assert len(ran) == 4  # the control: three in a row are


async def test_only_these_kinds_trip_it() -> None:
    for kind in sorted(FAILURE_KINDS):
        fails, ran = failing(kind)
        async with Session([fails], budget=LOOSE) as session:
            for _ in range(8):
                last = await session.call("fails")
        trips = kind in ("invalid_args", "not_found", "tool_not_found", "execution_error")
        assert len(ran) == (3 if trips else 8), kind
        assert (not last.ok and "was not run again" in last.message) is trips


async def test_a_bounce_trips_it_too_and_names_what_to_do() -> None:
    shelf = Shelf()
    async with Session(shelf.tools(), policy=OPEN) as session:
        results = [await session.call("read", text) for text in ["{}"] * 4 + ["{nonsense"] * 4]
    assert [result.kind for result in results] == (["invalid_args"] * 3 + ["rejected"]) * 2  # type: ignore[union-attr]
    assert "Change the arguments" in results[3].message  # type: ignore[union-attr]
    assert shelf.ran == 0


async def test_a_tool_that_does_not_exist_trips_it_until_it_is_added() -> None:
    async with Session([]) as session:
        results = [await session.call("later", {"n": 1}) for _ in range(5)]
        assert [result.kind for result in results] == ["tool_not_found"] * 3 + ["rejected"] * 2  # type: ignore[union-attr]
        assert "Call one of the listed tools" in results[3].message  # type: ignore[union-attr]
        assert (await session.call("other", {"n": 1})).kind == "tool_not_found"  # type: ignore[union-attr]
        assert (await session.call("later", {"n": 2})).kind == "tool_not_found"  # type: ignore[union-attr]
        session.toolbox.add(Tool("later", {"type": "object"}, lambda context, arguments: arguments["n"]))
        assert (await session.call("later", {"n": 1})).ok


async def test_names_that_were_made_up_are_remembered_within_the_same_limit() -> None:
    async with Session([], budget=Budget(calls=None, refusals=None)) as session:
        for number in range(300):
            await session.call(f"tool_{number}")
        assert sum(map(len, repeats_in(core_of(session).shared.counts, "").failures.values())) == 200


async def test_what_is_remembered_has_an_end() -> None:
    shelf = Shelf()
    async with Session(shelf.tools(), policy=OPEN, budget=Budget(calls=None)) as session:
        for number in range(300):
            await session.call("read", {"path": "a", "again": number})
        assert len(repeats_in(core_of(session).shared.counts, "").failures["read"]) == 200
