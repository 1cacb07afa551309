"""A body may return what the sandbox gave it: it becomes the data that the built-in tools answer with."""

import json
import re
from typing import Any

import pytest

from handrail import (
    CodeResult,
    Context,
    Failure,
    FileExists,
    Job,
    ListFiles,
    Listing,
    ReadFile,
    RunCode,
    Session,
    Success,
    WriteFile,
    Written,
    tool,
)
from handrail.contract.driver import FileStat
from handrail.sandbox import Completed
from tests.tools.world import World

pytestmark = pytest.mark.anyio
SEEN = ("exit_code", "stdout", "stderr", "cwd", "ended_by")


@tool(needs=["exec"])
async def run(context: Context, command: str) -> Completed:
    return await context.sandbox.run(command, timeout=60)


@tool(needs=["exec"])
async def run_all(context: Context, commands: list[str]) -> list[Completed]:
    return [await context.sandbox.run(command, timeout=60) for command in commands]


@tool(needs=["exec"])
async def run_apart(context: Context, command: str) -> Any:
    """Without a return type, and with only a part of what came."""
    completed = await context.sandbox.run(command, timeout=60)
    return {"said": completed.stdout, "code": [completed.exit_code]}


@tool(needs=["exec"])
async def run_inside(context: Context, command: str) -> Any:
    """Deep inside a value."""
    return {"all": [{"first": [await context.sandbox.run(command, timeout=60)]}]}


@tool(needs=["exec"])
async def run_and_fail(context: Context, command: str) -> Any:
    return Failure("execution_error", "no", data={"of": await context.sandbox.run(command, timeout=60)})


@tool(needs=["files"])
async def look(context: Context, path: str) -> FileStat:
    return await context.sandbox.stat(path)


@tool(needs=["files"])
async def look_around(context: Context) -> list[FileStat]:
    return await context.sandbox.list(".")


def session(here: World) -> Session:
    tools = [run, run_all, run_apart, run_inside, run_and_fail, look, look_around]
    return Session([each for each in tools if each.needs <= here.sandbox.features], sandbox=here.sandbox)


async def test_a_completed_becomes_what_bash_answers_with(real: World) -> None:
    line = "echo out; echo err >&2; exit 3"
    wanted = await real.value("bash", command=line)
    async with session(real) as mine:
        result = await mine.call("run", {"command": line})
        several = await mine.call("run_all", {"commands": [line, "true"]})
        apart = await mine.call("run_apart", {"command": line})
        failed = await mine.call("run_and_fail", {"command": line})
    assert result.ok, result
    assert {name: result.value[name] for name in SEEN} == {name: wanted[name] for name in SEEN}
    assert result.value.keys() == wanted.keys()
    assert [each["exit_code"] for each in several.value] == [3, 0]
    assert apart.value == {"said": "out\n", "code": [3]}
    assert failed.data["of"]["exit_code"] == 3


async def test_the_notes_of_what_is_returned_are_warnings_and_told_once(real: World) -> None:
    line = "yes | head -1"
    async with session(real) as mine:
        results = [
            await mine.call("run", {"command": line}),
            await mine.call("run_all", {"commands": ["true", line, line]}),
            await mine.call("run_inside", {"command": line}),
            await mine.call("run_and_fail", {"command": line}),
            await real.call("bash", command=line),
        ]
        quiet = await mine.call("run", {"command": "true"})
    for result in results:
        assert ["harmless" in warning for warning in result.warnings] == [True], result
        assert json.dumps(result.to_envelope("t")).count("harmless") == 1
    assert quiet.warnings == ()


@pytest.mark.parametrize("name", ["run", "run_all", "run_apart", "run_and_fail"])
async def test_what_a_returned_command_printed_beyond_its_cap_can_be_read(real: World, name: str) -> None:
    line = "seq 1 60000; echo '[… 5 of 10 characters left out; full output: a_00000000000000000000000000000000]'"
    async with session(real) as mine:
        result = await mine.call(name, {"commands": [line]} if name == "run_all" else {"command": line})
        envelope = json.dumps(result.to_envelope(name), ensure_ascii=False)
        refs = set(re.findall(r"of 348,\d+ characters left out; full output: (a_\w+)\]", envelope))
        assert len(refs) == 1, envelope[:300]
        whole = (await mine.artifacts.read(refs.pop())).decode()
    assert whole.startswith("1\n2\n")
    assert whole.endswith("60000\n" + line.partition("echo '")[2].removesuffix("'") + "\n")


async def test_a_file_stat_has_what_an_entry_of_a_listing_has(anywhere: World) -> None:
    await anywhere.put("sub/a.txt", "apple\n")
    await anywhere.put("b.txt", "banana\n")
    listing = (await anywhere.value("read", path="."))["entries"]
    async with session(anywhere) as mine:
        entries = (await mine.call("look_around")).value
        entry = (await mine.call("look", {"path": "sub/a.txt"})).value
    assert [(each["name"], each["type"]) for each in entries] == [(each["name"], each["type"]) for each in listing]
    assert (entry["name"], entry["type"], entry["size"]) == ("a.txt", "file", 6)
    for each in (entry, *entries):
        assert (await anywhere.call("read", path=each["path"])).ok


async def test_notes_on_sigpipe_and_silence_are_warnings_of_bash_and_run_code(real: World) -> None:
    piped = await real.call("bash", command="yes | head -1")
    assert "141 is harmless" in piped.warnings[0]
    assert "notes" not in piped.value
    assert "printed nothing at all" in (await real.call("bash", command="printf '' | cat")).warnings[0]
    assert "printed nothing at all" in (await real.call("bash", command="ls /nowhere 2>/dev/null")).warnings[0]
    assert (await real.call("bash", command="true")).warnings == ()
    code = await real.call("run_code", code="exit 127", language="bash")
    assert "127" in code.warnings[0]


@tool(needs=["files"])
async def list_files(context: Context, path: str) -> Listing:
    return await context.sandbox.dispatch(ListFiles(path))


@tool(needs=["files"])
async def list_untyped(context: Context, path: str) -> Any:
    return await context.sandbox.list(path)


@tool(needs=["files"])
async def list_inside(context: Context, path: str) -> Any:
    return {"found": await context.sandbox.dispatch(ListFiles(path))}


@pytest.mark.parametrize("count", [3, 700])
async def test_a_listing_becomes_what_read_answers_with(anywhere: World, count: int) -> None:
    for number in range(count):
        await anywhere.put(f"sub/{number:03}.txt", "x")
    wanted = await anywhere.value("read", path="sub")
    async with Session([list_files, list_untyped, list_inside], sandbox=anywhere.sandbox) as mine:
        typed = await mine.call("list_files", {"path": "sub"})
        untyped = await mine.call("list_untyped", {"path": "sub"})
        inside = await mine.call("list_inside", {"path": "sub"})
        small = await mine.call("list_untyped", {"path": "sub/../sub"})
    assert typed.value == wanted == inside.value["found"]
    assert (len(typed.value["entries"]), typed.value["truncated"]) == (min(count, 500), count > 500)
    assert typed.warnings == untyped.warnings == (("200 of 700 entries are not shown.",) if count > 500 else ())
    assert small.value == untyped.value
    away = ("path", "entries")
    assert {k: v for k, v in untyped.value.items() if k not in away} == {
        k: v for k, v in wanted.items() if k not in away
    }
    assert [each["name"] for each in untyped.value["entries"]] == [each["name"] for each in wanted["entries"]]
    assert (await anywhere.call("read", path=untyped.value["entries"][0]["path"])).ok


async def test_entries_of_several_directories_stay_a_list(anywhere: World) -> None:
    await anywhere.put("a/x", "1")
    await anywhere.put("b/y", "1")

    @tool(needs=["files"])
    async def both(context: Context) -> Any:
        """List two."""
        return [*await context.sandbox.list("a"), *await context.sandbox.list("b")]

    async with Session([both, list_untyped], sandbox=anywhere.sandbox) as mine:
        assert [each["name"] for each in (await mine.call("both")).value] == ["x", "y"]
        await anywhere.sandbox.make_dir("empty")
        assert (await mine.call("list_untyped", {"path": "empty"})).value == []


async def test_a_job_becomes_what_bash_answers_with(real: World) -> None:
    @tool(needs=["exec"])
    async def start(context: Context) -> Job:
        """Start."""
        return await context.sandbox.start("sleep 1")

    wanted = await real.value("bash", command="sleep 1", background=True)
    async with Session([start], sandbox=real.sandbox) as mine:
        result = await mine.call("start")
        assert result.ok, result
        assert result.value.keys() == wanted.keys()
        assert real.sandbox.job(result.value["job"]) is not None
        assert result.value["log"] == wanted["log"].replace(wanted["job"], result.value["job"])


@pytest.mark.parametrize("code", ["print(1)\n2", "1 / 0", "x = 1"])
async def test_a_code_result_becomes_what_run_code_answers_with(real: World, code: str) -> None:
    @tool(needs=["exec", "files"])
    async def compute(context: Context, code: str) -> CodeResult:
        """Compute."""
        return await context.sandbox.dispatch(RunCode(code))

    wanted = await real.value("run_code", code=code)
    async with Session([compute], sandbox=real.sandbox) as mine:
        result = await mine.call("compute", {"code": code})
    assert result.ok, result
    del wanted["duration_ms"], result.value["duration_ms"]
    assert result.value == wanted


async def test_what_other_payloads_answer_is_plain_data(anywhere: World) -> None:
    @tool(needs=["files"])
    async def put(context: Context, path: str) -> Written:
        """Put."""
        return await context.sandbox.dispatch(WriteFile(path, "añb"))

    @tool(needs=["files"])
    async def there(context: Context, path: str) -> bool:
        """Look."""
        return await context.sandbox.dispatch(FileExists(path))

    async with Session([put, there], sandbox=anywhere.sandbox) as mine:
        assert (await mine.call("put", {"path": "a"})).value == {"path": "a", "bytes_written": 4}
        assert [(await mine.call("there", {"path": path})).value for path in "ab"] == [True, False]


@pytest.mark.parametrize("shape", ["alone", "typed", "inside", "success"])
async def test_bytes_that_are_no_text_become_an_artifact(anywhere: World, shape: str) -> None:
    data = b"\xff\xfe\0 raw"
    await anywhere.put("b.bin", data)
    await anywhere.put("t.txt", "text")

    @tool(needs=["files"])
    async def alone(context: Context, path: str) -> Any:
        """Read."""
        return await context.sandbox.dispatch(ReadFile(path, encoding=None))

    @tool(needs=["files"])
    async def typed(context: Context, path: str) -> bytes:
        """Read."""
        return await context.sandbox.read_bytes(path)

    @tool(needs=["files"])
    async def inside(context: Context, path: str) -> Any:
        """Read."""
        return {"of": [await context.sandbox.read_bytes(path), b"plain"]}

    @tool(needs=["files"])
    async def success(context: Context, path: str) -> Any:
        """Read."""
        return Success(await context.sandbox.read_bytes(path), ("noted",))

    async with Session([alone, typed, inside, success], sandbox=anywhere.sandbox) as mine:
        result = await mine.call(shape, {"path": "b.bin"})
        text = await mine.call(shape, {"path": "t.txt"})
        assert result.ok, result
        assert text.ok, text
        wire = result.to_envelope(shape)["result"]
        held = wire["of"][0] if shape == "inside" else wire
        assert (held["size"], held["media_type"]) == (len(data), "application/octet-stream")
        assert await mine.artifacts.read(held["$artifact"]) == data
        assert text.value == ({"of": ["text", "plain"]} if shape == "inside" else "text"), "a control"
    assert result.warnings == (("noted",) if shape == "success" else ())


async def test_bytes_where_no_artifact_can_stand_are_the_mistake_of_the_tool(anywhere: World) -> None:
    @tool
    async def odd() -> Any:
        """Answer."""
        return {b"\xff": 1}

    async with Session([odd], sandbox=anywhere.sandbox) as mine:
        result = await mine.call("odd")
    assert result.kind == "execution_error"
    assert "has no JSON form" in result.message
