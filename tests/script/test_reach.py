"""What a script can reach: the sandbox and its tools, and nothing of the program around it."""

import ast
import os
import socket
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from handrail import Budget, Context, Policy, Toolbox, tool
from handrail.testing import never_answers
from handrail.tools.script import script
from tests.drivers.watching import eventually
from tests.script.test_attacks import interpreters
from tests.tools.test_script import opened, result_of, trouble
from tests.tools.world import REAL, World, in_time

pytestmark = pytest.mark.anyio

OUTSIDE = """
import os, socket
def can(work):
    try:
        work()
        return True
    except OSError:
        return False
{
    "network": can(lambda: socket.create_connection(("127.0.0.1", PORT), 5)),
    "file": can(lambda: open("FILE")),
    "process": can(lambda: os.kill(PID, 0)),
    "key": "KEY_OF_THE_TEST" in os.environ,
}
"""


@pytest.mark.parametrize("driver", REAL)
async def test_a_script_has_no_network_no_key_and_no_file_of_the_machine(
    driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_THE_TEST", "secret")
    (tmp_path / "work").mkdir()
    (tmp_path / "outside").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = OUTSIDE.replace("PORT", str(server.getsockname()[1])).replace("FILE", str(tmp_path / "outside"))
        async with opened(driver, tmp_path / "work") as session:
            result = await session.call("script", {"code": code.replace("PID", str(os.getpid()))})
    assert result.ok, result
    reached = result.value["result"]
    assert reached.pop("key") is False
    assert set(reached.values()) == {driver == "host"}, "on the host, which isolates nothing, as the control"


async def test_what_a_script_started_ends_with_it(real: World) -> None:
    nap = f"{time_ns()}"
    code = f"""
import os, subprocess
subprocess.Popen(["sleep", "{nap}"])
subprocess.Popen(["setsid", "sleep", "{nap}"])
pid = os.fork()
if pid == 0:
    os.setsid()
    os.execvp("sleep", ["sleep", "{nap}"])
subprocess.run(["pgrep", "-fc", "sleep [{nap[0]}]{nap[1:]}"], capture_output=True, text=True).stdout
"""
    assert int(await result_of(real, code)) >= 2, "the control: they run beside it"
    left = await real.sandbox.run(f"pgrep -f 'sleep [{nap[0]}]{nap[1:]}'")
    assert left.exit_code == 1, left


SMALL_BOMB = """
import os
for _ in range(6):
    os.fork()
open(f"ran-{os.getpid()}", "w").close()
while True: os.getppid()
"""


async def test_what_forks_on_the_host_is_ended_with_its_script(tmp_path: Path) -> None:
    """64 processes: the host driver sets no limit to them, and the machine is everybody's."""
    async with opened("host", tmp_path, budget=Budget(script_seconds=3)) as session:
        with in_time():
            result = await session.call("script", {"code": SMALL_BOMB})
        assert result.kind == "timeout"
        assert len(list(tmp_path.glob("ran-*"))) > 1, "the control: they ran"
        assert eventually(lambda: len(interpreters(tmp_path)) <= 1), "the one that waits for the next script"
        assert (await session.call("script", {"code": "1"})).value["result"] == 1


LINES: list[tuple[str, int]] = [
    ("x = 1\n\n1 / 0", 3),
    ("\r\n\r\n1 / 0\r\n", 3),
    ("\ufeff# é\n1 / 0", 2),
    ("    x = 1\n    if x:\n        y = '''a\nb'''\n    1 / 0", 5),
    ("if True:\n\tx = 1\n\t1 / 0", 3),
    ("x = '''a\n\n\n'''\n1 / 0\nreturn 5", 5),
    ("def f():\n    return 1 / 0\nx = 2\nf()", 2),
    ("def f():\n    return 1 / 0\nreturn f()", 2),
    ("x = [\n  1,\n  1 / 0,\n]", 3),
    ("tools.todo(\n  items=[\n    1 / 0,\n  ])", 3),
    ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    [][1]", 4),
    ("f = lambda: 1 / 0\n\nfor n in range(2):\n    f()", 1),
    ("# a\n\n\ntools.read(path='no')", 4),
    ("x = 1\ntools.gather(\n  call('read', path='no'))", 2),
]
NOT_PYTHON: list[tuple[str, int]] = [
    ("x = 1\n\nx = = 2", 3),
    ("    x = 1\n    y = = 2", 2),
    ("    x = 1\n    if x:\n    y = 2", 3),
    ("x = 1\n    y = 2", 2),
    ("\ufeff\r\n\r\nx = )", 3),
    ("x = '''\n\n'''\nreturn = 5", 4),
    ("def f():\n    x = 1\n  y = 2", 3),
    ("x = 1\nwhile True:\n    pass\ncontinue", 4),
    ("    x = 1\n    tools.no_such()", 2),
]


async def test_the_lines_of_errors_are_those_of_the_models_own_code(real: World) -> None:
    for code, line in LINES:
        failure = await trouble(real, code)
        assert failure.kind == "execution_error", (code, failure)
        assert f"failed in line {line}:" in failure.message, (code, failure)
    for code, line in NOT_PYTHON:
        failure = await trouble(real, code)
        assert failure.kind == "invalid_args", (code, failure)
        assert f"line {line}:" in failure.message, (code, failure)
    failure = await trouble(real, "    x = 1\n    if x:\n    y = 2")
    assert "after 'if' statement on line 2" in failure.message


async def test_the_fifty_first_call_is_refused_inside_gather_too(real: World) -> None:
    code = """
made = tools.gather(*[call("todo", items=[]) for _ in range(60)], return_exceptions=True)
refused = [str(each).partition(":")[0] for each in made if not isinstance(each, dict)]
[len(made), len(refused), sorted(set(refused))]
"""
    assert await result_of(real, code) == [60, 10, ["budget_exhausted"]]


async def test_threads_together_make_no_more_calls_than_a_script_may(real: World) -> None:
    code = """
import threading
made = []
def work():
    made.extend(tools.gather(*[call("todo", items=[]) for _ in range(20)], return_exceptions=True))
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
[len(made), sum(isinstance(each, ToolError) and each.kind == "budget_exhausted" for each in made)]
"""
    with in_time():
        assert await result_of(real, code) == [80, 30]


async def test_an_approval_that_comes_too_late_inside_gather_leaves_the_others_answered(tmp_path: Path) -> None:
    policy = Policy(allow=["script"], ask=["write"], mode="open")
    code = """
made = tools.gather(
    call("write", path="a", content=""), call("glob", pattern="*"), call("write", path="b", content=""),
    return_exceptions=True,
)
[each["count"] if isinstance(each, dict) else str(each) for each in made]
"""
    async with opened("jail", tmp_path, policy=policy, approver=never_answers) as session:
        result = await session.call("script", {"code": code})
    assert result.ok, result
    first, second, third = result.value["result"]
    assert (first, second) == (third, 0)
    assert first.startswith("approval_timeout: ")
    assert "Call write directly, outside the script" in first


ANSWERED: dict[str, list[dict[str, Any]]] = {
    "bash": [{"command": "echo out"}],
    "edit": [{"path": "edited", "old": "old", "new": "new"}],
    "glob": [{"pattern": "*"}],
    "grep": [{"pattern": "old"}],
    "read": [{"path": "edited"}, {"path": "."}],
    "read_artifact": [{"ref": "REF"}],
    "run_code": [{"code": "1 + 1"}, {"code": "print(1)"}],
    "write": [{"path": "written", "content": "x"}],
}


def fits(value: Any, type_: ast.expr) -> bool:
    """Whether a value is of a type as the stubs write it; it may have more keys."""
    if isinstance(type_, ast.BinOp):
        return fits(value, type_.left) or fits(value, type_.right)
    if isinstance(type_, ast.Dict):
        named = [(ast.literal_eval(key), held) for key, held in zip(type_.keys, type_.values, strict=True) if key]
        return isinstance(value, dict) and all(key in value and fits(value[key], held) for key, held in named)
    if isinstance(type_, ast.Subscript):
        return isinstance(value, list) and all(fits(each, type_.slice) for each in value)
    if isinstance(type_, ast.Constant):
        return value is None
    assert isinstance(type_, ast.Name)
    return type(value).__name__ == type_.id


async def test_the_stubs_tell_what_the_built_in_tools_answer_with(tmp_path: Path) -> None:
    (tmp_path / "edited").write_text("old")
    async with opened("jail", tmp_path) as session:
        described = next(each for each in session.schemas("mcp") if each["name"] == "script")["description"]
        stubs = {stub.name: stub.returns for stub in ast.parse(described.partition("The tools:")[2]).body}  # type: ignore[attr-defined]
        ref = (await session.artifacts.put("text")).ref
        session.artifacts.show(ref)
        for name, examples in ANSWERED.items():
            assert stubs[name] is not None, name
            for arguments in examples:
                given = {key: ref if value == "REF" else value for key, value in arguments.items()}
                result = await session.call(name, given)
                assert result.ok, result
                assert fits(result.value, stubs[name]), (name, result.value)
        assert not fits({"exit_code": "0"}, stubs["bash"]), "the control"
    assert stubs["todo"] is None

    @tool
    def glob(pattern: str) -> Any:
        """One of somebody else's."""

    other = Toolbox([script, glob]).schema_for("script")["description"]
    assert "def glob(*, pattern: str): ...  # One of somebody else's." in other


@tool(deferred=True)
async def far_weather(place: str, context: Context) -> str:
    """Tell how warm it is in a place far away."""
    return f"18 degrees in {place}"


async def test_deferred_tools_are_counted_in_the_description_and_called_like_the_others(tmp_path: Path) -> None:
    code = """
found = tools.search_tools(query="weather")
[str(found).count("far_weather") > 0, tools.far_weather(place="Oslo")]
"""
    async with opened("jail", tmp_path, [far_weather]) as session:
        described = next(each for each in session.schemas("mcp") if each["name"] == "script")["description"]
        result = await session.call("script", {"code": code})
        wrong = await session.call("script", {"code": "tools.far_weather(plac='Oslo')"})
    assert described.endswith("# and 1 more; tools.search_tools finds them")
    assert "far_weather" not in described
    assert result.ok, result
    assert result.value["result"] == [True, "18 degrees in Oslo"]
    assert "did you mean 'place'?" in wrong.message
    without = Toolbox([script, far_weather]).schema_for("script")["description"]
    assert without.endswith("# none\n# and 1 more")


async def test_a_return_may_stand_in_any_block(real: World) -> None:
    for code, expected in (
        ("try:\n    try:\n        return 1\n    finally:\n        print('in')\nfinally:\n    print('out')", 1),
        ("while True:\n    match 1:\n        case 1:\n            return 'in match'", "in match"),
        ("for n in range(3):\n    if n: return n\nelse:\n    return 9", 1),
        ("if False:\n    return 3\n'last'", "last"),
        ("return 1\nreturn 2", 1),
        ("return", None),
        ("def f():\n    return 7\nif f() == 7: return [f()]", [7]),
    ):
        assert await result_of(real, code) == expected, code
    failure = await trouble(real, "class A:\n    return 1")
    assert (failure.kind, "line 2" in failure.message) == ("invalid_args", True)
    code = "import os\nwith open('a', 'w') as file:\n    return file.write('x')"
    assert await result_of(real, code) == 1


async def test_names_of_any_alphabet_are_names(real: World) -> None:
    code = "naïve, число, 数 = 1, 2, 3\nﬁ = 4\n[naïve, число, 数, fi, tools.ｔodo(ｉtems=[])['left']]"
    assert await result_of(real, code) == [1, 2, 3, 4, 0]
