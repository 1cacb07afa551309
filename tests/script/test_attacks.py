"""What a script may try against its calls, its clock and the session around it."""

import ast
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import Budget, Call, Decision, Failure, Policy, Session, Tool, Toolbox, builtin_tools, open_sandbox, tool
from handrail.testing import HeldApprovals, approve_all
from handrail.tools.script import script
from tests.drivers.watching import eventually
from tests.tools.test_script import ask_whole, cancel_after, opened, result_of, trouble
from tests.tools.world import REAL, World, in_time

pytestmark = pytest.mark.anyio

DEEP = "x = " + "-" * 2000 + "1"
LANGUAGE: list[tuple[str, Any]] = [
    ("import re\nre.findall('\\d', 'a1')", ["1"]),
    ("from __future__ import annotations\nif True:\n    return 4", 4),
    ("from math import *\nif True:\n    from math import *\nreturn [floor(2.5), ceil(2.5)]", [2, 3]),
    ("def f(tools):\n    return tools['x']\nf({'x': 3})", 3),
    ("tools['glob'](pattern='*')['count']", 0),
    ("[each['count'] for each in tools.gather(call(tools.glob, pattern='*'), call('glob', pattern='a'))]", [0, 0]),
    ("1 if 'a' is 'a' else 2", 1),
    ("\ufeffx = 1\nx", 1),
    ("n = 0\ndef f():\n    global n\n    n += 1\nf()\nreturn n", 1),
    ("n = 0\ndef f():\n    nonlocal n\n    n += 1\nf()\nreturn n", 1),
    ("n: int = 1\nm = 1\ndef f():\n    global m\n    m += n\nf()\nreturn m", 2),
    ("n: int = 1\nm: int\ndef f():\n    global n, m\n    n, m = n + 1, n\nf()\nreturn [n, m]", [2, 1]),
    ("class A:\n    n: int = 5\nn = 1\ndef f():\n    global n\n    n += 1\nf()\nreturn [n, A.n]", [2, 5]),
    ("if True:\n    d = {}\n    d['x']: int = 3\n    return d", {"x": 3}),
    ("from subprocess import call\ncall('true')", 0),
    ("import os as tools\ntools.sep", "/"),
    ("import os.path as call\ncall.join('a', 'b')", "a/b"),
    ("class call:\n    x = 'no-such'\n    def __init__(self, x): self.x = x\ncall('no-such').x", "no-such"),
    ("import asyncio\nasync def call(x): return x\nasyncio.run(call('no-such'))", "no-such"),
    ("try:\n    1 / 0\nexcept ArithmeticError as call:\n    x = str(call)\nx", "division by zero"),
    ("match ['a', len]:\n    case [_, call]: x = call('four')\nx", 4),
    ("match [len]:\n    case [*call]: x = call[0]('four')\nx", 4),
    ("match {'a': 1}:\n    case {**tools}: x = tools['a']\nx", 1),
    ("import pickle\nclass A: x = 1\nreturn pickle.loads(pickle.dumps(A())).x", 1),
    ("import pickle\nclass A: x = 1\npickle.loads(pickle.dumps(A)).x", 1),
    ("import sys\ndef f(a: int): pass\nf.__annotations__['a'] is int", True),
    ("import sys\ndef f(a: int): pass\nreturn f.__annotations__['a'] is int", True),
    ("from __future__ import annotations\ndef f(a: no_such): pass\nf.__annotations__", {"a": "no_such"}),
    ("from __future__ import annotations\ndef f(a: no_such): pass\nreturn f.__annotations__", {"a": "no_such"}),
    ("from __future__ import annotations\nexec('def f(a: no_such): pass')", None),
]


async def test_scripts_that_are_unusual_but_right_run(real: World) -> None:
    for code, expected in LANGUAGE:
        result = await real.call("script", code=code)
        assert result.ok, (code, result)
        assert expected is None or result.value["result"] == expected, code


async def test_files_that_a_script_left_open_are_written_and_its_atexit_is_called(real: World) -> None:
    code = """
import atexit
atexit.register(lambda: open("media/late", "w").write("late"))
def f():
    global held
    held = open("media/open", "w")
    held.write("open")
f()
return 5
"""
    await real.put("media/old", "")
    value = await real.value("script", code=code)
    assert [file["path"] for file in value["media"]] == ["media/late", "media/open"]
    assert (await real.get("media/late"), await real.get("media/open")) == (b"late", b"open")


async def test_the_line_that_an_error_shows_is_the_scripts_own(real: World) -> None:
    for text in ("x = '''a\x0cb'''\n1 / 0  # here", "x = '\u2028 \x85 \x1c'\r\n1 / 0  # here", "x = 1\r1 / 0  # here"):
        failure = await trouble(real, text)
        assert "line 2" in failure.message
        assert "1 / 0  # here" in failure.message, text


async def test_the_lines_of_an_error_are_only_those_that_led_to_it(real: World) -> None:
    message = (await trouble(real, "x = 1\nif x:\n    return [\n        y for y in [1 / 0]]")).message
    assert "in line 4" in message
    assert "line 1" not in message


REFUSED: list[tuple[str, str]] = [
    (DEEP, "nested too deeply"),
    ("(" * 3000 + ")" * 3000, "too many nested parentheses"),
    ("break", "line 1: 'break' outside loop"),
    ("x = 1\nawait tools.glob(pattern='*')", "tools are called without await"),
    ("tools['no-such'](x=1)", "there is no tool 'no-such'"),
    ("#" * 300_000, "it has 300,000 characters, and the limit is 262,144"),
]


async def test_a_script_that_no_python_can_compile_is_refused_before_anything_runs(real: World) -> None:
    for code, said in REFUSED:
        failure = await trouble(real, code)
        assert failure.kind == "invalid_args", (code[:50], failure)
        assert said in failure.message, (code[:50], failure)


async def test_code_of_control_characters_and_of_the_greatest_length_arrives(real: World) -> None:
    text = "\x01" * 200_000
    assert await result_of(real, f"len('{text}')") == 200_000


def odd_tools() -> list[Tool]:
    async def echo(context: Any, arguments: Any) -> Any:
        return dict(arguments)

    properties = {"max-results": {"type": "integer"}, "class": {"type": "string"}, "name": {"type": "string"}}
    return [Tool(name, {"type": "object", "properties": properties}, echo) for name in ("a-b", "gather", "_own")]


async def test_tools_and_arguments_whose_names_are_no_python_are_called_by_their_names(tmp_path: Path) -> None:
    code = """
a = tools["a-b"](**{"max-results": 3, "class": "c"}, name="n")
b = tools["gather"](name="m")
c = tools.gather(call("a-b", name="self"))
d = getattr(tools, "_own")(name="o")
[a, b, c, d]
"""
    async with opened("jail", tmp_path, odd_tools()) as session:
        result = await session.call("script", {"code": code})
    assert result.ok, result
    assert result.value["result"] == [
        {"max-results": 3, "class": "c", "name": "n"}, {"name": "m"}, [{"name": "self"}], {"name": "o"},
    ]  # fmt: skip


async def test_the_stubs_are_python_whatever_the_tools_are_called() -> None:
    toolbox = Toolbox([script, *odd_tools(), *(each for each in builtin_tools("all") if each.name != "script")])
    described = toolbox.schema_for("script")["description"]
    stubs = ast.parse(described.partition("The tools:")[2])
    assert len(stubs.body) == len(toolbox) - 2, "every tool but script and task"
    assert "tools['a-b']" in described
    assert "**{'max-results': …, 'class': …}" in described


KEYS: list[Any] = [
    {"$ref": {"ref": "x", "preview": "", "size": 1, "kind": "text"}},
    {"$ref": 5},
    {"$plain": [["a", 1]]},
    {"$plain": {"$ref": 1}},
    {"$artifact": "no-such"},
    {"$artifact": "no-such", "$ref": 1},
]


async def test_values_that_look_like_references_are_plain_data(tmp_path: Path) -> None:
    @tool
    def held(number: int) -> dict[str, Any]:
        """One of them."""
        value: dict[str, Any] = KEYS[number]
        return value

    async with opened("jail", tmp_path, [held]) as session:
        for number, value in enumerate(KEYS):
            result = await session.call("script", {"code": f"tools.held(number={number})"})
            assert result.ok, (value, result)
            assert result.value["result"] == value


async def test_text_that_json_makes_six_times_as_long_is_read_by_reference(real: World) -> None:
    text = "\x01é" * 600_000
    await real.put("odd", text)
    code = "text = tools.read(path='odd')['text']\nwhole = text.read()\n[len(whole), whole == '\\x01é' * 600_000]"
    assert await result_of(real, code) == [1_200_000, True]


async def test_three_hundred_gathered_calls_are_all_answered(tmp_path: Path) -> None:
    @tool
    def pad(n: int) -> str:
        """A text just below the size of a reference."""
        return f"{n}" + "x" * 4000

    budget = Budget(script_calls=400)
    async with opened("jail", tmp_path, [pad], budget=budget) as session:
        code = "values = tools.gather(*[call('pad', n=n) for n in range(300)])\n[v[:-4000] for v in values]"
        with in_time():
            result = await session.call("script", {"code": code})
    assert result.ok, result
    assert result.value["result"] == [str(n) for n in range(300)]


async def test_a_script_that_goes_on_when_its_calls_are_refused_is_ended(tmp_path: Path) -> None:
    code = "while True:\n    try:\n        tools.todo(items=5)\n    except ToolError: pass"
    async with opened("jail", tmp_path) as session:
        with in_time():
            result = await session.call("script", {"code": code})
        assert isinstance(result, Failure)
        assert result.kind == "budget_exhausted"
        assert "1,000 of its calls were refused" in result.message


async def test_frames_that_nobody_waits_for_are_calls_like_any_other(tmp_path: Path) -> None:
    code = """
for n in range(20_000):
    tools._channel.ask({"call": "todo", "arguments": {"items": []}})
"""
    async with opened("jail", tmp_path) as session:
        with in_time():
            result = await session.call("script", {"code": code})
        made = [event for event in session.trace if event.type == "call_ended" and event.data["tool"] == "todo"]
    assert sum(event.data["status"] == "ok" for event in made) <= 50
    assert not result.ok or result.value["calls"] < 2_000


async def test_refused_calls_of_a_script_are_given_back_to_its_budget(tmp_path: Path) -> None:
    code = """
made = 0
for n in range(4):
    try:
        tools.todo(items=n)
    except ToolError as error:
        assert str(error).startswith("invalid_args: ")
for n in range(5):
    try:
        tools.todo(items=[])
        made += 1
    except ToolError as error:
        assert str(error).startswith("budget_exhausted: ")
made
"""
    async with opened("jail", tmp_path, budget=Budget(script_calls=3)) as session:
        result = await session.call("script", {"code": code})
    assert result.ok, result
    assert result.value["result"] == 3


async def test_a_task_cannot_be_started_by_a_script_that_hides_its_name(real: World) -> None:
    assert (
        "task cannot be called from script" in (await trouble(real, "getattr(tools, 'ta' + 'sk')(prompt='x')")).message
    )


async def test_an_unknown_tool_called_by_getattr_is_a_tool_error(real: World) -> None:
    code = "try:\n    getattr(tools, 'nope')()\nexcept ToolError as error:\n    kind = error.kind\nkind"
    assert await result_of(real, code) == "tool_not_found"


INTERRUPTED = """
import signal
class Late(Exception): pass
def late(*_): raise Late
signal.signal(signal.SIGALRM, late)
interrupted = 0
for n in range(40):
    in_call = True
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0002 + n * 0.0001)
            tools.bash(command="sleep 0.02") if n % 2 else tools.read(path="a")  # one that it meets, one that is quick
            in_call = False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Late:
        interrupted += in_call
[interrupted > 0, tools.glob(pattern="*")["paths"]]
"""


async def test_a_signal_handler_that_interrupts_a_call_leaves_the_next_one_whole(real: World) -> None:
    await real.put("a", "x" * 3000)
    with in_time():
        assert await result_of(real, INTERRUPTED) == [True, ["a"]]


INTERRUPTED_BY_A_THREAD = """
import _thread, queue, threading, time
def interrupt(delay, done):
    time.sleep(delay)
    _thread.interrupt_main()
    done.put(None)
interrupted = 0
for n in range(40):
    done, in_call = queue.SimpleQueue(), True
    try:
        threading.Thread(target=interrupt, args=(n * 0.0001, done)).start()
        tools.bash(command="sleep 0.02") if n % 2 else tools.todo(items=[])  # one that it meets, one that is quick
        in_call = False
        done.get()
        time.sleep(10)
    except KeyboardInterrupt:
        interrupted += in_call
[interrupted > 0, [tools.glob(pattern=f"{name}*")["paths"] for name in ("a", "b")]]
"""


async def test_an_interrupt_of_a_call_leaves_the_next_one_whole(real: World) -> None:
    await real.put("a", "")
    await real.put("b", "")
    with in_time():
        assert await result_of(real, INTERRUPTED_BY_A_THREAD) == [True, [["a"], ["b"]]]


async def test_a_finalizer_may_call_tools(real: World) -> None:
    code = """
found = []
class Held:
    def __del__(self): found.append(tools.glob(pattern="*")["paths"])
held = Held()
del held
ring = Held()
ring.me = ring
del ring
import gc
gc.collect()
found
"""
    await real.put("a", "")
    assert await result_of(real, code) == [["a"], ["a"]]


INSIDE_A_CALL = """
import sys
inner = []
def look(frame, event, argument):
    if frame.f_code.co_name == STEP and event == "call":
        sys.setprofile(None)
        inner.append(tools.glob(pattern="b")["paths"])
sys.setprofile(look)
found = sorted(tools.glob(pattern="*")["paths"])
[inner, found, tools.glob(pattern="a")["paths"]]
"""


async def test_a_call_in_the_middle_of_another_is_answered_and_so_is_the_other(real: World) -> None:
    await real.put("a", "")
    await real.put("b", "")
    for step in ("call", "ask", "answer", "decoded"):
        with in_time():
            found = await result_of(real, INSIDE_A_CALL.replace("STEP", repr(step)))
        assert found == [[["b"]], ["a", "b"], ["a"]], step


THREADS_BESIDE_THE_MAIN_ONE = """
import threading
def look():
    while not tools.waits(): pass
    found.append(tools.go())
found = []
thread = threading.Thread(target=look)
thread.start()
said = tools.stay()
thread.join()
[found, said, tools.waits()]
"""


async def test_a_thread_is_answered_while_the_main_thread_waits_for_a_call(tmp_path: Path) -> None:
    gone, stays = anyio.Event(), anyio.Event()

    @tool
    async def stay() -> str:
        """Wait."""
        stays.set()
        await gone.wait()
        return "stayed"

    @tool
    async def waits() -> bool:
        """Whether somebody waits."""
        await anyio.lowlevel.checkpoint()
        return stays.is_set()

    @tool
    async def go() -> str:
        """Let it go on."""
        gone.set()
        return "gone"

    budget = Budget(calls=None, script_calls=None)
    async with opened("jail", tmp_path, [stay, waits, go], budget=budget) as session:
        with in_time():
            result = await session.call("script", {"code": THREADS_BESIDE_THE_MAIN_ONE})
    assert result.ok, result
    assert result.value["result"] == [["gone"], "stayed", True]


async def test_a_script_that_calls_without_a_pause_lets_other_tasks_run(tmp_path: Path) -> None:
    made, seen = 0, set[int]()

    @tool
    async def quick() -> None:
        """Wait for nothing."""
        nonlocal made
        made += 1

    async def look() -> None:
        while True:
            seen.add(made)
            await anyio.lowlevel.checkpoint()

    budget = Budget(calls=None, script_calls=None)
    async with opened("jail", tmp_path, [quick], budget=budget) as session, anyio.create_task_group() as group:
        group.start_soon(look)
        with in_time():
            result = await session.call("script", {"code": "for _ in range(800): tools.quick()"})
        group.cancel_scope.cancel()
    assert result.ok, result
    assert made == 800
    assert len(seen) >= 800 // 64


CALLS_IN_HANDLERS = """
import signal, threading
found = []
def look(*_):
    found.append(tools.glob(pattern="*")["paths"])
    thread = threading.Thread(target=lambda: found.append(tools.glob(pattern="*")["paths"]))
    thread.start()
    thread.join()
signal.signal(signal.SIGALRM, look)
signal.setitimer(signal.ITIMER_REAL, 0.05)
tools.bash(command="until [ -e seen ]; do sleep 0.05; done & sleep 0.3; touch seen; wait")
[len(found), found[0] == found[1], tools.glob(pattern="*")["paths"]]
"""


async def test_a_signal_handler_may_call_tools_itself_and_wait_for_threads_that_do(real: World) -> None:
    with in_time():
        assert await result_of(real, CALLS_IN_HANDLERS) == [2, True, ["seen"]]


async def test_a_handler_that_is_left_behind_does_not_take_the_result_away(real: World) -> None:
    code = """
import signal, sys
def late(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, late)
class Loud:
    def write(self, text): pass
    def flush(self): signal.raise_signal(signal.SIGALRM)
sys.stdout = Loud()
'done'
"""
    assert await result_of(real, code) == "done"


TIMER = """
import signal
def tick(*_): BODY
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.00001, 0.00001)
['done', tools.glob(pattern="*")["paths"]]
"""


async def test_a_timer_that_comes_all_the_time_does_not_take_the_answer_away(real: World) -> None:
    with in_time():
        assert await result_of(real, TIMER.replace("BODY", "pass")) == ["done", []]
        for _ in range(3):
            failure = await trouble(real, TIMER.replace("BODY", "raise KeyError('late')"))
            assert "line 3" in failure.message
            assert "KeyError: 'late'" in failure.message


async def test_a_signal_that_a_script_holds_back_does_not_take_the_result_away(real: World) -> None:
    code = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
'done'
"""
    assert await result_of(real, code) == "done"


async def test_threads_that_still_run_are_ended_with_the_script(real: World) -> None:
    code = """
import threading, time
def forever():
    while True:
        tools.todo(items=[])
        time.sleep(600)
threading.Thread(target=forever).start()
'done'
"""
    with in_time():
        assert await result_of(real, code) == "done"


async def test_a_fork_while_threads_call_tools_does_not_hang(real: World) -> None:
    code = """
import os, threading
def work():
    for n in range(8): tools.glob(pattern="*")
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
kinds = []
for n in range(5):
    pid = os.fork()
    if pid == 0:
        try: tools.glob(pattern="*")
        except ToolError as error: os._exit(7)
        os._exit(1)
    kinds.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
for thread in threads: thread.join()
kinds
"""
    with in_time():
        assert await result_of(real, code) == [7] * 5


async def test_a_file_in_the_workspace_does_not_take_the_place_of_a_module(real: World) -> None:
    await real.put("csv.py", "raise SystemExit('mine')")
    await real.put("own.py", "x = 5")
    assert await result_of(real, "import csv, own\n[own.x, csv.__file__ != 'csv.py']") == [5, True]


async def test_a_working_directory_that_is_gone_is_an_error_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    async with (
        open_sandbox("host", workspace=str(tmp_path), allow_weaker=True) as sandbox,
        Session(builtin_tools("all"), sandbox=sandbox.at("sub"), policy=Policy(mode="open")) as session,
    ):
        code = "import os\n[os.path.basename(os.getcwd()), tools.glob(pattern='*')['paths']]"
        assert (await session.call("script", {"code": code})).value["result"] == ["sub", []]
        (tmp_path / "sub").rmdir()
        result = await session.call("script", {"code": code})
    assert not result.ok
    assert "sub" in result.message


async def test_secrets_are_in_no_value_log_or_event(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("the key is hunter2hunter2\n")
    shown: list[str] = []
    async with opened(
        "jail", tmp_path, secrets=["hunter2hunter2"],
        readers=[lambda event: shown.append(json.dumps(event.data))],
    ) as session:  # fmt: skip
        code = """
text = tools.read(path="key")["text"]
print(open('key').read())
tools.write(path="given.txt", content=text)
[text, open('key').read(), tools.bash(command="cat key")["stdout"]]
"""
        result = await session.call("script", {"code": code})
    assert result.ok, result
    assert "hunter2" not in json.dumps(result.to_envelope("script"))
    assert "[secret]" in (tmp_path / "given.txt").read_text(), "the script itself is not given it by a tool"
    assert "hunter2" not in "".join(shown)


@tool(isolate=True)
def far_away(n: int) -> int:
    """Runs in a process of its own."""
    return os.getpid() * 0 + n * 2


async def test_isolated_tools_answer_scripts(tmp_path: Path) -> None:
    async with opened("jail", tmp_path, [far_away]) as session:
        result = await session.call("script", {"code": "tools.gather(call('far_away', n=1), call('far_away', n=2))"})
    assert result.ok, result
    assert result.value["result"] == [2, 4]


async def test_scripts_of_one_session_run_at_once(real: World) -> None:
    code = """
import os, time
tools.bash(command="touch NAME")
while not os.path.exists("OTHER"): time.sleep(0.01)
tools.read(path="NAME")["path"]
"""
    calls = [
        Call(name, "script", {"code": code.replace("NAME", name).replace("OTHER", other)})
        for name, other in (("one", "two"), ("two", "one"))
    ]
    with in_time():
        results = await real.session.call_all(calls)
    assert [result.value["result"] for result in results if result.ok] == ["one", "two"], results


async def test_live_output_has_every_line(tmp_path: Path) -> None:
    seen: list[str] = []

    def reader(event: Any) -> None:
        if event.type == "call_output":
            seen.append(event.data["text"])

    async with opened("jail", tmp_path, readers=[reader]) as session:
        code = "import sys\nfor n in range(1000): print(n, file=sys.stderr)"
        assert (await session.call("script", {"code": code})).ok
    assert "".join(seen) == "".join(f"{n}\n" for n in range(1000))


def interpreters(workspace: Path) -> list[str]:
    """The processes that work in this directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "cwd") == str(workspace):
                found.append((entry / "cmdline").read_bytes()[:40].decode())
        except OSError:
            continue
    return found


CALLS = "n = 0\nwhile True:\n    n += 1\n    tools.gather(call('glob', pattern='*'), call('bash', command='sleep 600'))"


async def test_a_script_cancelled_at_any_moment_leaves_no_process(tmp_path: Path) -> None:
    async with opened("host", tmp_path) as session:
        for steps in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 90, 150, 400):
            await cancel_after(session, CALLS, steps)
        assert eventually(lambda: len(interpreters(tmp_path)) <= 1), "the one that waits for the next script"
    assert eventually(lambda: not interpreters(tmp_path)), interpreters(tmp_path)


async def test_a_session_that_closes_ends_its_scripts(tmp_path: Path) -> None:
    async with open_sandbox("host", workspace=str(tmp_path), allow_weaker=True) as sandbox:
        results: list[Any] = []
        budget = Budget(calls=None, refusals=None, script_calls=None)
        async with anyio.create_task_group() as group:
            async with Session(
                builtin_tools("all"), sandbox=sandbox, policy=Policy(mode="open"), budget=budget
            ) as session:

                async def run() -> None:
                    code = "while True:\n    try: tools.bash(command='touch on')\n    except ToolError: pass"
                    results.append(await session.call("script", {"code": code}))

                group.start_soon(run)
                while not (tmp_path / "on").exists():  # noqa: ASYNC110 - a file of a command has no event
                    await anyio.sleep(0.02)
                pending = session.begin("script", {"code": "while True: pass"})
                await anyio.sleep(0.05)
            with in_time():
                end = await pending.next()
            assert isinstance(end, Failure)
            with in_time():
                while not results:  # noqa: ASYNC110
                    await anyio.sleep(0.02)
        assert not results[0].ok
    assert eventually(lambda: not interpreters(tmp_path))


@pytest.fixture
async def gathering(tmp_path: Path) -> AsyncIterator[tuple[Session, HeldApprovals]]:
    held = HeldApprovals()
    policy = Policy(allow=["script"], ask=["write"], mode="open")
    budget = Budget(script_seconds=60)
    async with opened("jail", tmp_path, policy=policy, approver=held, budget=budget) as session:
        yield session, held


async def test_approvals_inside_gather_are_asked_together(gathering: tuple[Session, HeldApprovals]) -> None:
    session, held = gathering
    code = """
made = tools.gather(call("write", path="a", content=""), call("write", path="b", content=""), return_exceptions=True)
["made" if isinstance(each, dict) else str(each).partition(":")[0] for each in made]
"""
    results: list[Any] = []

    async def run() -> None:
        results.append(await session.call("script", {"code": code}))

    with in_time():
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            while len(held.pending) < 2:  # noqa: ASYNC110 - both are asked before one is answered
                await anyio.sleep(0.01)
            by_path = {request.arguments["path"]: request.id for request in held.pending.values()}
            held.answer(by_path["b"], Decision.deny("no"))
            held.answer(by_path["a"], Decision.approve())
    assert results[0].value["result"] == ["made", "user_denied"]


async def test_a_repair_that_changes_a_value_asks_in_a_script_that_was_approved(tmp_path: Path) -> None:
    asked, result = await ask_whole(tmp_path, "tools.write(path='a', content=5)")
    assert result.ok, result
    assert [each.partition(":")[0] for each in asked] == ["script", "write"]


async def test_a_script_that_was_edited_is_asked_about_again_if_it_calls_other_tools(tmp_path: Path) -> None:
    shown: list[str] = []

    async def approver(request: Any) -> Decision:
        shown.append(f"{request.tool}: {request.reason}")
        if len(shown) == 1:
            return Decision.edit({"code": "tools.bash(command='touch made')"})
        return Decision.approve()

    async with opened("jail", tmp_path, policy=Policy(mode="ask", scripts="whole"), approver=approver) as session:
        result = await session.call("script", {"code": "tools.write(path='a', content='')"})
    assert result.ok, result
    assert [each.partition(";")[0] for each in shown] == ["script: it calls write", "script: it calls bash"]
    assert (tmp_path / "made").exists()
    assert not (tmp_path / "a").exists()


async def test_what_was_approved_for_one_script_is_not_approved_for_another(tmp_path: Path) -> None:
    asked: list[str] = []

    async def approver(request: Any) -> Decision:
        asked.append(request.tool)
        return Decision.approve()

    async with opened("jail", tmp_path, policy=Policy(mode="ask", scripts="whole"), approver=approver) as session:
        for path in ("a", "b"):
            assert (await session.call("script", {"code": f"tools.write(path='{path}', content='')"})).ok
        await session.call("write", {"path": "c", "content": ""})
    assert asked == ["script", "script", "write"]


async def test_a_picture_cannot_be_given_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "media").write_text("a file, not a directory")
    (tmp_path / "shot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(60))
    code = "try:\n    tools.read(path='shot.png')\nexcept ToolError as error:\n    kind = error.kind\nkind"
    async with opened("jail", tmp_path, approver=approve_all) as session:
        result = await session.call("script", {"code": code})
    assert result.ok, result
    assert result.value["result"] == "unavailable"


ALL_AT_ONCE = "tools.gather(*[call('add_one', n=n) for n in range(3)])"


@tool
async def add_one(n: int) -> int:
    """Add one."""
    return n + 1


@pytest.mark.parametrize("driver", REAL)
async def test_calls_together_are_answered_where_a_script_can_start_no_thread(driver: str, tmp_path: Path) -> None:
    small = f"import threading\nthreading.stack_size(32768)\n[{ALL_AT_ONCE}, threading.stack_size()]"
    full = f"""
import resource
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (3 << 20),) * 2)
import threading
try:
    threading.Thread(target=int).start()
except RuntimeError:
    made = {ALL_AT_ONCE}
made
"""
    async with opened(driver, tmp_path, [add_one]) as session:
        for code, expected in ((ALL_AT_ONCE, [1, 2, 3]), (small, [[1, 2, 3], 32768])):
            result = await session.call("script", {"code": code})
            assert result.ok, result
            assert result.value["result"] == expected
        result = await session.call("script", {"code": full})
        assert result.ok, result
        assert result.value["result"] == [1, 2, 3]
