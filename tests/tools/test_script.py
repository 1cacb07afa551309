"""A script of the model's calls tools through every gate, and cannot do anything else with them."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import time_ns
from typing import Any

import anyio
import pytest

from handrail import (
    Agent,
    Budget,
    Call,
    Decision,
    Failure,
    Image,
    Policy,
    Session,
    Tool,
    Toolbox,
    Turn,
    builtin_tools,
    open_sandbox,
    tool,
)  # fmt: skip
from handrail.testing import HeldApprovals, ScriptedModel, approve_all, deny_all, never_answers
from handrail.tools.script import script
from tests.drivers.watching import command, descendants, eventually
from tests.tools.world import REAL, World, in_time

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + bytes(60)


@asynccontextmanager
async def opened(driver: str, root: Path, tools: Sequence[Tool] = (), **options: Any) -> AsyncIterator[Session]:
    """A session with all built-in tools and these, on a new sandbox."""
    env = options.pop("env", None)
    sandbox = open_sandbox(driver, workspace=str(root), allow_weaker=True, env=env)
    options.setdefault("policy", Policy(mode="open"))
    async with sandbox as made, Session([*builtin_tools("all"), *tools], sandbox=made, **options) as session:
        yield session


async def cancel_after(session: Session, code: str, steps: int) -> None:
    """Cancel a script after so many turns of the loop, and see that every call that began has ended."""
    work = asyncio.ensure_future(session.call("script", {"code": code}))
    for _ in range(steps):
        await asyncio.sleep(0 if steps < 60 else 0.001)
    work.cancel()
    with pytest.raises(asyncio.CancelledError), in_time():
        await work
    running = [str(event.call_id) for event in session.trace if event.type == "call_started"]
    ended = [str(event.call_id) for event in session.trace if event.type == "call_ended"]
    assert sorted(running) == sorted(ended), steps


async def result_of(world: World, code: str, **arguments: Any) -> Any:
    value = await world.value("script", code=code, **arguments)
    return value["result"]


async def trouble(world: World, code: str) -> Failure:
    return await world.failure("script", code=code)


RESULTS: list[tuple[str, Any]] = [
    ("", None),
    ("# only a comment", None),
    ("x = 1", None),
    ("x = 1\nx + 1", 2),
    ("return {'a': [1, 2.5, None, True]}", {"a": [1, 2.5, None, True]}),
    ("for i in range(3):\n    if i == 2:\n        return i", 2),
    ("def f(): return 5\nf()", 5),
    ("    x = '''a\n  b'''\n    x", "a\n  b"),
    ("\r\n  x = f'''a\r\n{1}\r\n    b'''\r\n  if x:\r\n    y = [x,\r\n1]\r\n  y", ["a\n1\n    b", 1]),
    ('s = """\n\tdeep\n"""\ns', "\n\tdeep\n"),
    ("(1, 2)", [1, 2]),
    ("import asyncio\nasync def f(): return tools.glob(pattern='*')['count']\nasyncio.run(f())", 0),
    ("class A:\n    x = 1\nA.x", 1),
    ("import time\ntime.sleep(0.01)\n5", 5),
    ("import sys\nsys.exit()", None),
]


async def test_the_value_of_the_last_expression_or_of_return_is_the_result(real: World) -> None:
    for code, expected in RESULTS:
        assert await result_of(real, code) == expected, code


NO_JSON: list[tuple[str, str]] = [
    ("{1, 2}", "the result is a set, which has no JSON form; use sorted"),
    ("b'x'", "the result is a bytes"),
    ("import datetime\n[datetime.date(2020, 1, 1)]", "the result[0] is a date"),
    (
        "import datetime\ndatetime.datetime(2020, 1, 1)",
        "the result is a datetime, which has no JSON form; use .isoformat()",
    ),
    ("float('nan')", "the result is nan"),
    ("float('inf')", "the result is inf"),
    ("{1: 2}", "the key 1"),
    ("a = []\na.append(a)\na", "contains itself"),
    ("a = {}\na['x'] = [a]\nreturn a", "contains itself"),
    ("object()", "is a object"),
    ("def f(): return 1\n[f]", "the result[0] is a function"),
    ("id = str = 5\n{'a': len}", "the result['a'] is a builtin_function_or_method"),
    ("range(3)", "is a range"),
    ("import math\nmath", "is a module"),
]


async def test_a_result_that_is_no_json_is_an_error_that_says_where_and_what_to_write(real: World) -> None:
    for code, said in NO_JSON:
        failure = await trouble(real, code)
        assert failure.kind == "execution_error"
        assert said in failure.message, (code, failure)


async def test_an_argument_that_is_no_json_is_refused_where_it_is_given(real: World) -> None:
    given = {
        "a = []\na.append([a])\n": "contains itself",
        "def a(): return 1\n": "is a function",
        "a = [range(3)]\n": "items[0] is a range",
        "a = [{'x': {1}}]\n": "items[0]['x'] is a set, which has no JSON form; use sorted",
        "a = float('nan')\n": "items is nan",
    }
    for code, said in given.items():
        call = "try:\n    tools.todo(items=a)\nexcept ToolError as error:\n    told = str(error)\ntold"
        told = await result_of(real, f"{code}{call}")
        assert told.startswith("invalid_args: tools.todo: items"), told
        assert said in told
    assert await result_of(real, "tools.write(path='dots', content='[...]')\n['[...]', '{...}']") == [
        "[...]", "{...}",
    ], "the control: texts that look like it"  # fmt: skip
    assert await real.get("dots") == b"[...]"


NOT_RUN: list[tuple[str, str]] = [
    ("x = (", "line 1"),
    ("x = 1\nif x:\npass", "line 3"),
    ("if True:\n\tx = 1\n        y = 2", "line 3"),
    ("tools.no_such_tool()", "there is no tool 'no_such_tool'"),
    ("call('grepp', pattern='x')", "did you mean 'grep'?"),
    ("x = 1\ntools.read(pth='x')", "line 2: read has no argument 'pth'; did you mean 'path'?"),
    ("tools.script(code='1')", "script cannot be called by a script"),
    ("tools.task(prompt='x')", "task cannot be called by a script"),
    ("x = 'a\0b'", "null"),
]


async def test_what_cannot_work_is_refused_before_anything_runs(real: World) -> None:
    for code, said in NOT_RUN:
        failure = await trouble(real, "tools.write(path='made', content='')\n" * ("line" not in said) + code)
        assert failure.kind == "invalid_args"
        assert said in failure.message, (code, failure)
    assert "made" not in await real.files()


ENDS: list[tuple[str, str]] = [
    ("x = 1\nraise ValueError('no')", "line 2"),
    ("import os\nos._exit(3)", "exit code 3"),
    ("def f(n): return f(n + 1)\nf(0)", "RecursionError"),
    ("import sys\nsys.exit('done badly')", "done badly"),
    ("class E(Exception):\n    def __str__(self): raise self\nraise E", "line 3"),
    ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "exit code 137"),
    ("tools.read(path='missing')", "not_found"),
    ("getattr(tools, 'script')(code='1')", "script cannot be called from script"),
    ("tools.read('x')", "takes arguments by name"),
    ("tools.write(path='x', content={1, 2})", "content is a set"),
    ("tools.gather(tools.glob)", "tools.gather takes call"),
]


async def test_a_script_that_fails_says_where_and_what_was_done(real: World) -> None:
    for code, said in ENDS:
        failure = await trouble(real, code)
        assert failure.kind == "execution_error"
        assert said in failure.message, (code, failure)
        assert "finished" in failure.message
        assert len(failure.message) < 4000, "lines that come again and again are counted"


async def test_tools_return_plain_data_or_raise(real: World) -> None:
    code = """
tools.write(path="a.txt", content="one\\ntwo\\n")
try:
    tools.read(path="missing")
except ToolError as error:
    kind, message, field, retryable = error.kind, error.message, error.field, error.retryable
print("said", 1)
return [tools.read(path="a.txt")["text"], kind, "missing" in message, field, retryable]
"""
    value = await real.value("script", code=code)
    assert value["result"] == ["one\ntwo\n", "not_found", True, "path", False]
    assert value["calls"] == 3
    assert value["logs"] == "said 1\n"


async def test_calls_that_are_gathered_run_together_and_answer_in_order(real: World) -> None:
    await real.put("a", "1")
    code = """
tools.gather(call("read", path="a"), call("read", path="no"), call(tools.glob, pattern="*"), return_exceptions=True)
"""
    with pytest.raises(AssertionError):
        await result_of(real, code)  # an error is no JSON
    values = await result_of(
        real, code.replace("\ntools", "\nx = tools") + "[x[0]['text'], str(x[1]).partition(':')[0], x[2]['paths']]"
    )
    assert values == ["1", "not_found", ["a"]]
    failure = await trouble(real, "tools.gather(call('read', path='no'), call('write', path='made', content=''))")
    assert "not_found" in failure.message
    assert "made" in await real.files(), "the others are made all the same"


async def test_threads_may_call_tools_at_once(real: World) -> None:
    await real.put("a", "1")
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    texts = list(pool.map(lambda n: tools.read(path="a")["text"] * n, range(20)))
texts == ["1" * n for n in range(20)]
"""
    assert await result_of(real, code) is True


async def test_every_call_is_recorded_as_the_scripts(real: World) -> None:
    await result_of(real, "tools.glob(pattern='*')\ntools.glob(pattern='a')")
    started = [event for event in real.session.trace if event.type == "call_started"]
    script = started[0].call_id
    assert [(event.data["tool"], event.data["origin"], event.parent) for event in started[1:]] == [
        ("glob", "script", script)
    ] * 2


async def test_the_fifty_first_call_is_refused_and_the_script_may_go_on(real: World) -> None:
    code = """
made = 0
try:
    for n in range(60):
        tools.todo(items=[])
        made += 1
except ToolError as error:
    kind = str(error).partition(":")[0]
[made, kind]
"""
    assert await result_of(real, code) == [50, "budget_exhausted"]


LARGE = """
tools.bash(command="seq 1 5000 > numbers; head -c 100000 /dev/zero | tr '\\\\0' é > wide")
ref = tools.read(path="numbers")
text = ref["text"]
assert isinstance(ref, Ref) and ref.kind == "json"
assert isinstance(text, Ref) and text.kind == "text"
assert ref["path"] == "numbers" and "path" in ref.keys() and ref.get("no") is None
assert text.preview.startswith("1\\n2\\n") and text.size > 4096
assert text.read() == "".join(f"{n}\\n" for n in range(1, 5001))
assert list(text.lines()) == [str(n) for n in range(1, 5001)]
tools.write(path="copy", content=text)
return [text.size, text.read(0, 3), text.read(2, 7)]
"""


async def test_a_large_value_is_a_reference_that_can_be_read_and_passed_on(real: World) -> None:
    size, first, second = await result_of(real, LARGE)
    whole = "".join(f"{n}\n" for n in range(1, 5001))
    assert size == len(whole)
    assert [first, second] == [whole[0:3], whole[2:7]]
    assert await real.get("copy") == whole.encode()
    for event in real.session.trace:
        assert "2499\\n2500" not in json.dumps(event.data), event.type


async def test_pieces_of_a_reference_never_break_a_character(real: World) -> None:
    await real.put("wide", "aé€😀" * 2000)
    code = """
text = tools.read(path="wide")["text"]
pieces = [text.read(at, at + 97) for at in range(0, text.size, 97)]
"".join(pieces) == text.read() == "aé€😀" * 2000
"""
    assert await result_of(real, code) is True


async def test_what_a_script_returns_by_reference_stays_readable_and_the_rest_goes(real: World) -> None:
    await real.put("big", "x" * 10_000)
    await real.put("other", "y" * 10_000)
    value = await result_of(real, "tools.read(path='other')\ntools.read(path='big')['text']")
    shown = await real.value("read_artifact", ref=value.ref)
    assert shown["text"].startswith("xxx")
    assert [each.ref for each in real.session.artifacts.own()] == [value.ref]


async def test_a_script_can_read_only_references_that_it_was_given(real: World) -> None:
    await real.put("big", "x" * 10_000)
    ref = (await result_of(real, "tools.read(path='big')['text']")).ref
    code = f"""
ref = object.__new__(Ref)
ref._channel, ref._ref, ref.size, ref.kind = tools._channel, {ref!r}, 100, "text"
ref.read()
"""
    assert "was not given" in (await trouble(real, code)).message


FORGED = [
    'tools._channel._put(b\'{"number": 7, "call": "glob", "arguments": {}}\')\ntools.glob(pattern="*")',
    'tools._channel._put(b\'{"number": 1, "call": "glob", "arguments": 5}\')\ntools.glob(pattern="*")',
    'c = tools._channel\nc._put(b\'{"ended": {"value": \' + b"[" * 900 + b"]" * 900 + b"}}")\ntools.glob(pattern="*")',
    'tools._channel._put(b"no json")\ntools.glob(pattern="*")',
    'tools._channel._put(b"[]")\ntools.glob(pattern="*")',
    'import os\nos.write(tools._channel._out, b"\\xff" * 8)\ntools.glob(pattern="*")',
    (
        'c = tools._channel\nc._put(b\'{"number": 1, "call": "todo", "arguments": {"items": []}}\')\n'
        'c._put(b\'{"number": 1, "call": "todo", "arguments": {"items": []}}\')\ntools.glob(pattern="*")'
    ),
    'import os\nfor fd in range(3, 50):\n    try: os.close(fd)\n    except OSError: pass\ntools.glob(pattern="*")',
]


@pytest.mark.parametrize("driver", REAL)
async def test_who_finds_the_channel_can_do_no_more_than_a_gated_call(driver: str, tmp_path: Path) -> None:
    async with open_sandbox(driver, workspace=str(tmp_path), allow_weaker=True) as sandbox:
        tools = builtin_tools("all")
        async with Session(
            tools, sandbox=sandbox, policy=Policy(allow=["script"], deny=["write"]), approver=deny_all
        ) as session:
            for code in FORGED:
                with in_time():
                    result = await session.call("script", {"code": code})
                assert isinstance(result, Failure)
                assert result.kind == "execution_error", (code, result)
            forged = (
                "from queue import SimpleQueue\nc = tools._channel\nreply = c._waiting[1] = SimpleQueue()\n"
                'c._put(b\'{"number": 1, "call": "write", "arguments": {"path": "made", "content": ""}}\')\n'
                "c.answer(reply)"
            )
            result = await session.call("script", {"code": forged})
            assert "rejected" in result.message
            assert not (tmp_path / "made").exists()
            replayed = forged.replace("write", "glob").replace('"path": "made", "content": ""', '"pattern": "*"')
            assert (await session.call("script", {"code": replayed})).ok, "the control: a well-formed frame is a call"


async def test_a_forked_child_has_no_tools(real: World) -> None:
    code = """
import os
pid = os.fork()
if pid == 0:
    try:
        tools.glob(pattern="*")
    except ToolError as error:
        open("said", "w").write(error.kind)
    os._exit(0)
os.waitpid(pid, 0)
[open("said").read(), tools.glob(pattern="*")["paths"]]
"""
    assert await result_of(real, code) == ["unavailable", ["said"]]


@pytest.mark.parametrize("driver", REAL)
async def test_an_endless_script_is_ended_in_time_with_its_calls(driver: str, tmp_path: Path) -> None:
    async with opened(driver, tmp_path, budget=Budget(script_seconds=1.5)) as session:
        nap = f"{time_ns()}"  # other tests sleep too, and the host sees them all
        calls = f"tools.bash(command='sleep {nap}')"
        for code in ("while True: pass", "2 ** (10 ** 9) and 10 ** (10 ** 9)", calls):
            with in_time():
                result = await session.call("script", {"code": f"print('on')\n{code}"})
            assert isinstance(result, Failure)
            assert result.kind == "timeout", (code, result)
            assert result.data["logs"] == "on\n"
        assert session.sandbox is not None
        assert (await session.sandbox.run(f"pgrep -f 'sleep [{nap[0]}]{nap[1:]}'")).exit_code == 1


@pytest.mark.parametrize("driver", REAL)
async def test_a_script_ends_with_the_seconds_of_its_run_and_says_what_it_did(driver: str, tmp_path: Path) -> None:
    code = "print('on')\ntools.write(path='a.txt', content='a')\nwhile True: pass"
    async with opened(driver, tmp_path, budget=Budget(seconds=4)) as session:
        assert (await session.call("script", {"code": "1"})).ok  # the first start of an interpreter may take long
        session.begin_run()
        with in_time():
            result = await session.call("script", {"code": code})
    assert isinstance(result, Failure)
    assert (result.kind, result.data["logs"]) == ("budget_exhausted", "on\n")
    assert result.message.startswith("The seconds of this run are used up: the script was ended with its calls.")
    assert "1 call was finished" in result.message


async def test_a_cancelled_script_ends_whatever_it_catches(real: World) -> None:
    nap = f"{time_ns()}"  # other tests sleep too, and the host sees them all
    code = f"""
while True:
    try:
        tools.bash(command="echo x >> ticks; sleep {nap}")
    except BaseException:
        pass
"""
    with in_time():
        async with anyio.create_task_group() as group:
            group.start_soon(real.call, "script")
            group.cancel_scope.cancel()
        async with anyio.create_task_group() as group:

            async def run() -> None:
                await real.call("script", code=code)

            group.start_soon(run)
            while "ticks" not in await real.files():  # noqa: ASYNC110 - a file of a command has no event
                await anyio.sleep(0.02)
            group.cancel_scope.cancel()
    before = await real.get("ticks")
    assert (await real.sandbox.run(f"pgrep -f 'sleep [{nap[0]}]{nap[1:]}'")).exit_code == 1
    assert await real.get("ticks") == before


async def test_a_million_lines_of_output_are_logs_within_their_cap(real: World) -> None:
    value = await real.value("script", code="for n in range(1_000_000): print(n)\n'done'")
    assert value["result"] == "done"
    assert value["logs"].startswith("0\n1\n")
    assert len(value["logs"]) < 60_000
    assert value["logs"].endswith("999999\n")


async def test_a_fork_bomb_is_ended_with_its_script(tmp_path: Path) -> None:
    async with open_sandbox("jail", workspace=str(tmp_path)) as sandbox:
        budget = Budget(script_seconds=2)
        async with Session(builtin_tools("all"), sandbox=sandbox, policy=Policy(mode="open"), budget=budget) as session:
            with in_time():
                result = await session.call("script", {"code": "import os\nwhile True:\n    os.fork()"})
            assert not result.ok
            assert (await session.call("script", {"code": "1"})).value["result"] == 1


async def test_a_call_that_runs_when_its_interpreter_is_killed_is_ended_and_recorded(real: World) -> None:
    nap = f"{time_ns()}"
    code = f"""
import os, threading, time
def kill():
    while not os.path.exists("on"): time.sleep(0.02)
    os.kill(os.getpid(), 9)
threading.Thread(target=kill).start()
tools.glob(pattern="*")
tools.bash(command="touch on; sleep {nap}")
"""
    with in_time():
        failure = await trouble(real, code)
    assert "1 call was finished, and is not made again by itself: glob" in failure.message
    ended = {event.data["tool"]: event.data["kind"] for event in real.session.trace if event.type == "call_ended"}
    assert (ended["glob"], ended["bash"]) == (None, "cancelled")
    assert (await real.sandbox.run(f"pgrep -f 'sleep [{nap[0]}]{nap[1:]}'")).exit_code == 1


async def test_a_killed_interpreter_leaves_what_was_done_in_the_trace_and_the_answer(real: World) -> None:
    code = "tools.write(path='a', content='')\ntools.write(path='b', content='')\nimport os\nos.kill(os.getpid(), 9)"
    failure = await trouble(real, code)
    assert [call["tool"] for call in failure.data["calls"]] == ["write", "write"]
    assert "2 calls were finished, and are not made again" in failure.message
    ended = [event.data["tool"] for event in real.session.trace if event.type == "call_ended"]
    assert ended == ["write", "write", "script"]


async def test_files_under_media_come_back_and_pictures_are_shown(real: World) -> None:
    await real.put("media/old.png", PNG)
    code = f"""
open("media/new.png", "wb").write({PNG!r})
open("media/notes.txt", "w").write("text")
"""
    value = await real.value("script", code=code)
    assert [file["path"] for file in value["media"]] == ["media/new.png", "media/notes.txt"]
    assert value["media"][0]["image"] == Image(PNG)


async def test_a_picture_that_a_tool_answers_with_is_a_file_for_the_script(real: World) -> None:
    await real.put("shot.png", PNG)
    code = "picture = tools.read(path='shot.png')\nopen(picture['path'], 'rb').read().hex()"
    assert await result_of(real, code) == PNG.hex()


@pytest.fixture(params=REAL)
async def asking(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Session, HeldApprovals]]:
    held = HeldApprovals()
    policy = Policy(allow=["script", "glob"], ask=["write", "bash"], mode="open")
    budget = Budget(script_seconds=3)
    async with opened(request.param, tmp_path, policy=policy, approver=held, budget=budget) as session:
        yield session, held


async def test_the_clock_of_a_script_stands_while_a_person_is_asked(asking: tuple[Session, HeldApprovals]) -> None:
    session, held = asking
    results: list[Any] = []

    async def run() -> None:
        results.append(await session.call("script", {"code": "tools.write(path='a', content='x')['path']"}))

    with in_time():
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            request = await held.next()
            await anyio.sleep(3.5)  # longer than the script may take
            held.answer(request.id, Decision.approve())
    assert results[0].ok, results


async def test_an_approval_that_comes_too_late_tells_the_model_to_call_the_tool_directly(tmp_path: Path) -> None:
    policy = Policy(ask=["write"])
    async with opened("jail", tmp_path, policy=policy, approver=never_answers) as session:
        result = await session.call("script", {"code": "tools.write(path='a', content='x')"})
        assert "Call write directly, outside the script" in result.message


async def ask_whole(tmp_path: Path, code: str, **rules: Any) -> tuple[list[str], Any]:
    asked: list[str] = []

    async def approver(request: Any) -> Decision:
        asked.append(f"{request.tool}: {request.reason}")
        return Decision.approve()

    @tool(risk="critical", effects=["spends"])
    def pay(amount: int) -> int:
        """Pay."""
        return amount

    policy = Policy(mode="ask", scripts="whole", **rules)
    async with opened("jail", tmp_path, [pay], policy=policy, approver=approver) as session:
        return asked, await session.call("script", {"code": code})


async def test_one_approval_covers_the_tools_that_a_script_names(tmp_path: Path) -> None:
    two = "tools.write(path='a', content='')\ntools.write(path='b', content='')\ntools.bash(command='true')"
    asked, result = await ask_whole(tmp_path, two)
    assert result.ok
    assert len(asked) == 1
    assert asked[0] == "script: it calls bash, write; the highest risk of these is high"


async def test_a_tool_that_was_not_shown_and_a_critical_one_ask_by_themselves(tmp_path: Path) -> None:
    asked, result = await ask_whole(tmp_path, "getattr(tools, 'write')(path='a', content='')")
    assert result.ok
    assert [each.partition(":")[0] for each in asked] == ["script", "write"]
    asked, result = await ask_whole(tmp_path, "tools.pay(amount=1)")
    assert result.ok
    assert [each.partition(":")[0] for each in asked] == ["script", "pay"]


async def test_deny_stays_deny_in_a_script_that_was_approved(tmp_path: Path) -> None:
    _asked, result = await ask_whole(tmp_path, "tools.write(path='a', content='')", deny=["write"])
    assert "rejected" in result.message
    assert not (tmp_path / "a").exists()


async def test_without_whole_each_call_of_a_script_asks(tmp_path: Path) -> None:
    asked: list[str] = []

    async def approver(request: Any) -> Decision:
        asked.append(request.tool)
        return Decision.approve()

    async with (
        open_sandbox("jail", workspace=str(tmp_path)) as sandbox,
        Session(builtin_tools("all"), sandbox=sandbox, policy=Policy(mode="ask"), approver=approver) as session,
    ):
        await session.call("script", {"code": "tools.write(path='a', content='')\ntools.write(path='b', content='')"})
    assert asked == ["script", "write", "write"]


LONG_ON_HOST = ["jail", pytest.param("host", marks=pytest.mark.long)]
CHAIN = """
names = tools.glob(pattern="*.txt")
names = sorted(names["paths"])
long = [name for name in names[:200] if "MARKER1" in tools.read(path=name)["text"].read(0, 20)]
tools.write(path="summary", content="\\n".join(long))
[len(names), len(long)]
"""


@pytest.mark.parametrize("driver", LONG_ON_HOST)
async def test_contents_that_a_script_filters_reach_neither_the_model_nor_an_event(driver: str, tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"f{number:04}.txt").write_text(f"MARKER{number} " + "x" * (4200 if number < 200 else 1))
    model = ScriptedModel([Turn(calls=(Call("one", "script", {"code": CHAIN}),)), "Done."])
    budget = Budget(script_calls=500)
    async with opened(driver, tmp_path, approver=approve_all, budget=budget) as session:
        outcome = await Agent(model, session=session).run("Find them.")
        results = [result for message in model.requests[-1].messages for result in message.results]
        assert [result.value["result"] for result in results if result.ok] == [[1000, 111]], results
        everything = "".join(json.dumps(event.data) for event in session.trace)
    assert outcome.reason == "done"
    messages = "".join(f"{message}" for request in model.requests for message in request.messages)
    in_code = CHAIN.count("MARKER")
    assert messages.count("MARKER") == in_code * len(model.requests[1:]), "the ones in the code"
    assert everything.count("MARKER") == 2 * in_code, "the code, in the model's answer and in the call"
    assert len((tmp_path / "summary").read_text().splitlines()) == 111


@tool
def make_200_mb() -> str:
    """Make a large text."""
    return "0123456789" * 20_000_000


@tool
def take_first(items: list[str]) -> int:
    """Take it."""
    return len(items[0])


HELD = "import resource\nresource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 60_000"


@pytest.mark.parametrize("driver", LONG_ON_HOST)
async def test_a_value_of_200_mb_passes_between_two_tools_without_the_script_holding_it(
    driver: str, tmp_path: Path
) -> None:
    code = f"size = tools.take_first(items=[tools.make_200_mb()])\nprint(size)\n{HELD}"
    async with opened(driver, tmp_path, [make_200_mb, take_first]) as session:
        result = await session.call("script", {"code": code})
    assert result.ok, result
    assert (result.value["result"], result.value["logs"]) == (True, "200000000\n")


async def test_two_scripts_run_one_after_the_other_and_each_has_its_own_interpreter(real: World) -> None:
    assert await result_of(real, "x = 1\nimport os\nos.environ['LEFT'] = '1'") is None
    assert await result_of(real, "import os\n['x' in globals(), os.environ.get('LEFT')]") == [False, None]


async def test_no_interpreter_is_left_when_the_sandbox_closes(tmp_path: Path) -> None:
    async with opened("host", tmp_path) as session:
        code = "import os\n[os.getpid(), os.getppid()]"
        await session.call("script", {"code": code})
        pids = (await session.call("script", {"code": code})).value["result"]
    assert eventually(lambda: not Path(f"/proc/{pids[0]}").exists())
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(path)], (
        "nothing of this sandbox is left"
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


async def test_the_description_shows_the_sessions_tools_as_python_and_is_always_the_same() -> None:
    @tool
    def find(name: str, limit: int = 5) -> list[str]:
        """Find people by name."""
        return []

    texts = {json.dumps(Toolbox([script, find]).schemas("anthropic")) for _ in range(3)}
    assert len(texts) == 1
    assert "def find(*, name: str, limit: int = 5) -> list[str]: ...  # Find people by name." in texts.pop()


async def test_a_sandbox_without_python_says_so(tmp_path: Path) -> None:
    async with opened("host", tmp_path, env={"PATH": "/var/empty"}) as session:
        result = await session.call("script", {"code": "1"})
    assert result.kind == "unavailable"
    assert "python3" in result.message


async def test_a_script_that_is_refused_leaves_the_waiting_interpreter_to_the_next(tmp_path: Path) -> None:
    async with opened("host", tmp_path) as session:
        assert (await session.call("script", {"code": "1"})).ok

        def waiting() -> list[int]:
            return [each.pid for each in descendants(os.getpid()) if b"-I\0-u\0-c" in command(each.pid)]

        assert await anyio.to_thread.run_sync(lambda: eventually(lambda: bool(waiting())))
        assert (await session.call("bash", {"command": "true"})).ok  # by then it is known here that it has started
        (spare,) = waiting()
        for code in ("tools.nowhere()", "1 +", "nothing_of_this = tools.nowhere()"):
            assert not (await session.call("script", {"code": code})).ok
            assert waiting() == [spare], code
        result = await session.call("script", {"code": "import os\n[os.getpid(), 'nothing_of_this' in globals()]"})
        assert result.ok
        assert result.value["result"] == [spare, False]
