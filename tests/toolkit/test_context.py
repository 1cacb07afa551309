"""Whatever a body may reach works from any thread, any number at once, beside async bodies."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest

from handrail import Call, Context, Sandbox, Session, builtin_tools, open_sandbox, run_sync, tool
from handrail.contract.driver import Chunk
from handrail.contract.errors import Unavailable
from handrail.session.session import core_of
from handrail.testing import MemoryDriver
from tests.journeys.evidence import endings

pytestmark = pytest.mark.anyio
AT_ONCE = 12
DECLARED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "reads": {"effects": ["reads"], "needs": ["files"]},
    "writes": {"effects": ["writes", "executes"], "needs": ["files", "exec"]},
}


async def all_at_once(session: Session, name: str, count: int = AT_ONCE) -> list[Any]:
    """The values of so many calls at once, each with its number."""
    results: dict[int, Any] = {}

    async def call(n: int) -> None:
        result = await session.call(name if n % 4 else f"async_{name}", {"n": n})
        results[n] = result.value if result.ok else result

    with anyio.fail_after(120):
        async with anyio.create_task_group() as calls:
            for n in range(count):
                calls.start_soon(call, n)
    return [results[n] for n in range(count)]


async def touch_everything(sandbox: Sandbox, n: int) -> str:
    path = f"{n}.txt"
    await sandbox.write_text(path, str(n) * 50_000)
    text = await sandbox.read_text(path)
    names = [entry.path for entry in await sandbox.list() if entry.path.endswith(path)]
    ran = await sandbox.run(f"cat {path} | wc -c", stdin="unread")
    job = await sandbox.start("read line; echo got $line")
    await job.send(f"{n}\n")
    code = await job.wait(60)
    return f"{len(text)} {len(names) > 0} {ran.stdout.strip()} {code} {job.spool.read().decode().strip()}"


@pytest.mark.parametrize("declared", DECLARED)
async def test_def_bodies_use_the_sandbox_together_and_beside_async_ones(declared: str) -> None:
    @tool(**DECLARED[declared])
    def works(n: int, context: Context) -> str:
        return run_sync(touch_everything, context.sandbox, n)

    @tool(**DECLARED[declared])
    async def async_works(n: int, context: Context) -> str:
        return await touch_everything(context.sandbox, n)

    async with open_sandbox("jail") as sandbox, Session([works, async_works], sandbox=sandbox) as session:
        values = await all_at_once(session, "works")
    size = [50_000 * len(str(n)) for n in range(AT_ONCE)]
    assert values == [f"{size[n]} True {size[n]} 0 got {n}" for n in range(AT_ONCE)]
    endings(session)


@pytest.mark.parametrize("declared", DECLARED)
async def test_def_bodies_call_other_tools_together_and_beside_async_ones(declared: str) -> None:
    @tool(**DECLARED[declared])
    def uses(n: int, context: Context) -> str:
        result = run_sync(context.use, "write", {"path": f"{n}", "content": f"said {n}"})
        result = run_sync(context.use("bash", {"command": f"cat {n}"})) if result.ok else result
        return result.value["stdout"] if result.ok else str(result)

    @tool(**DECLARED[declared])
    async def async_uses(n: int, context: Context) -> str:
        result = await context.use("bash", {"command": f"echo -n said {n}"})
        return result.value["stdout"] if result.ok else str(result)

    tools = [uses, async_uses, *builtin_tools()]
    async with open_sandbox("jail") as sandbox, Session(tools, sandbox=sandbox) as session:
        values = await all_at_once(session, "uses")
    assert values == [f"said {n}" for n in range(AT_ONCE)]
    endings(session)


async def test_the_threads_that_a_body_starts_itself_reach_the_sandbox_too() -> None:
    def fans_out(context: Context) -> list[str]:
        def one(n: int) -> str:
            run_sync(context.sandbox.write_text(f"{n}", f"{n}"))
            used = run_sync(context.use("read", {"path": f"{n}"}))
            return run_sync(context.sandbox.read_text(f"{n}")) if used.ok else str(used)

        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(one, range(32)))

    async with open_sandbox("jail") as sandbox, Session([fans_out, *builtin_tools()], sandbox=sandbox) as session:
        with anyio.fail_after(120):
            result = await session.call("fans_out")
    assert result.value == [str(n) for n in range(32)]


async def test_a_body_hears_live_output_in_its_own_thread() -> None:
    heard: dict[str, list[str]] = {"plain": [], "async": []}

    def listens(context: Context) -> bool:
        mine = threading.current_thread()

        def plain(chunk: Chunk) -> None:
            heard["plain"].append(chunk.data.decode())
            assert threading.current_thread() is mine

        async def run() -> bool:
            ready = anyio.Event()

            async def waits(chunk: Chunk) -> None:
                heard["async"].append(chunk.data.decode())
                await anyio.sleep(0.01)
                ready.set()

            ran = await context.sandbox.run("echo one", on_output=plain)
            job = await context.sandbox.start("echo two; read line", on_output=waits)
            await ready.wait()
            await job.send(None)
            await job.wait()
            return ran.notes == ()

        return run_sync(run)

    async with open_sandbox("jail") as sandbox, Session([listens], sandbox=sandbox) as session:
        with anyio.fail_after(60):
            assert (await session.call("listens")).value is True
    assert heard == {"plain": ["one\n"], "async": ["two\n"]}


async def test_a_limit_in_a_bodys_own_loop_ends_the_command_before_it_goes_on() -> None:
    def gives_up(context: Context) -> str:
        async def run() -> str:
            with anyio.move_on_after(60) as scope:
                ends = partial(setattr, scope, "deadline")
                line = "echo $$ > pid; echo begun; sleep 600"
                await context.sandbox.run(line, on_output=lambda _: ends(anyio.current_time()))
            assert scope.cancelled_caught
            return (await context.sandbox.run("kill -0 $(cat pid) && echo alive || echo gone")).stdout

        return run_sync(run)

    async with open_sandbox("host", allow_weaker=True) as sandbox, Session([gives_up], sandbox=sandbox) as session:
        with anyio.fail_after(60):
            assert (await session.call("gives_up")).value == "gone\n"


async def test_a_job_started_in_one_thread_is_awaited_and_ended_in_another() -> None:
    def starts(context: Context) -> str:
        return run_sync(context.sandbox.start("sleep 600")).id

    def ends(context: Context, job: str) -> bool:
        found = context.sandbox.job(job)
        assert found is not None
        assert run_sync(found.wait(0.05)) is None
        run_sync(found.signal("KILL"))
        return run_sync(found.wait(60)) == 137

    async with open_sandbox("jail") as sandbox, Session([starts, ends], sandbox=sandbox) as session:
        with anyio.fail_after(60):
            job = (await session.call("starts")).value
            assert (await session.call("ends", {"job": job})).value is True


async def test_sessions_on_several_event_loops_keep_out_of_each_others_way_in_one_sandbox() -> None:
    adds = "n=$(cat count); sleep 0.02; echo $((n + 1)) > count"

    def has_a_session(context: Context) -> bool:
        async def run() -> bool:
            async with Session(builtin_tools(), sandbox=context.sandbox) as inner:
                results = await inner.call_all([Call(f"{n}", "bash", {"command": adds}) for n in range(4)])
                return all(result.ok and result.value["exit_code"] == 0 for result in results)

        return run_sync(run)

    tools = [has_a_session, *builtin_tools()]
    async with open_sandbox("jail") as sandbox, Session(tools, sandbox=sandbox) as session:
        await sandbox.write_text("count", "0")
        calls = [Call(f"{n}", "has_a_session" if n % 2 else "bash", "{}") for n in range(8)]
        calls = [call if call.name != "bash" else replace(call, arguments={"command": adds}) for call in calls]
        with anyio.fail_after(120):
            results = await session.call_all(calls)
        assert [result.ok for result in results] == [True] * 8
        assert await sandbox.read_text("count") == "20\n"


class Person:
    """Answers on the session's own event loop, as it must."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        assert threading.current_thread() is self.thread
        await anyio.sleep(0.01)
        return f"{question}!"


async def test_def_bodies_ask_the_person_store_artifacts_and_stop_the_clock() -> None:
    @tool(timeout=30)
    def asks(n: int, context: Context) -> list[Any]:
        answer = run_sync(context.host.ask, f"{n}?")
        kept = run_sync(context.artifacts.put(str(n) * 100_000))
        read = run_sync(context.artifacts.read(kept))
        with context.clock.pause():
            before = context.clock.now()
            stood_still = context.clock.now() == before
        context.show(f"shown {n}")
        context.memory("asks")[str(n)] = n
        return [answer, len(read), stood_still]

    async with Session([asks], host=Person()) as session:  # type: ignore[arg-type]
        results: list[Any] = []

        async def call(n: int) -> None:
            results.append((await session.call("asks", {"n": n})).value)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as calls:
                for n in range(1, 9):
                    calls.start_soon(call, n)
        assert core_of(session).memory("asks") == {str(n): n for n in range(1, 9)}
    assert sorted(results) == [[f"{n}?!", 100_000, True] for n in range(1, 9)]


def test_a_body_that_outlives_the_event_loop_is_told_and_does_not_hang() -> None:
    late: list[BaseException] = []
    begun, go, done = threading.Event(), threading.Event(), threading.Event()

    def outlives(context: Context) -> None:
        sandbox = context.sandbox
        begun.set()
        try:
            go.wait(60)
            run_sync(sandbox.read_text("a"))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            late.append(error)
        done.set()

    async def main() -> None:
        sandbox = Sandbox(MemoryDriver())
        session = Session([outlives], sandbox=sandbox)
        async with anyio.create_task_group() as group:
            group.start_soon(session.call, "outlives")
            await anyio.to_thread.run_sync(begun.wait)
            group.cancel_scope.cancel()
        await sandbox.close()

    run_sync(main)
    go.set()
    assert done.wait(60)
    assert isinstance(late[0], Unavailable)
