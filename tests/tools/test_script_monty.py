"""Monty runs short scripts in a jail of its own; what it cannot run goes to CPython before the first call, or fails."""

import builtins
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pydantic_monty
import pytest

from handrail import Budget, Failure, HandrailError, Policy, Sandbox, Session, Toolbox, Unavailable, builtin_tools, tool
from handrail.drivers.host import open_host
from handrail.drivers.open import jailed_alone
from handrail.tools._script_subset import MODULES, NAMES
from handrail.tools.script import EngineName, script_tool
from tests.drivers.watching import command, eventually
from tests.tools.test_script import PNG, cancel_after, opened
from tests.tools.world import in_time

pytestmark = pytest.mark.anyio

WHICH = "'ToolError' in str(ToolError)"
"""A script whose result tells which engine ran it: Monty has no class of that name."""
BY = {False: "monty", True: "cpython"}


def workers() -> list[int]:
    """The processes by which this one runs Monty; the interpreter itself is inside of them."""
    return [pid for pid in children(os.getpid()) if b"/run/handrail/program\0subprocess" in command(pid)]


def children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def kill_workers() -> None:
    """As the system does where memory ends: the interpreter first."""
    for outer in workers():
        inner = children(outer)
        for pid in [*(each for inmost in inner for each in children(inmost)), *inner, outer]:
            with suppress(ProcessLookupError):  # one ends with the other
                os.kill(pid, signal.SIGKILL)


async def test_auto_tries_monty_first_and_the_built_in_is_cpython(tmp_path: Path) -> None:
    engines: tuple[EngineName, ...] = ("auto", "monty", "cpython")
    ran = []
    for engine in engines:
        async with opened("jail", tmp_path, engine=engine) as session:
            ran.append(BY[(await session.call("script", {"code": WHICH})).value["result"]])
    assert ran == ["monty", "monty", "cpython"]
    builtin = next(each for each in builtin_tools("all") if each.name == "script")
    async with opened("jail", tmp_path) as session:
        other = Session([builtin], sandbox=session.sandbox, policy=Policy(mode="open"))
        async with other:
            assert BY[(await other.call("script", {"code": WHICH})).value["result"]] == "cpython"


def test_the_description_promises_what_the_engine_has() -> None:
    described = {
        engine: Toolbox([script_tool(engine)]).schema_for("script")["description"]
        for engine in ("cpython", "auto", "monty")
    }
    assert described["cpython"] == described["auto"]
    for lacked_by_monty in ("retryable", '["key"]', "files, and a network only where bash has one"):
        assert lacked_by_monty in described["cpython"]
        assert lacked_by_monty not in described["monty"]
    for module in MODULES:
        assert module in described["monty"]
    assert "str(error) is 'kind: message'" in described["monty"]
    for text in described.values():
        assert "no network" not in text, "a sandbox may have one"


def test_an_engine_that_does_not_exist_is_refused() -> None:
    with pytest.raises(HandrailError, match="did you mean 'monty'"):
        script_tool("mony")  # type: ignore[arg-type]


FALL_BACK: dict[str, Any] = {
    "open('made', 'w').write('x')": 1,
    "import os\nos.path.basename('/a/b')": "b",
    "class E(Exception): pass\ntry:\n    raise E('x')\nexcept E as e:\n    r = str(e)\nr": "x",
    "def f():\n    yield 1\nlist(f())": [1],
    "try:\n    tools.read(path='no')\nexcept ToolError as error:\n    kind = error.kind\nkind": "not_found",
    "tools['glob'](pattern='no*')['count']": 0,
    "list(map(tools.glob, []))": [],
    "sorted([3, 1], key=lambda n: tools.glob(pattern=f'no{n}')['count'])": [3, 1],
    "try:\n    raise ValueError('a', 1)\nexcept ValueError as error:\n    x = str(error)\nx": "('a', 1)",
    "try:\n    raise ToolError('mine', 'said')\nexcept ToolError as error:\n    x = str(error)\nx": "mine: said",
    "len('aé'.encode('utf-16'))": 6,
    "str.maketrans('a', 'b')": None,
    "assert vars": None,
}


async def test_auto_gives_to_cpython_what_monty_lacks(tmp_path: Path) -> None:
    async with opened("jail", tmp_path, engine="auto") as session:
        for code, expected in FALL_BACK.items():
            result = await session.call("script", {"code": code})
            session.begin_run()
            if code.startswith("str."):
                assert "97 is" in result.message or "the key 97" in result.message, "CPython's own answer"
                continue
            assert result.ok, (code, result)
            assert result.value["result"] == expected, code


async def test_what_monty_lacks_is_refused_before_anything_runs(tmp_path: Path) -> None:
    async with opened("jail", tmp_path, engine="monty") as session:
        for code in list(FALL_BACK)[:10]:
            result = await session.call("script", {"code": f"tools.write(path='made', content='')\n{code.lstrip()}"})
            session.begin_run()
            assert isinstance(result, Failure), code
            assert result.kind == "invalid_args", (code, result)
            assert "Nothing was called" in result.message
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("engine", ["auto", "monty"])
async def test_a_script_that_has_made_a_call_is_never_run_again(engine: EngineName, tmp_path: Path) -> None:
    code = """
tools.bash(command="echo x >> ticks")
def count(n):
    return tools.glob(pattern="*")["count"]
sorted([1, 2], key=count)
"""
    async with opened("jail", tmp_path, engine=engine) as session:
        result = await session.call("script", {"code": code})
    assert isinstance(result, Failure)
    assert result.kind == "execution_error"
    assert "line 4" in result.message
    assert "only a part of Python" in result.message
    assert "1 call was finished, and is not made again by itself: bash" in result.message
    assert (tmp_path / "ticks").read_text() == "x\n"


async def test_what_is_said_to_be_missing_and_to_be_there_is_what_this_monty_has() -> None:
    with pydantic_monty.Monty(max_processes=1) as pool:

        def has(code: str) -> bool:
            with pool.checkout() as session:
                return isinstance(session.feed_start(code), pydantic_monty.MontyComplete)

        assert [name for name in sorted(MODULES) if not has(f"import {name}")] == []
        assert not has("import subprocess"), "the control"
        names = [name for name in dir(builtins) if name not in NAMES and name.isidentifier() and name != "_"]
        assert [name for name in names if not has(f"{name}\n1")] == []


async def test_without_a_jail_auto_uses_cpython_and_monty_is_unavailable(tmp_path: Path) -> None:
    for engine in ("auto", "monty"):
        async with (
            Sandbox(await open_host(workspace=str(tmp_path))) as sandbox,
            Session([script_tool(engine)], sandbox=sandbox, policy=Policy(mode="open")) as session,
        ):
            result = await session.call("script", {"code": WHICH})
        if engine == "auto":
            assert BY[result.value["result"]] == "cpython"
        else:
            assert result.kind == "unavailable"


class Forgetful:
    """A driver that cannot read one file once."""

    def __init__(self, driver: Any, path: str) -> None:
        self._driver, self._path = driver, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    async def read(self, path: str, **options: Any) -> bytes:
        if path == self._path:
            self._path = ""
            raise Unavailable("the sandbox does not answer")
        data: bytes = await self._driver.read(path, **options)
        return data


async def test_a_sandbox_that_fails_at_the_end_of_a_script_does_not_make_it_run_again(tmp_path: Path) -> None:
    (tmp_path / "media").mkdir()
    driver: Any = Forgetful(await open_host(workspace=str(tmp_path)), str(tmp_path / "media" / "made"))
    code = "tools.bash(command='echo x >> ticks; echo x > media/made')['exit_code']"
    tools = [*builtin_tools("coding"), script_tool("auto")]
    async with (
        Sandbox(driver, jailed_alone=jailed_alone) as sandbox,
        Session(tools, sandbox=sandbox, policy=Policy(mode="open")) as session,
    ):
        result = await session.call("script", {"code": code})
        again = await session.call("script", {"code": code})
    assert (tmp_path / "ticks").read_text() == "x\nx\n", "once by each script"
    assert result.ok, result
    assert result.value["media"][0]["unreadable"] == "the sandbox does not answer"
    assert again.value["media"] == [{"path": "media/made", "size": 2}], "the control"


async def test_what_monty_lacks_only_when_it_runs_is_said_to_be_montys(tmp_path: Path) -> None:
    async with opened("jail", tmp_path, engine="monty") as session:
        result = await session.call("script", {"code": "x = 5\nraise ValueError(x)"})
    assert isinstance(result, Failure)
    assert "only a part of Python" in result.message


HOSTILE: list[tuple[str, str]] = [
    ("a = 'x' * 1000\nfor _ in range(60): a = [a, a]\na", "write it to a file"),
    ("a = 'x' * 1000\nfor _ in range(60): a = {'a': a, 'b': [a]}\ntools.write(path='x', content=a)", "write it to a"),
    ("a = []\nfor _ in range(100_000): a = [a]\na", "nested too deeply"),
    ("a = []\nfor _ in range(100_000): a = [a]\ntools.write(path='x', content=a)", "nested too deeply"),
    ("x = []\nwhile True: x.append('a' * 1_000_000)", "MemoryError"),
    ("'a' * 10 ** 12", "MemoryError"),
    ("Ref()", "Ref"),
    ("10 ** 5000", "more than 4,000 digits"),
    ("getattr(tools, '__class__')", "is a type"),
    ("type(tools)()", "not defined"),
    ("undefined_name(1)", "name 'undefined_name' is not defined"),
    ("tools.bash(command='seq 1 5000')['stdout'].pieces()", "but not pieces"),
    ("tools.gather(1)", "tools.gather takes call"),
    ("x = 1\nraise SystemExit('badly')", "line 2"),
]


async def test_hostile_scripts_end_with_an_error_and_the_next_one_runs(tmp_path: Path) -> None:
    async with opened("jail", tmp_path, engine="monty") as session:
        for code, said in HOSTILE:
            with in_time():
                result = await session.call("script", {"code": code})
            session.begin_run()
            assert isinstance(result, Failure), (code, result)
            assert result.kind == "execution_error"
            assert said in result.message, (code, result.message)
        assert (await session.call("script", {"code": WHICH})).value["result"] is False


async def test_a_killed_worker_leaves_what_was_done_in_the_trace_and_the_answer(tmp_path: Path) -> None:
    @tool
    def kill() -> None:
        """Kill the worker."""
        kill_workers()

    async with opened("jail", tmp_path, [kill], engine="monty") as session:
        code = "tools.write(path='a', content='')\ntools.kill()\ntools.write(path='b', content='')"
        with in_time():
            result = await session.call("script", {"code": code})
        assert isinstance(result, Failure)
        assert "ended without a result" in result.message
        assert [call["tool"] for call in result.data["calls"]] == ["write", "kill"]
        ended = [event.data["tool"] for event in session.trace if event.type == "call_ended"]
        assert ended == ["write", "kill", "script"]
        assert (await session.call("script", {"code": "1"})).value["result"] == 1
        kill_workers()
        assert (await session.call("script", {"code": "2"})).value["result"] == 2, "the one that waited was killed"
    assert not (tmp_path / "b").exists()


async def test_a_worker_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    @tool(lane="none")
    def body(n: int) -> int:
        """In a thread of its own: most of these threads end."""
        together.wait()
        return n

    threads = 32  # at once, in one gather
    together = threading.Barrier(threads)
    many = f"tools.gather(*[call('body', n=n) for n in range({threads})])[-1]"
    async with opened("jail", tmp_path, [body], engine="monty", budget=Budget(script_calls=None)) as session:
        assert (await session.call("script", {"code": "1"})).ok
        before = workers()
        for _ in range(5):
            with in_time():
                result = await session.call("script", {"code": many})
            assert result.ok, result
        assert workers() == before


CALLS = "while True:\n    tools.gather(call('glob', pattern='*'), call('bash', command='sleep 600'))"


async def test_a_script_cancelled_at_any_moment_leaves_no_worker(tmp_path: Path) -> None:
    async with opened("host", tmp_path, engine="monty", budget=Budget(calls=None, script_calls=None)) as session:
        for code in (CALLS, "while True: pass"):
            for steps in (0, 5, 34, 90):
                await cancel_after(session, code, steps)
        assert (await session.call("script", {"code": "1"})).ok
        assert len(workers()) >= 1, "the control: the one that waits for the next script"
        with in_time():
            pending = session.begin("script", {"code": "while True: pass"})
            await anyio.sleep(0.05)
    assert not (await pending.next()).ok  # type: ignore[union-attr]
    assert eventually(lambda: not workers()), workers()


async def test_scripts_at_once_have_a_worker_each_and_one_is_kept(tmp_path: Path) -> None:
    met, results = [anyio.Event()], list[Any]()

    @tool(lane="none")
    async def meet(name: str) -> str:
        """Wait for another one who waits."""
        if met[-1].statistics().tasks_waiting:
            met[-1].set()
        else:
            await met[-1].wait()
        return name

    async with opened("jail", tmp_path, [meet], engine="monty") as session:

        async def run(name: str) -> None:
            result = await session.call("script", {"code": f"x = tools.meet(name='{name}')\nx"})
            results.append(result.value["result"])

        with in_time():
            async with anyio.create_task_group() as group:
                group.start_soon(run, "one")
                group.start_soon(run, "two")
        assert sorted(results) == ["one", "two"]
        assert len(workers()) == 1
        result = await session.call("script", {"code": "x"})
        assert "name 'x' is not defined" in result.message, "nothing of an earlier script is there"


async def test_large_values_and_media_reach_a_script_only_by_reference(tmp_path: Path) -> None:
    (tmp_path / "shot.png").write_bytes(PNG)
    seen: list[int] = []

    @tool
    def make(times: int) -> dict[str, Any]:
        """Make a large text, and a list."""
        return {"text": "0123456789" * times, "small": 1, "names": [f"{n}" for n in range(2000)]}

    @tool
    def many(count: int) -> list[int]:
        """Many numbers."""
        return list(range(count))

    @tool
    def take(items: list[str]) -> int:
        """Take it."""
        seen.append(len(items[0]))
        return len(items[0])

    code = """
parts = tools.make(times=1_000)
made = tools.make(times=5_000_000)
names, text = made["names"], made["text"]
numbers = tools.many(count=300_000)
size = tools.take(items=[text])
assert [parts["text"].size, parts["small"], parts["names"]] == [10_000, 1, names]
picture = tools.read(path="shot.png")
tools.bash(command="cp " + picture["path"] + " media/copy.png")
told = [numbers.kind, numbers.keys(), numbers.get(299_999), numbers.get(300_000, 7), tools.many(count=9000)[-1]]
return [size, list(made), told, names[-1], text.read(9, 12), len(picture["path"]) > 5]
"""
    async with opened("jail", tmp_path, [make, many, take], engine="monty") as session:
        with in_time():
            result = await session.call("script", {"code": code})
    assert result.ok, result
    keys = ["text", "small", "names"]
    told = ["json", [], 299_999, 7, 8999]
    assert result.value["result"] == [50_000_000, keys, told, "1999", "901", True]
    assert seen == [50_000_000]
    assert len(result.value["media"]) == 2


async def test_live_output_has_every_line(tmp_path: Path) -> None:
    seen: list[str] = []

    def reader(event: Any) -> None:
        if event.type == "call_output":
            seen.append(event.data["text"])

    async with opened("jail", tmp_path, engine="monty", readers=[reader]) as session:
        result = await session.call("script", {"code": "for n in range(1000): print(n)"})
    assert result.value["logs"] == "".join(seen) == "".join(f"{n}\n" for n in range(1000))


async def test_sleeping_is_ended_by_the_clock_like_anything_else(tmp_path: Path) -> None:
    async with opened("jail", tmp_path, engine="monty", budget=Budget(script_seconds=0.5)) as session:
        with in_time():
            assert (await session.call("script", {"code": "import time\ntime.sleep(600)"})).kind == "timeout"
