"""An isolated tool runs in a process that really dies, with its group, when nobody waits any more."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvloop

from handrail import Budget, Context, HandrailError, Session, Tool, ToolFailed, tool
from handrail.drivers.posix import open_own
from handrail.toolkit.isolated import run_isolated
from tests.journeys.evidence import only_ending
from tests.toolkit import isolated_tools as made

pytestmark = pytest.mark.anyio


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second, if it ends between the opening and the reading
        return False


async def are_dead(*pids: int) -> bool:
    with anyio.move_on_after(60):
        while any(map(is_alive, pids)):  # noqa: ASYNC110 - other processes end
            await anyio.sleep(0.01)
    return not any(map(is_alive, pids))


async def test_it_runs_in_another_process_and_its_own_group() -> None:
    async with Session([made.where]) as session:
        result = await session.call("where")
    assert result.value["pid"] == result.value["group"] != os.getpid()
    assert is_alive(os.getpid())  # the control of `is_alive`
    assert not is_alive(result.value["pid"])


async def test_its_types_travel_both_ways() -> None:
    async with Session([made.moved, made.asked, made.chatty]) as session:
        assert (await session.call("moved", {"point": {"x": 1, "y": 2}, "by": 4})).value == {"x": 5, "y": 2}
        assert (await session.call("asked", {"n": 1})).value == 2
        assert (await session.call("chatty", {"lines": 20_000})).value == "quiet"
        bounced = await session.call("moved", {"point": {"x": "one"}})
    assert not bounced.ok
    assert (bounced.kind, bounced.field) == ("invalid_args", "point.x")


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        ("raises", "execution_error", "ValueError: inside"),
        ("fails", "not_found", "not here"),
        ("exits", "execution_error", "SystemExit: 4"),
        ("unpicklable", "execution_error", "local object"),
        ("hostile", "execution_error", "Hostile: its message cannot be shown"),
        ("odd", "execution_error", "OSError: [Errno 5]"),
    ],
)
async def test_what_it_raises_comes_back_with_its_kind(how: str, kind: str, said: str) -> None:
    async with Session([made.ends]) as session:
        result = await session.call("ends", {"how": how})
    assert not result.ok
    assert (result.kind, said in result.message) == (kind, True)
    assert only_ending(session).data["kind"] == kind


async def test_a_missing_file_means_the_same_there_as_here() -> None:
    async with Session([made.ends]) as session:
        assert (await session.call("ends", {"how": "missing"})).kind == "not_found"


async def test_a_large_answer_comes_whole_and_a_death_is_told_with_its_last_words() -> None:
    async with Session([made.ends, made.dies]) as session:
        large = await session.call("ends", {"how": "199000"})
        died = await session.call("dies", {"code": 7})
    assert large.value == "x" * 199_000
    assert not died.ok
    assert died.kind == "execution_error"
    assert "exit code 7" in died.message
    assert "last words" in died.message


async def test_at_the_deadline_the_process_and_its_child_are_killed(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    async with Session([made.hangs]) as session:
        result = await session.call("hangs", {"note": str(note)})
        pid, child = map(int, note.read_text().split())  # the control: it had begun
        assert await are_dead(pid, child)
    assert not result.ok
    assert result.kind == only_ending(session).data["kind"] == "timeout"
    assert "It was ended" in result.message


async def test_a_cancelled_caller_kills_it_too(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    async with Session([made.hangs]) as session, anyio.create_task_group() as group:
        group.start_soon(session.call, "hangs", {"note": str(note)})
        with anyio.fail_after(90):
            while not note.exists() or not note.read_text():  # noqa: ASYNC110 - another process writes it
                await anyio.sleep(0.01)
        pid, child = map(int, note.read_text().split())
        assert is_alive(pid)
        assert is_alive(child)
        group.cancel_scope.cancel()
    assert await are_dead(pid, child)
    assert only_ending(session).data["kind"] == "cancelled"


async def test_what_it_leaves_running_in_its_group_ends_with_the_call(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    async with Session([made.leaves_a_child]) as session:
        assert (await session.call("leaves_a_child", {"note": str(note)})).value == "left"
        assert await are_dead(*map(int, note.read_text().split()))


async def test_without_a_guard_it_answers_and_dies_with_its_group_all_the_same(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    assert await run_isolated(made.moved.function, {"point": made.Point(1), "by": 4}, open_own) == made.Point(5)  # type: ignore[arg-type]
    assert await run_isolated(made.chatty.function, {"lines": 20_000}, open_own) == "quiet"  # type: ignore[arg-type]
    with pytest.raises(ToolFailed, match="exit code 7 before it answered: last words"):
        await run_isolated(made.dies.function, {"code": 7}, open_own)  # type: ignore[arg-type]
    async with anyio.create_task_group() as group:
        group.start_soon(run_isolated, made.hangs.function, {"note": str(note)}, open_own)
        with anyio.fail_after(30):
            while not note.exists() or not note.read_text():  # noqa: ASYNC110 - another process writes it
                await anyio.sleep(0.01)
        pids = [int(word) for word in note.read_text().split()]
        assert all(map(is_alive, pids))
        group.cancel_scope.cancel()
    assert await are_dead(*pids)


async def fled(note: Path) -> int:
    """The number of the child that left its session, once it is there and runs."""
    with anyio.fail_after(30):
        while not note.exists():  # noqa: ASYNC110 - another process writes it
            await anyio.sleep(0.01)
    pid = int(note.read_text())
    assert is_alive(pid)
    return pid


async def test_a_child_that_called_setsid_dies_when_the_call_is_answered(tmp_path: Path) -> None:
    async with Session([made.flees]) as session:
        assert (await session.call("flees", {"note": str(tmp_path / "pid"), "stays": False})).value == "fled"
        assert await are_dead(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("guarded", [True, False])
def test_a_call_in_flight_dies_when_its_event_loop_is_closed(
    tmp_path: Path, guarded: bool, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    note = tmp_path / "pids"

    async def begin() -> list[int]:
        if guarded:
            calls.append(asyncio.ensure_future(Session([made.hangs]).call("hangs", {"note": str(note)})))
        else:
            function, arguments = made.hangs.function, {"note": str(note)}
            calls.append(asyncio.ensure_future(run_isolated(function, arguments, open_own)))  # type: ignore[arg-type]
        with anyio.fail_after(60):
            while not note.exists() or not note.read_text():  # noqa: ASYNC110 - another process writes it
                await anyio.sleep(0.01)
        return [int(word) for word in note.read_text().split()]

    calls: list[asyncio.Future[Any]] = []
    loop = new_loop()
    pids = loop.run_until_complete(begin())
    assert all(map(is_alive, pids)), "the control: it runs"
    loop.close()
    assert anyio.run(are_dead, *pids)
    calls[0]._log_destroy_pending = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["scope", "task", "terminated", "budget"])
async def test_a_child_that_called_setsid_dies_when_the_run_is_cancelled(tmp_path: Path, how: str) -> None:
    note, budget = tmp_path / "pid", Budget(seconds=8 if how == "budget" else None)
    tasks: list[asyncio.Task[Any]] = []

    async def call() -> None:
        tasks.append(asyncio.current_task())  # type: ignore[arg-type]
        await session.call("flees", {"note": str(note), "stays": True}, id="it")

    async with Session([made.flees], budget=budget) as session:
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            pid = await fled(note)
            if how == "scope":
                group.cancel_scope.cancel()
            elif how == "task":
                tasks[0].cancel()
            elif how == "terminated":
                assert await session.terminate("it")
        assert await are_dead(pid)
    kind = "budget_exhausted" if how == "budget" else "cancelled"
    assert only_ending(session).data["kind"] == kind


async def test_it_has_this_processs_own_environment_directory_module_path_and_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDRAIL_TEST_WORD", "set while this process runs")
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.chdir(tmp_path)
    mask = os.umask(0o137)
    try:
        async with Session([made.surroundings]) as session:
            value = (await session.call("surroundings")).value
    finally:
        os.umask(mask)
    assert value["environment"].items() >= os.environ.items()
    assert "HANDRAIL_TEST_WORD" in os.environ, "the control"
    assert (value["directory"], value["path"], value["umask"]) == (str(tmp_path), sys.path, 0o137)


def plain_function(n: int) -> int:
    return n


def test_what_another_process_cannot_import_is_refused_at_definition() -> None:
    def local(n: int) -> int:
        return n

    class Thing:
        def method(self, n: int) -> int:
            return n

    class Called:
        def __call__(self, n: int) -> int:
            return n

    def with_context(n: int, context: Context) -> int:
        return n

    refused: list[Any] = [local, lambda: None, Thing().method, Called(), with_context]
    for function in refused:
        with pytest.raises(HandrailError, match="isolate=True"):
            tool(name="t", isolate=True)(function)
    with pytest.raises(HandrailError, match="isolate=True"):
        Tool("t", {"type": "object"}, lambda context, arguments: None, isolate=True)
    assert tool(name="t", isolate=True)(plain_function).runs == "process"


def test_a_function_that_is_in_no_file_is_refused_and_one_in_the_main_file_runs(tmp_path: Path) -> None:
    code = "from handrail import Session, run_sync, tool\n@tool(isolate=True)\n"
    code += "def f() -> int:\n    'An answer.'\n    return 42\n"
    code += "async def main():\n    async with Session([f]) as s:\n        print((await s.call('f')).value)\n"
    code += "if __name__ == '__main__':\n    run_sync(main)\n"
    typed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert typed.returncode == 1
    assert "isolate=True needs a function in a file" in typed.stderr
    (tmp_path / "program.py").write_text(code)
    filed = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (filed.stdout, filed.stderr) == ("42\n", "")


NO_GUARD = """
import os, resource
from handrail import Session, run_sync
from tests.toolkit import isolated_tools as made
async def main():
    async with Session([made.where]) as session:
        first = await session.call("where")
        top = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (top, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        second = await session.call("where")
        print(first.ok, second.ok, [event.type for event in session.trace if event.type.startswith("call_")])
run_sync(main)
"""


def test_a_call_whose_process_cannot_be_guarded_never_says_that_it_ran() -> None:
    done = subprocess.run([sys.executable, "-c", NO_GUARD], check=False, capture_output=True, text=True, timeout=120)
    ran, refused = ["call_started", "call_running", "call_ended"], ["call_started", "call_ended"]
    assert done.stdout == f"True False {[*ran, *refused]}\n", done.stderr
