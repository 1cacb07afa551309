"""What is left of a script that is refused, cancelled or too large, and of the interpreter that waits for the next."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import Budget, Context, Failure, Policy, Result, Session, ToolFailed, tool
from handrail.tools.script import script
from tests.drivers.watching import PATIENCE, command, descendants, eventually, lives
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
            os.kill(pid, signal.SIGKILL)
            # Gone, and not only a zombie, whose other threads may hold the pipe; and this loop has not heard of it yet.
            assert eventually(lambda: not Path(f"/proc/{pid}").exists())  # noqa: B023
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


async def test_what_a_cancelled_script_was_given_is_kept_no_longer(tmp_path: Path) -> None:
    (tmp_path / "large").write_text("x" * 10_000)
    code = "held = tools.read(path='large')\ntools.bash(command='touch on; sleep 600')"
    async with opened("jail", tmp_path) as session:
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


async def test_a_sandbox_that_closes_under_a_script_ends_it_and_says_so(tmp_path: Path) -> None:
    @tool
    async def shut(context: Context) -> None:
        """Close the sandbox."""
        await session.sandbox.close()

    async with opened("jail", tmp_path, [shut]) as session:
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


@pytest.mark.parametrize("does", ["exec sleep 1000", 'sleep 3; exec {python} "$@"'])
async def test_a_script_has_its_time_also_while_its_interpreter_takes_no_program(does: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    python.write_text("#!/bin/sh\n" + does.format(python=sys.executable))
    python.chmod(0o755)
    async with opened("host", tmp_path, env={"PATH": f"{python.parent}:{os.environ['PATH']}"}) as session:
        with in_time():
            result = await session.call("script", {"code": "1", "timeout": 1})
    assert (result.ok, result.kind) == (False, "timeout")


async def test_a_script_on_one_loop_does_not_take_the_place_of_a_program_from_another(tmp_path: Path) -> None:
    there = asyncio.new_event_loop()
    thread = threading.Thread(target=there.run_forever, daemon=True)
    thread.start()

    async def other() -> Session:
        return Session([script], sandbox=session.sandbox, policy=Policy(mode="open"))

    def on_it(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, there))

    async with opened("host", tmp_path) as session:
        second = await on_it(other())
        for turns in range(12):
            assert (await on_it(second.call("script", {"code": f"{turns}"}))).ok
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
                time.sleep(0.002)
            result = await session.call("script", {"code": f"2 + {turns}"})
            assert result.ok, result
    there.call_soon_threadsafe(there.stop)
    await anyio.to_thread.run_sync(thread.join)
    there.close()


LEAVES_AT_ONCE = """
import asyncio, sys
from handrail import Policy, Session, open_sandbox
from handrail.tools.script import script

async def main():
    sandbox = await open_sandbox("host", workspace=sys.argv[1], allow_weaker=True).__aenter__()
    session = await Session([script], sandbox=sandbox, policy=Policy(mode="open")).__aenter__()
    print((await session.call("script", {"code": "1"})).ok)
    for _ in range(int(sys.argv[2])):
        await asyncio.sleep(0)
    return sandbox, session

asyncio.run(main())
"""


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_a_program_that_ends_right_after_a_script_does_not_hang(turns: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEAVES_AT_ONCE, str(tmp_path), str(turns)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ran.stdout.strip() == "True"


@pytest.mark.parametrize("driver", REAL)
async def test_interrupts_between_calls_leave_no_descriptor_and_no_limit_behind(driver: str, tmp_path: Path) -> None:
    code = """
import os, signal, threading, time
def state(): return [sorted(os.sched_getaffinity(0)), len(os.listdir('/proc/self/fd'))]
before, main, on, over, hits = state(), threading.main_thread().ident, [False], [False], 0
def shoot():
    for n in range(1500):
        time.sleep(n % 7 / 10000)
        if on[0]: signal.pthread_kill(main, signal.SIGINT)
    over[0] = True
thread = threading.Thread(target=shoot)
thread.start()
while not over[0]:
    try:
        on[0] = True
        tools.todo(items=[])
        on[0] = False
    except KeyboardInterrupt:
        hits += 1
    while on[0]:
        try: on[0] = False
        except KeyboardInterrupt: pass
thread.join()
[hits > 0, state() == before]
"""
    async with opened(driver, tmp_path, budget=Budget(calls=None, script_calls=None)) as session:
        result = await session.call("script", {"code": code})
    assert result.ok, result
    assert result.value["result"] == [True, True]


async def test_a_key_that_is_not_json_says_so(real: World) -> None:
    failed = await trouble(real, "ref = tools.bash(command='seq 1 5000')\nassert isinstance(ref, Ref)\nref[b'a']")
    assert "the key is a bytes, which has no JSON form; use .decode() or .hex()" in failed.message


IN_ANOTHER_THREAD = """
import asyncio, sys
from handrail import Policy, Session, open_sandbox
from handrail.tools.script import script

async def main():
    async with open_sandbox("host", workspace=sys.argv[1], allow_weaker=True) as sandbox:
        async def there():
            async with Session([script], sandbox=sandbox, policy=Policy(mode="open")) as session:
                print((await session.call("script", {"code": "1"})).ok)
        for _ in range(3):
            await asyncio.to_thread(asyncio.run, there())

asyncio.run(main())
"""


def test_the_loop_of_another_thread_ends_after_a_script(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IN_ANOTHER_THREAD, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ran.stdout.split() == ["True"] * 3
