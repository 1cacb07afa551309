"""A body may return what the sandbox gave it: it becomes the data that the built-in tools answer with."""

import json
import re
from typing import Any

import pytest

from handrail import Context, Failure, Session, tool
from handrail.contract.driver import FileStat
from handrail.sandbox import Completed
from tests.tools.world import World

pytestmark = pytest.mark.anyio
SEEN = ("exit_code", "stdout", "stderr", "cwd", "ended_by", "notes")


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
async def run_and_fail(context: Context, command: str) -> Any:
    return Failure("execution_error", "no", data={"of": await context.sandbox.run(command, timeout=60)})


@tool(needs=["files"])
async def look(context: Context, path: str) -> FileStat:
    return await context.sandbox.stat(path)


@tool(needs=["files"])
async def look_around(context: Context) -> list[FileStat]:
    return await context.sandbox.list(".")


def session(here: World) -> Session:
    tools = [run, run_all, run_apart, run_and_fail, look, look_around]
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


async def test_the_notes_of_what_is_returned_are_warnings_too(real: World) -> None:
    async with session(real) as mine:
        one = await mine.call("run", {"command": "yes | head -1"})
        several = await mine.call("run_all", {"commands": ["true", "yes | head -1"]})
        quiet = await mine.call("run", {"command": "true"})
    assert "harmless" in one.warnings[0]
    assert "harmless" in several.warnings[0]
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
    assert list(piped.warnings) == piped.value["notes"]
    assert "printed nothing at all" in (await real.call("bash", command="ls /nowhere 2>/dev/null | cat")).warnings[0]
    assert "printed nothing at all" in (await real.call("bash", command="ls /nowhere 2>/dev/null")).warnings[0]
    assert (await real.call("bash", command="true")).warnings == ()
    code = await real.call("run_code", code="exit 127", language="bash")
    assert "127" in code.warnings[0]
