"""What is left of a script that is refused, cancelled or too large, and of the interpreter that waits for the next."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from handrail import Budget, Context, Failure, Result, Session, ToolFailed, tool
from handrail.tools.script import EngineName
from tests.drivers.watching import command, descendants, eventually, lives
from tests.tools.test_script import PNG, opened, trouble
from tests.tools.world import REAL, World, in_time

pytestmark = pytest.mark.anyio


def interpreters() -> list[int]:
    """Those that this process has started, and that live."""
    return [each.pid for each in descendants(os.getpid()) if b"-I\0-u\0-c" in command(each.pid) and lives(each)]


async def until(is_so: Callable[[], object]) -> None:
    with in_time():
        while not is_so():  # noqa: ASYNC110 - a process has no event
            await anyio.sleep(0.01)


async def spare(session: Session) -> int:
    """The interpreter that waits after a first script."""
    assert (await session.call("script", {"code": "1"})).ok
    await until(lambda: len(interpreters()) == 1)
    assert (await session.call("bash", {"command": "true"})).ok  # by then it is known here that it has started
    return interpreters()[0]


@pytest.mark.parametrize("driver", REAL)
async def test_an_interpreter_that_was_killed_while_it_waited_costs_no_script(driver: str, tmp_path: Path) -> None:
    code = "tools.write(path='made', content='x')\n" + "#" * 9000
    for text in ("tools.glob(pattern='*')['count']", code):
        async with opened(driver, tmp_path) as session:
            pid = await spare(session)
            (killed,) = (each for each in descendants(os.getpid()) if each.pid == pid)
            os.kill(pid, signal.SIGKILL)
            assert eventually(lambda: not lives(killed))  # noqa: B023 - and this loop has not heard of it yet
            result = await session.call("script", {"code": text})
        assert result.ok, result


@pytest.mark.parametrize("how", ["anyio", "asyncio"])
async def test_a_long_script_that_is_cancelled_while_it_is_sent_leaves_no_interpreter(how: str, tmp_path: Path) -> None:
    async with opened("host", tmp_path) as session:
        pid = await spare(session)
        os.kill(pid, signal.SIGSTOP)
        long = {"code": "#" * 200_000, "timeout": 60}
        if how == "anyio":
            with anyio.move_on_after(0.2) as scope:
                await session.call("script", long)
            assert scope.cancelled_caught
        else:
            work = asyncio.ensure_future(session.call("script", long))
            await asyncio.wait((work,), timeout=0.2)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
        await until(lambda: pid not in interpreters())
        assert (await session.call("script", {"code": "5"})).value["result"] == 5


async def test_a_long_script_has_its_time_while_it_is_sent_too(tmp_path: Path) -> None:
    async with opened("host", tmp_path) as session:
        os.kill(await spare(session), signal.SIGSTOP)
        with in_time():
            result = await session.call("script", {"code": "#" * 200_000, "timeout": 0.2})
        assert result.kind == "timeout"


async def test_what_a_cancelled_script_was_given_is_kept_no_longer(engine: EngineName, tmp_path: Path) -> None:
    (tmp_path / "large").write_text("x" * 10_000)
    code = "held = tools.read(path='large')\ntools.bash(command='touch on; sleep 600')"
    async with opened("jail", tmp_path, engine=engine) as session:
        async with anyio.create_task_group() as group:
            group.start_soon(session.call, "script", {"code": code})
            await until((tmp_path / "on").exists)
            (ended,) = [event.data for event in session.trace if event.type == "call_ended"]
            given = ended["result"]["result"]["$artifact"]
            assert await session.artifacts.read(given), "the control: it is there while the script runs"
            group.cancel_scope.cancel()
        with pytest.raises(ToolFailed):
            await session.artifacts.read(given)


async def test_a_result_that_cannot_be_sent_brings_back_only_the_media_that_it_made(real: World) -> None:
    await real.put("media/old.png", PNG)
    failure = await trouble(real, "open('media/new', 'w').write('x')\n'a' * 5_000_000")
    assert "too many" in failure.message
    assert failure.data["media"] == [{"path": "media/new", "size": 1}]


async def test_an_end_that_names_no_media_brings_none_back(real: World) -> None:
    await real.put("media/old.png", PNG)
    for ended in ("{}", "3"):
        result = await real.call("script", code=f"""tools._channel._put(b'{{"ended": {ended}}}')""")
        assert "old.png" not in str(result)


async def test_a_sandbox_that_closes_under_a_script_ends_it_and_says_so(engine: EngineName, tmp_path: Path) -> None:
    @tool
    async def shut(context: Context) -> None:
        """Close the sandbox."""
        await session.sandbox.close()

    async with opened("jail", tmp_path, [shut], engine=engine) as session:
        with in_time():
            result = await session.call("script", {"code": "tools.shut()\n1"})
    assert isinstance(result, Failure)
    assert "The script's interpreter ended without a result" in result.message
    assert "finished" in result.message, "and which calls were"


async def test_sentences_about_a_script_end_once(real: World) -> None:
    for code in ("tools.globb()", "tools.glob(patern='*')", "import os\nos.write(tools._channel._out, b'\\xff' * 4)"):
        message = (await trouble(real, code)).message
        assert "?." not in message
        assert ".." not in message
        assert message.endswith(("Nothing was called.", "No call of it was finished."))


def test_scripts_call_tools_on_an_event_loop_that_anyio_did_not_start(tmp_path: Path) -> None:
    code = (
        "[each['exit_code'] for each in tools.gather(call('bash', command='sleep 0.1'), call('bash', command='true'))]"
    )

    async def main() -> list[Result]:
        async with opened("host", tmp_path) as session:
            from_thread = asyncio.to_thread(lambda: asyncio.run(session.call("script", {"code": code})))
            return [await session.call("script", {"code": code}), await from_thread]

    for result in asyncio.run(main()):
        assert result.ok, result
        assert result.value["result"] == [0, 0]


OTHER_VERSION = """#!/bin/sh
exec {python} -I -u -c 'import sys, _frozen_importlib_external as own
own.MAGIC_NUMBER = b"none"
exec(sys.argv[1])' "$4"
"""
"""A Python that cannot use what another version has compiled."""


@pytest.mark.parametrize("other", [False, True])
async def test_another_version_of_python_is_given_the_program_as_text(other: bool, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    python.write_text(
        OTHER_VERSION.format(python=sys.executable) if other else f'#!/bin/sh\nexec {sys.executable} "$@"'
    )
    python.chmod(0o755)
    code = (
        "import sys, _frozen_importlib_external as own\n[own.MAGIC_NUMBER == b'none', tools.glob(pattern='*')['count']]"
    )
    async with opened("host", tmp_path, env={"PATH": f"{python.parent}:{os.environ['PATH']}"}) as session:
        for _ in range(2):  # the second by an interpreter that waited
            result = await session.call("script", {"code": code})
            assert result.ok, result
            assert result.value["result"] == [other, 1]


@pytest.mark.parametrize("driver", REAL)
async def test_calls_leave_a_script_the_processors_that_it_may_use(driver: str, tmp_path: Path) -> None:
    code = """
import os
before = os.sched_getaffinity(0)
for n in range(200):
    tools.todo(items=[])
    if n == 100:
        kept = os.sched_getaffinity(0) == before
        os.sched_setaffinity(0, {min(before)})
[kept, os.sched_getaffinity(0) == {min(before)}]
"""
    async with opened(driver, tmp_path, budget=Budget(script_calls=None)) as session:
        result = await session.call("script", {"code": code})
    assert result.ok, result
    assert result.value["result"] == [True, True]
