"""Every property that a built-in tool advertises does something: calls that differ only in it come to different ends.

A gate that takes the property away must make the difference vanish; so the property itself makes it, and nothing else.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail.contract.result import Result
from handrail.gates.preflight import preflight
from handrail.session.standard import STANDARD
from handrail.toolkit.gate import Gate, Next, Step
from handrail.tools.builtin import builtin_tools
from tests.tools.world import EVERY, World, tools_for, world

pytestmark = pytest.mark.anyio
Arguments = Mapping[str, Any]
VOLATILE = {"duration_ms", "pid", "mtime", "$artifact", "ref"}
SLOW = "sleep 1.2; echo done"


@dataclass(frozen=True)
class Case:
    """Two calls that differ in one property, after the same beginning, which may give them more arguments."""

    one: Arguments
    other: Arguments
    before: Callable[[World], Awaitable[Arguments | None]] | None = None


async def two_files(world: World) -> None:
    await world.put("a.txt", "apple\nbanana\ncherry\n")
    await world.put("b.txt", "Apple\nberry\napple apple\n")
    await world.put("sub/c.py", "apple = 1\n")
    await world.put("sub/.gitignore", "*.log\n")
    await world.put("sub/d.log", "apple\n")


async def changed_after_reading(world: World) -> None:
    await world.put("a.txt", "old\n")
    assert (await world.call("read", path="a.txt")).ok
    await world.put("a.txt", "somebody else was here\n")


async def two_jobs(world: World) -> None:
    for command in ("echo one; echo two", "exit 3"):
        job = (await world.value("bash", command=command, background=True))["job"]
        await world.call("process", action="wait", job=job)


async def slow_job(world: World) -> Arguments:
    return {"job": (await world.value("bash", command=SLOW, background=True))["job"]}


async def artifact(world: World) -> Arguments:
    return {"ref": (await world.session.artifacts.put(b"0123456789" * 10, media_type="text/plain")).ref}


def of(common: Arguments, name: str, one: Any, other: Any, before: Any = two_files) -> Case:
    return Case({**common, name: one}, {**common, name: other}, before)


def edits(one: Arguments, other: Arguments) -> Case:
    return of({"path": "b.txt"}, "edits", [one], [other])


def items(one: Arguments, other: Arguments) -> Case:
    return of({}, "items", [one], [other], None)


async def two_artifacts(world: World) -> Arguments:
    kept = [await world.session.artifacts.put(text, media_type="text/plain") for text in (b"first", b"second")]
    return {"one": {"ref": kept[0].ref}, "other": {"ref": kept[1].ref}}


CASES: dict[str, Case] = {
    "read.path": of({}, "path", "a.txt", "b.txt"),
    "read.offset": of({"path": "a.txt"}, "offset", 2, 3),
    "read.limit": of({"path": "a.txt"}, "limit", 1, 2),
    "write.path": of({"content": "x"}, "path", "new", "newer"),
    "write.content": of({"path": "new"}, "content", "x", "y"),
    "write.overwrite": of({"path": "a.txt", "content": "mine\n"}, "overwrite", True, False, changed_after_reading),
    "edit.path": of({"edits": [{"old": "pple\n", "new": "s\n", "replace_all": True}]}, "path", "a.txt", "b.txt"),
    "edit.edits": edits({"old": "berry", "new": "x"}, {"old": "Apple", "new": "x"}),
    "edit.edits[].old": edits({"old": "berry", "new": "x"}, {"old": "Apple", "new": "x"}),
    "edit.edits[].new": edits({"old": "berry", "new": "x"}, {"old": "berry", "new": "y"}),
    "edit.edits[].replace_all": edits(
        {"old": "apple", "new": "x", "replace_all": True}, {"old": "apple", "new": "x", "replace_all": False}
    ),
    "glob.pattern": of({}, "pattern", "*.txt", "*.py"),
    "glob.path": of({"pattern": "*.*"}, "path", ".", "sub"),
    "glob.no_ignore": of({"pattern": "*.log"}, "no_ignore", True, False),
    "grep.pattern": of({}, "pattern", "banana", "cherry"),
    "grep.path": of({"pattern": "apple"}, "path", "a.txt", "sub"),
    "grep.glob": of({"pattern": "apple"}, "glob", "*.txt", "*.py"),
    "grep.context": of({"pattern": "apple", "path": "a.txt"}, "context", 1, 2),
    "grep.ignore_case": of({"pattern": "APPLE"}, "ignore_case", True, False),
    "grep.no_ignore": of({"pattern": "apple"}, "no_ignore", True, False),
    "bash.command": of({}, "command", "echo one > made", "echo two > made"),
    "bash.timeout": of({"command": SLOW}, "timeout", 1, 30),
    "bash.idle_timeout": of({"command": SLOW}, "idle_timeout", 1, 30),
    "bash.background": of({"command": "echo now"}, "background", True, False),
    "bash.cwd": of({"command": "pwd > here"}, "cwd", ".", "sub"),
    "process.action": of({"job": "job-1"}, "action", "poll", "tail", two_jobs),
    "process.job": of({"action": "poll"}, "job", "job-1", "job-2", two_jobs),
    "process.timeout": of({"action": "wait"}, "timeout", 1, 30, slow_job),
    "process.lines": of({"action": "tail", "job": "job-1"}, "lines", 1, 2, two_jobs),
    "run_code.code": of({}, "code", "print(1)", "print(2)"),
    "run_code.language": of({"code": "print('x')"}, "language", "bash", "python"),
    "run_code.timeout": of({"code": "import time; time.sleep(1.2)"}, "timeout", 1, 30),
    "read_artifact.ref": Case({}, {}, two_artifacts),
    "read_artifact.start": of({}, "start", 0, 7, artifact),
    "read_artifact.length": of({}, "length", 20, 40, artifact),
    "share_artifact.path": of({}, "path", "a.txt", "b.txt"),
    "share_artifact.filename": of({"path": "a.txt"}, "filename", "one.txt", "two.txt"),
    "share_artifact.content": of({"path": "a.txt"}, "content", "x", "yy"),
    "todo.items": items({"content": "x", "status": "pending"}, {"content": "y", "status": "pending"}),
    "todo.items[].content": items({"content": "x", "status": "pending"}, {"content": "y", "status": "pending"}),
    "todo.items[].status": items({"content": "x", "status": "pending"}, {"content": "x", "status": "completed"}),
    "ask_user.question": of({}, "question", "Which?", "Who?"),
    "ask_user.choices": of({"question": "Which?"}, "choices", ["a"], ["b"]),
    "complete.summary": of({}, "summary", "The bug is fixed.", "The bug is still there."),
}


def properties(schema: Mapping[str, Any], root: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """The path of every property, nested ones too."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from properties(branch, root, prefix)
    for name, inner in schema.get("properties", {}).items():
        yield f"{prefix}.{name}"
        yield from properties(inner, root, f"{prefix}.{name}")
    if isinstance(schema.get("items"), Mapping):
        yield from properties(schema["items"], root, f"{prefix}[]")


def test_every_property_of_every_built_in_tool_has_a_case() -> None:
    advertised = {
        name for tool in builtin_tools("all") for name in properties(tool.parameters, tool.parameters, tool.name)
    }
    assert advertised == set(CASES)


def test_the_walk_sees_nested_and_referenced_properties() -> None:
    item = {"type": "object", "properties": {"b": {"type": "string"}}}
    schema = {
        "$defs": {"Item": item},
        "properties": {"a": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Item"}}, {"type": "null"}]}},
    }
    assert list(properties(schema, schema, "t")) == ["t.a", "t.a[].b"]


def without(arguments: Any, path: str) -> Any:
    """The arguments with one property taken away, in every item where it is nested."""
    first, dot, rest = path.partition(".")
    name = first.removesuffix("[]")
    if not dot:
        return {key: value for key, value in arguments.items() if key != name}
    return {**arguments, name: [without(item, rest) for item in arguments[name]]}


def stripping(property: str) -> list[Gate]:
    """The standard gates, and one before preflight that takes the property away."""
    _, _, path = property.partition(".")

    async def strip(step: Step, proceed: Next) -> Result:
        if step.call.id == "tried":
            assert isinstance(step.call.arguments, Mapping)
            step.call = replace(step.call, arguments=without(step.call.arguments, path))
        return await proceed(step)

    at = STANDARD.index(preflight)
    return [*STANDARD[:at], strip, *STANDARD[at:]]


def steady(value: Any) -> Any:
    """Without what differs between any two runs."""
    if isinstance(value, dict):
        return {key: steady(inner) for key, inner in value.items() if key not in VOLATILE}
    return [steady(inner) for inner in value] if isinstance(value, list) else value


async def observed(driver: str, root: Path, property: str, which: str, *, stripped: bool) -> str:
    """What the call came to: its result, the files, and what the person was told."""
    tool, case = property.partition(".")[0], CASES[property]
    async with world(driver, root, gates=stripping(property) if stripped else None) as here:
        more = (await case.before(here) if case.before else None) or {}
        arguments = {**(case.one if which == "one" else case.other), **more.get(which, {} if "one" in more else more)}
        here.session.begin_run()
        result = await here.session.call(tool, arguments, id="tried")
        seen = [steady(result.to_envelope(tool)), here.person.summaries]
        files = {name: data.decode() for name, data in (await here.files()).items()}
        return json.dumps([seen, files], sort_keys=True).replace(str(root), "ROOT")


WHERE = [
    (driver, name) for driver in EVERY for name in CASES if name.split(".")[0] in {t.name for t in tools_for(driver)}
]


@pytest.mark.parametrize(("driver", "property"), WHERE)
async def test_a_property_makes_a_difference_and_nothing_else_does(driver: str, property: str, tmp_path: Path) -> None:
    seen: dict[tuple[str, bool], str] = {}

    async def observe(which: str, stripped: bool) -> None:
        seen[which, stripped] = await observed(
            driver, tmp_path / f"{which}{stripped}", property, which, stripped=stripped
        )

    with anyio.fail_after(60):
        async with anyio.create_task_group() as together:
            for which in ("one", "other"):
                together.start_soon(observe, which, False)
                together.start_soon(observe, which, True)
    assert seen["one", False] != seen["other", False], "the property does nothing"
    assert seen["one", True] == seen["other", True], "something else makes the difference"
