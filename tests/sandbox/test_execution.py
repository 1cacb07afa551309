"""Whatever a driver does, a call is answered in time, and what comes late is told."""

from collections.abc import AsyncIterator
from functools import partial
from time import monotonic
from typing import Any

import anyio
import pytest

from handrail.contract.driver import Chunk, Command, Process
from handrail.contract.errors import BrokenDriver, Unavailable
from handrail.drivers.memory import MemoryDriver, MemoryProcess, Script
from handrail.sandbox import Late, Sandbox
from handrail.sandbox.views import on_late
from tests.gates.asked import until

pytestmark = pytest.mark.anyio
LIMIT = 0.3
IN_TIME = 4.5
"""Before the longest stall ends by itself."""


async def forever() -> None:
    """A stall that not even a cancellation ends, until the test lets it go."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep(5)


class Stalling(MemoryDriver):
    """Stalls where `where` says, for as long as `stall` takes."""

    def __init__(self, where: str, stall: Any = anyio.sleep_forever, script: Script | None = None) -> None:
        super().__init__(commands=lambda _: script or Script("so far", hang=where in ("signal", "nowhere")))
        self.where = where
        self.stall = stall

    async def start(self, command: Command) -> Any:
        if self.where == "start":
            await self.stall()
        process = await super().start(command)
        return StallingProcess(self, process)


class StallingProcess:
    def __init__(self, driver: Stalling, inner: MemoryProcess) -> None:
        self.id, self.pid, self.inner, self.driver = inner.id, None, inner, driver
        self.signals = inner.signals

    async def output(self) -> AsyncIterator[Chunk]:
        async for chunk in self.inner.output():
            yield chunk
        if self.driver.where == "output":
            await self.driver.stall()

    async def send(self, data: bytes | None) -> None:
        await self.inner.send(data)

    async def wait(self) -> int:
        if self.driver.where == "wait":
            await self.driver.stall()
        return await self.inner.wait()

    async def signal(self, name: Any) -> None:
        if self.driver.where == "signal":
            await self.driver.stall()
        await self.inner.signal(name)


@pytest.mark.parametrize("stall", [anyio.sleep_forever, forever], ids=["cancellable", "deaf"])
@pytest.mark.parametrize("where", ["start", "output", "wait", "signal"])
async def test_a_stalled_driver_is_answered_for_in_time(where: str, stall: Any) -> None:
    sandbox = Sandbox(Stalling(where, stall))
    began = monotonic()
    completed = await sandbox.run("x", timeout=LIMIT)
    assert monotonic() - began < IN_TIME
    assert (completed.exit_code, completed.ended_by, completed.may_still_run) == (124, "timeout", True)
    assert any("may still be running" in note for note in completed.notes)
    assert completed.stdout == ("" if where == "start" else "so far")


async def test_a_driver_that_does_not_stall_leaves_no_doubt() -> None:
    sandbox = Sandbox(Stalling("nowhere"))
    completed = await sandbox.run("x", timeout=LIMIT)
    assert (completed.ended_by, completed.may_still_run, completed.stdout) == ("timeout", False, "so far")


@pytest.mark.parametrize("where", ["start", "output", "wait"])
async def test_a_stalled_driver_does_not_hold_up_a_cancellation(where: str) -> None:
    sandbox = Sandbox(Stalling(where, forever))
    began = monotonic()
    with anyio.move_on_after(LIMIT) as scope:
        await sandbox.run("x")
    assert scope.cancelled_caught
    assert monotonic() - began < IN_TIME


async def test_a_job_whose_start_was_given_up_is_killed_when_it_starts_after_all() -> None:
    driver = Stalling("start", lambda: anyio.sleep(0.5), Script(hang=True))
    sandbox = Sandbox(driver)
    with anyio.move_on_after(0.1) as scope:
        await sandbox.start("x")
    assert scope.cancelled_caught
    assert sandbox.jobs() == []
    await until(lambda: bool(driver.processes and driver.processes[0].signals))
    assert driver.processes[0].signals[0] == "KILL"


async def test_a_late_outcome_is_told_once_and_the_late_command_is_killed() -> None:
    driver = Stalling("start", lambda: anyio.sleep(3), Script(hang=True))
    sandbox = Sandbox(driver)
    heard: list[Late] = []
    told = anyio.Event()
    on_late(sandbox).append(lambda _: 1 / 0)

    async def listen(late: Late) -> None:
        heard.append(late)
        told.set()

    on_late(sandbox).append(listen)
    completed = await sandbox.run("x", timeout=LIMIT, id="call-1")
    assert completed.may_still_run
    assert heard == []
    with anyio.fail_after(90):
        await told.wait()
    assert [(late.id, late.exit_code, late.error) for late in heard] == [("call-1", 137, None)]
    assert driver.processes[0].signals[0] == "KILL"
    await sandbox.close()
    assert len(heard) == 1


async def test_closing_tells_that_nobody_will_ever_know() -> None:
    sandbox = Sandbox(Stalling("wait"))
    heard: list[Late] = []
    on_late(sandbox).append(heard.append)
    await sandbox.run("x", timeout=LIMIT, id="call-1")
    await sandbox.close()
    await anyio.sleep(0.1)
    assert [(late.id, late.exit_code) for late in heard] == [("call-1", None)]
    assert isinstance(heard[0].error, Unavailable)


@pytest.mark.parametrize(("where", "words"), [("start", "to start the command"), ("wait", "to say how it ended")])
async def test_a_driver_that_adds_more_than_two_seconds_is_noted(where: str, words: str) -> None:
    slow = await Sandbox(Stalling(where, partial(anyio.sleep, 2.1), Script("done"))).run("x")
    quick = await Sandbox(Stalling(where, partial(anyio.sleep, 0), Script("done"))).run("x")
    assert [note for note in slow.notes if words in note and "The sandbox took 2." in note], slow.notes
    assert (slow.exit_code, slow.stdout, quick.notes) == (0, "done", ())


async def test_an_outcome_in_time_is_not_late() -> None:
    sandbox = Sandbox(MemoryDriver(commands={"x": "done"}))
    heard: list[Late] = []
    on_late(sandbox).append(heard.append)
    await sandbox.run("x", timeout=5)
    await sandbox.close()
    assert heard == []


class Odd(MemoryDriver):
    """Hands out one process whose parts are given."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(commands=lambda _: Script("first"))
        self.parts = parts

    async def start(self, command: Command) -> Any:
        process = await super().start(command)
        for name, part in self.parts.items():
            setattr(process, name, part)
        return process


async def dies(*_: Any) -> Any:
    raise Unavailable("the machine is gone")


async def prints_then_dies() -> AsyncIterator[Chunk]:
    yield Chunk("stdout", b"first")
    raise Unavailable("the machine is gone")


async def loses_its_wire() -> AsyncIterator[Chunk]:
    yield Chunk("stdout", b"first")
    raise ConnectionResetError("wire cut")


async def raises(*_: Any, **__: Any) -> Any:
    raise KeyError("oops")


async def gives(*things: Any) -> AsyncIterator[Any]:
    for thing in things:
        yield thing


async def answers(thing: Any) -> Any:
    return thing


@pytest.mark.parametrize("parts", [{"wait": dies}, {"output": prints_then_dies}, {"output": loses_its_wire}])
async def test_a_driver_that_dies_is_unavailable_and_the_tree_is_killed(parts: dict[str, Any]) -> None:
    driver = Odd(**parts)
    with anyio.fail_after(50), pytest.raises(Unavailable):
        await Sandbox(driver).run("x", timeout=60)
    await anyio.sleep(0.01)
    assert driver.processes[0].signals == ["KILL"]


async def test_a_driver_that_dies_at_start_is_unavailable_to_runs_and_jobs() -> None:
    class Dead(MemoryDriver):
        start = dies

    with pytest.raises(Unavailable, match="gone"):
        await Sandbox(Dead()).run("x")
    with pytest.raises(Unavailable, match="gone"):
        await Sandbox(Dead()).start("x")


@pytest.mark.parametrize(
    "parts",
    [
        {"wait": raises},
        {"wait": lambda: answers("0")},
        {"wait": lambda: answers(None)},
        {"wait": lambda: answers(True)},
        {"output": lambda: gives(b"raw")},
        {"output": lambda: gives(Chunk("stdlog", b"x"))},  # type: ignore[arg-type]
        {"output": lambda: gives(Chunk("stdout", "text"))},  # type: ignore[arg-type]
        {"output": lambda: None},
        {"output": lambda: 1 / 0},
    ],
)
async def test_a_driver_that_answers_nonsense_is_called_broken(parts: dict[str, Any]) -> None:
    with anyio.fail_after(50), pytest.raises(BrokenDriver):
        await Sandbox(Odd(**parts)).run("x", timeout=60)


async def test_a_start_that_gives_no_process_is_called_broken() -> None:
    class Nothing(MemoryDriver):
        async def start(self, command: Command) -> Any:
            return None

    with anyio.fail_after(50), pytest.raises(BrokenDriver):
        await Sandbox(Nothing()).run("x", timeout=60)


async def test_a_driver_that_cancels_itself_does_not_hang_its_caller() -> None:
    async def cancelled(*_: Any) -> Any:
        raise anyio.get_cancelled_exc_class()

    with anyio.fail_after(50), pytest.raises(Unavailable):
        await Sandbox(Odd(wait=cancelled)).run("x")


async def test_an_answer_given_twice_is_heard_once() -> None:
    codes = [3, 4]

    class Twice(MemoryDriver):
        async def start(self, command: Command) -> Any:
            process: Process = await super().start(command)

            async def wait() -> int:
                return codes.pop(0)

            process.wait = wait  # type: ignore[method-assign]
            return process

    sandbox = Sandbox(Twice(commands=lambda _: "once"))
    completed = await sandbox.run("x")
    assert (completed.exit_code, completed.stdout) == (3, "once")
    assert codes == [4]


async def test_a_limit_that_ended_it_wins_over_a_driver_that_then_dies() -> None:
    async def hangs_then_dies() -> AsyncIterator[Chunk]:
        yield Chunk("stdout", b"so far")
        await anyio.sleep(LIMIT + 0.2)
        raise Unavailable("the machine is gone")

    completed = await Sandbox(Odd(output=hangs_then_dies)).run("x", timeout=LIMIT)
    assert (completed.exit_code, completed.stdout, completed.may_still_run) == (124, "so far", True)
    assert any("the machine is gone" in note for note in completed.notes)


async def test_input_that_nobody_takes_does_not_hold_the_call() -> None:
    with anyio.fail_after(50):
        completed = await Sandbox(Odd(send=lambda _: anyio.sleep_forever())).run("x", stdin=b"x" * 10_000_000)
    assert completed.stdout == "first"


async def test_input_to_a_closed_pipe_is_no_error() -> None:
    async def broken(_: Any) -> None:
        raise BrokenPipeError

    assert (await Sandbox(Odd(send=broken)).run("x", stdin="x")).stdout == "first"


async def test_files_of_a_broken_driver_raise_what_the_contract_names() -> None:
    class Wrong(MemoryDriver):
        read = raises

        async def write(self, *_: Any, **__: Any) -> None:
            raise Unavailable("busy")

    sandbox = Sandbox(Wrong())
    with pytest.raises(BrokenDriver, match="KeyError"):
        await sandbox.read_bytes("a")
    with pytest.raises(Unavailable, match="busy"):
        await sandbox.write_text("a", "b")
