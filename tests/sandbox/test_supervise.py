"""A limit ends the command in time, and keeps what it printed."""

from time import monotonic

import anyio
import anyio.lowlevel
import pytest

from handrail.clock import CallClock
from handrail.contract.driver import Chunk
from handrail.drivers.memory import MemoryDriver, Script
from handrail.sandbox import Sandbox
from handrail.sandbox.views import bind

pytestmark = pytest.mark.anyio
DRIPS = tuple(Chunk("stdout", b".") for _ in range(200))


def a_sandbox(script: Script) -> tuple[Sandbox, MemoryDriver]:
    driver = MemoryDriver(commands={"x": script})
    return Sandbox(driver), driver


async def test_a_timeout_keeps_what_was_printed_and_exits_with_124() -> None:
    sandbox, driver = a_sandbox(Script("so far\n", "err", hang=True))
    completed = await sandbox.run("x", timeout=0.5)
    assert (completed.exit_code, completed.ended_by) == (124, "timeout")
    assert (completed.stdout, completed.stderr, completed.may_still_run) == ("so far\n", "err", False)
    assert driver.processes[0].signals[0] == "TERM"


async def test_a_command_that_ignores_term_is_killed() -> None:
    sandbox, driver = a_sandbox(Script("so far\n", hang=True, deaf=True))
    completed = await sandbox.run("x", timeout=0.5)
    assert (completed.exit_code, completed.ended_by, completed.stdout) == (124, "timeout", "so far\n")
    assert driver.processes[0].signals == ["TERM", "KILL"]
    assert completed.duration_ms >= 950


async def test_a_command_that_ends_in_time_is_not_touched() -> None:
    sandbox, driver = a_sandbox(Script("done", exit_code=5, delay=0.05))
    completed = await sandbox.run("x", timeout=20, idle_timeout=20, max_output=100)
    assert (completed.exit_code, completed.ended_by) == (5, "exit")
    assert driver.processes[0].signals == []


async def test_silence_ends_a_command_and_every_byte_starts_it_anew() -> None:
    sandbox, _ = a_sandbox(Script(chunks=DRIPS[:20], pause=0.05, hang=True))
    completed = await sandbox.run("x", idle_timeout=0.9)  # less than they take together
    assert (completed.exit_code, completed.ended_by, completed.stdout) == (124, "idle", "." * 20)
    assert completed.duration_ms >= 20 * 50


async def test_the_wall_limit_holds_although_bytes_keep_coming() -> None:
    sandbox, _ = a_sandbox(Script(chunks=DRIPS, pause=0.02))
    completed = await sandbox.run("x", timeout=0.2, idle_timeout=5)
    assert completed.ended_by == "timeout"
    assert 0 < len(completed.stdout) < 100


async def test_too_much_output_ends_the_command_and_keeps_it() -> None:
    sandbox, driver = a_sandbox(Script(chunks=[Chunk("stdout", b"12345")] * 3 + [Chunk("stderr", b"12345")], hang=True))
    completed = await sandbox.run("x", max_output=19)
    assert (completed.ended_by, completed.exit_code) == ("output", 143)
    assert (completed.stdout, completed.stderr) == ("12345" * 3, "12345")
    assert driver.processes[0].signals[0] == "TERM"


async def test_exactly_as_much_output_as_allowed_does_not() -> None:
    sandbox, _ = a_sandbox(Script("12345"))
    assert (await sandbox.run("x", max_output=5)).ended_by == "exit"


async def test_a_person_ends_a_call_by_its_id() -> None:
    sandbox, _ = a_sandbox(Script("so far", hang=True))
    ended = []

    printed = anyio.Event()

    async def call() -> None:
        ended.append(await bind(sandbox, call_id="call-7").run("x", timeout=60, on_output=lambda _: printed.set()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await printed.wait()
        assert not await sandbox.terminate("call-8")
        assert await sandbox.terminate("call-7")
    assert (ended[0].ended_by, ended[0].exit_code, ended[0].stdout) == ("user", 143, "so far")
    assert not await sandbox.terminate("call-7")


async def test_cancelling_the_caller_ends_the_tree_and_is_passed_on() -> None:
    sandbox, driver = a_sandbox(Script("so far", hang=True, deaf=True))
    came_through = False
    with anyio.CancelScope() as scope:
        try:
            await sandbox.run("x", timeout=60, on_output=lambda _: scope.cancel())
        except anyio.get_cancelled_exc_class():
            came_through = True
            raise
    assert came_through
    assert scope.cancelled_caught
    assert driver.processes[0].signals == ["TERM", "KILL"]
    assert await driver.processes[0].wait() == 137


async def test_asking_a_person_runs_out_neither_limit() -> None:
    clock = CallClock()
    clock.start()
    sandbox, driver = a_sandbox(Script("asked", delay=1.0))

    async def ask() -> None:
        with clock.pause():
            await anyio.sleep(1.5)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.lowlevel.checkpoint()
        completed = await bind(sandbox, clock=clock).run("x", timeout=0.4, idle_timeout=0.4)
    assert completed.ended_by == "exit"
    control = await bind(sandbox, clock=clock).run("x", timeout=0.4)
    assert control.ended_by == "timeout"
    assert len(driver.processes) == 2


async def test_a_thousand_commands_at_once_answer_each_for_itself() -> None:
    sandbox = Sandbox(MemoryDriver(commands=lambda command: Script(str(command.line), delay=0.01)))
    answers: dict[int, str] = {}

    async def one(number: int) -> None:
        answers[number] = (await sandbox.run(f"{number}", timeout=60)).stdout

    began = monotonic()
    async with anyio.create_task_group() as tasks:
        for number in range(1000):
            tasks.start_soon(one, number)
    assert answers == {number: str(number) for number in range(1000)}
    assert monotonic() - began < 60
