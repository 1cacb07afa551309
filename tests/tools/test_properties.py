"""Every property that a built-in tool advertises does something: calls that differ only in it come to different ends.

A gate that takes the property away must make the difference vanish; so the property itself makes it, and nothing else.
What a result merely repeats of its arguments is no difference: tools that do no more are planted, and found.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail.contract.result import Result, Success
from handrail.gates.preflight import preflight
from handrail.session.session import core_of
from handrail.session.standard import STANDARD
from handrail.toolkit.context import Context
from handrail.toolkit.gate import Gate, Next, Step
from handrail.toolkit.tool import Tool
from handrail.tools.builtin import builtin_tools
from tests.tools.world import EVERY, World, tools_for, world

pytestmark = pytest.mark.anyio
Arguments = Mapping[str, Any]
VOLATILE = {"duration_ms", "pid", "mtime", "$artifact", "ref"}
COUNTED = {"start_line", "end_line", "start", "end", "next_start", "left", "log"}
"""What a tool may work out from its arguments alone."""
PROSE = {"message", "warnings"}
SLOW = "sleep 1.2; echo done"


@dataclass(frozen=True)
class Case:
    """Two calls that differ in one property, after the same beginning, which may give them more arguments.

    A property may have several cases: what follows its name in CASES says in which way it is used.
    """

    one: Arguments
    other: Arguments
    before: Callable[[World], Awaitable[Arguments | None]] | None = None


async def two_files(world: World) -> None:
    await world.put("a.txt", "apple\nbanana\ncherry\n")
    await world.put("b.txt", "Apple\nberry\napple apple\n")
    await world.put("sub/c.py", "apple = 1\n")
    await world.put("sub/.gitignore", "*.log\n")
    await world.put("sub/d.log", "apple\n")
    await world.put("other/e.txt", "elderberry\n")


async def changed_after_reading(world: World) -> None:
    await world.put("a.txt", "old\n")
    assert (await world.call("read", path="a.txt")).ok
    await world.put("a.txt", "somebody else was here\n")


async def two_jobs(world: World) -> None:
    for command in ("echo one; echo two", "exit 3"):
        job = (await world.value("bash", command=command, background=True))["job"]
        await world.call("process", action="wait", job=job)


async def slow_job(world: World) -> Arguments:
    return {"job": (await world.value("bash", command="sleep 3; echo done", background=True))["job"]}


async def reading_job(world: World) -> Arguments:
    return {"job": (await world.value("bash", command="cat > read", background=True, input=True))["job"]}


async def late_reader(world: World) -> Arguments:
    command = "sleep 1.5; timeout 3 cat > read; echo $?"
    return {"job": (await world.value("bash", command=command, background=True, input=True))["job"]}


async def patient_job(world: World) -> Arguments:
    command = "timeout 3 cat > read; echo $?"
    return {"job": (await world.value("bash", command=command, background=True, input=True))["job"]}


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


def batch(name: str, one: Any, other: Any) -> Case:
    return of({}, "batch", [{"prompt": "Count.", name: one}], [{"prompt": "Count.", name: other}])


CASES: dict[str, Case] = {
    "read.path": of({}, "path", "a.txt", "b.txt"),
    "read.offset": of({"path": "a.txt"}, "offset", 2, 3),
    "read.limit": of({"path": "a.txt"}, "limit", 1, 2),
    "read.path of a directory": of({}, "path", "sub", "other"),
    "read.offset of a directory": of({"path": "."}, "offset", 2, 3),
    "read.limit of a directory": of({"path": "."}, "limit", 1, 2),
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
    "edit.old": of({"path": "b.txt", "new": "x"}, "old", "berry", "Apple"),
    "edit.new": of({"path": "b.txt", "old": "berry"}, "new", "x", "y"),
    "edit.replace_all": of({"path": "b.txt", "old": "apple", "new": "x"}, "replace_all", True, False),
    "glob.pattern": of({}, "pattern", "*.txt", "*.py"),
    "glob.path": of({"pattern": "*.*"}, "path", ".", "sub"),
    "glob.no_ignore": of({"pattern": "*.log"}, "no_ignore", True, False),
    "grep.pattern": of({}, "pattern", "banan", "cherr"),
    "grep.path": of({"pattern": "apple"}, "path", "a.txt", "sub"),
    "grep.glob": of({"pattern": "apple"}, "glob", "*.txt", "*.py"),
    "grep.context": of({"pattern": "apple", "path": "a.txt"}, "context", 1, 2),
    "grep.ignore_case": of({"pattern": "APPLE"}, "ignore_case", True, False),
    "grep.no_ignore": of({"pattern": "apple"}, "no_ignore", True, False),
    "grep.pattern in one file": of({"path": "a.txt"}, "pattern", "banan", "cherr"),
    "grep.context in a directory": of({"pattern": "apple apple", "path": "."}, "context", 1, 2),
    "grep.ignore_case in one file": of({"pattern": "APPLE", "path": "a.txt"}, "ignore_case", True, False),
    "bash.command": of({}, "command", "echo one > made", "echo two > made"),
    "bash.timeout": of({"command": SLOW}, "timeout", 1, 30),
    "bash.idle_timeout": of({"command": SLOW}, "idle_timeout", 1, 30),
    "bash.background": of({"command": "echo now"}, "background", True, False),
    "bash.cwd": of({"command": "pwd > here"}, "cwd", "sub", "other"),
    "bash.input": of({"command": "timeout 3 cat; echo $?", "background": True}, "input", True, False),
    "bash.command in the background": of({"background": True}, "command", "echo one", "echo two"),
    "bash.idle_timeout in the background": of({"command": SLOW, "background": True}, "idle_timeout", 1, 30),
    "bash.cwd in the background": of({"command": "pwd > here", "background": True}, "cwd", "sub", "other"),
    "process.action": of({"job": "job-1"}, "action", "poll", "tail", two_jobs),
    "process.job": of({"action": "poll"}, "job", "job-1", "job-2", two_jobs),
    "process.timeout": of({"action": "wait"}, "timeout", 0.1, 30, slow_job),
    "process.timeout of send": of({"action": "send", "text": "x" * 200_000}, "timeout", 0.2, 30, late_reader),
    "process.text": of({"action": "send", "close": True}, "text", "one\n", "two\n", reading_job),
    "process.close": of({"action": "send", "text": "x\n"}, "close", True, False, patient_job),
    "process.start": of({"action": "output", "job": "job-1"}, "start", 0, 4, two_jobs),
    "process.end": of({"action": "output", "job": "job-1"}, "end", 3, 6, two_jobs),
    "process.lines": of({"action": "tail", "job": "job-1"}, "lines", 1, 2, two_jobs),
    "run_code.code": of({}, "code", "print(1)", "print(2)"),
    "run_code.language": of({"code": "print('x')"}, "language", "bash", "python"),
    "run_code.timeout": of({"code": "import time; time.sleep(1.2)"}, "timeout", 1, 30),
    "read_artifact.ref": Case({}, {}, two_artifacts),
    "read_artifact.start": of({}, "start", 0, 7, artifact),
    "read_artifact.length": of({}, "length", 20, 40, artifact),
    "share_artifact.path": of({}, "path", "a.txt", "b.txt"),
    "share_artifact.filename": of({"path": "a.txt"}, "filename", "one.txt", "two.txt"),
    "share_artifact.filename of a text": of({"content": "x"}, "filename", "one.txt", "two.txt"),
    "share_artifact.content": of({"path": "a.txt"}, "content", "x", "yy"),
    "todo.items": items({"content": "x", "status": "pending"}, {"content": "y", "status": "pending"}),
    "todo.items[].content": items({"content": "x", "status": "pending"}, {"content": "y", "status": "pending"}),
    "todo.items[].status": items({"content": "x", "status": "pending"}, {"content": "x", "status": "completed"}),
    "ask_user.question": of({}, "question", "Which?", "Who?"),
    "ask_user.choices": of({"question": "Which?"}, "choices", ["a"], ["b"]),
    "script.code": of({}, "code", "open('made', 'w').write('1')", "open('made', 'w').write('2')"),
    "script.timeout": of({"code": "import time; time.sleep(1.2)"}, "timeout", 1, 30),
    "search_tools.query": of({}, "query", "rain", "weather"),
    "search_tools.limit": of({"query": "warm"}, "limit", 1, 2),
    "task.prompt": of({}, "prompt", "Count.", "Sum."),
    "task.role": of({"prompt": "Count."}, "role", "a clerk", "a judge"),
    "task.tools": of({"prompt": "Count."}, "tools", ["read"], ["grep"]),
    "task.cwd": of({"prompt": "Count."}, "cwd", "sub", "other"),
    "task.batch": of({}, "batch", [{"prompt": "Count."}], [{"prompt": "Sum."}]),
    "task.batch[].prompt": of({}, "batch", [{"prompt": "Count."}], [{"prompt": "Sum."}]),
    "task.batch[].role": batch("role", "a clerk", "a judge"),
    "task.batch[].tools": batch("tools", ["read"], ["grep"]),
    "task.batch[].cwd": batch("cwd", "sub", "other"),
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
    assert advertised == {name.partition(" ")[0] for name in CASES}


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


def gates_for(property: str, *, stripped: bool) -> list[Gate]:
    """The standard gates, and one before preflight that notes the clock and may take the property away."""
    _, _, path = property.partition(" ")[0].partition(".")

    async def watch(step: Step, proceed: Next) -> Result:
        if step.call.id == "tried":
            step.context.state.clock = step.context.clock
            assert isinstance(step.call.arguments, Mapping)
            if stripped:
                step.call = replace(step.call, arguments=without(step.call.arguments, path))
        return await proceed(step)

    at = STANDARD.index(preflight)
    return [*STANDARD[:at], watch, *STANDARD[at:]]


def leaves(value: Any) -> Iterator[Any]:
    """Every text and number inside a value."""
    if isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(inner)
    elif not isinstance(value, bool):
        yield value


def new(value: Any, repeated: set[Any], field: str) -> Any:
    """What a result says beyond its arguments, without what differs between any two runs.

    `repeated` are the values of both calls, so that what is left out of one is left out of the other.
    """
    if isinstance(value, Mapping):
        away = VOLATILE | COUNTED | PROSE | {field}
        return {key: new(inner, repeated, field) for key, inner in value.items() if key not in away}
    if isinstance(value, list):
        return [new(inner, repeated, field) for inner in value]
    if isinstance(value, str):
        for each in sorted((each for each in repeated if isinstance(each, str) and each), key=len, reverse=True):
            value = value.replace(each, "…")
    return "…" if value in repeated and not isinstance(value, bool) else value


async def jobs_of(here: World) -> list[Any]:
    """What each background job came to, once it did."""
    found = []
    for job in here.sandbox.jobs():
        await job.wait()
        found.append([job.exit_code, job.tail(), job.completed.ended_by if job.completed else None])
    return found


async def artifacts_of(here: World, result: Result) -> list[Any]:
    """What is stored behind the references of a result."""
    refs = set(re.findall(r"a_[0-9a-f]{32}", json.dumps(result.to_envelope(""))))
    held = [(here.session.artifacts.info(ref), await here.session.artifacts.read(ref)) for ref in sorted(refs)]
    return [[info.name, info.media_type, info.size, data.decode()] for info, data in held if info]


async def observed(
    driver: str, root: Path, property: str, which: str, *, stripped: bool, instead: Sequence[Tool] = ()
) -> str:
    """What the call came to: what is new in its result, the files, jobs, artifacts and memory, and the person."""
    tool, case = property.partition(".")[0], CASES[property]
    async with world(driver, root, gates=gates_for(property, stripped=stripped), instead=instead) as here:
        more = (await case.before(here) if case.before else None) or {}
        arguments = {**(case.one if which == "one" else case.other), **more.get(which, {} if "one" in more else more)}
        here.session.begin_run()
        result = await here.session.call(tool, arguments, id="tried")
        field = property.partition(" ")[0].partition(".")[2].partition("[")[0]
        repeated = {leaf for call in (case.one, case.other) for leaf in leaves(call.get(field))}
        seen = [
            new(result.to_envelope(tool), repeated, field),
            await jobs_of(here),
            await artifacts_of(here, result),
            here.person.asked,
            here.person.summaries,
            dict(core_of(here.session).memory("todo", lasts=True)),
            {name: data.decode() for name, data in (await here.files()).items()},
        ]
        return json.dumps(seen, sort_keys=True).replace(str(root), "ROOT")


async def compare(driver: str, root: Path, property: str, instead: Sequence[Tool] = ()) -> None:
    """Make the two calls, with the property and without it. Raises AssertionError where it does nothing."""
    seen: dict[tuple[str, bool], str] = {}

    async def observe(which: str, stripped: bool) -> None:
        seen[which, stripped] = await observed(
            driver, root / f"{which}{stripped}", property, which, stripped=stripped, instead=instead
        )

    with anyio.fail_after(120):
        async with anyio.create_task_group() as together:
            for which in ("one", "other"):
                together.start_soon(observe, which, False)
                together.start_soon(observe, which, True)
    assert seen["one", False] != seen["other", False], "the property does nothing"
    assert seen["one", True] == seen["other", True], "something else makes the difference"


WHERE = [
    (driver, name) for driver in EVERY for name in CASES if name.split(".")[0] in {t.name for t in tools_for(driver)}
]


@pytest.mark.parametrize(("driver", "property"), WHERE)
async def test_a_property_makes_a_difference_and_nothing_else_does(driver: str, property: str, tmp_path: Path) -> None:
    await compare(driver, tmp_path, property)


Answer = Callable[[dict[str, Any], Mapping[str, Any]], dict[str, Any]]


def ignoring(name: str, ignored: Mapping[str, Any], says: Answer = lambda value, asked: value) -> Tool:
    """A built-in tool that takes other values for some properties, and answers as if it had not."""
    honest = next(each for each in builtin_tools("all") if each.name == name)

    async def body(context: Context, asked: Mapping[str, Any]) -> Any:
        made: Any = await honest.body(context, {**asked, **ignored})  # type: ignore[misc]
        value = made.value if isinstance(made, Success) else made
        return says(value, asked) if isinstance(value, dict) else made

    return replace(honest, body=body)


def planted(name: str, body: Callable[[Context, Mapping[str, Any]], Awaitable[Any]]) -> Tool:
    return replace(next(each for each in builtin_tools("all") if each.name == name), body=body)


async def todo_without_memory(context: Context, asked: Mapping[str, Any]) -> Any:
    items = [item.model_dump() for item in asked["items"]]
    return {"items": items, "left": sum(item["status"] != "completed" for item in items)}


async def asks_while_the_clock_runs(context: Context, asked: Mapping[str, Any]) -> Any:
    return {"answer": await context.host.ask(asked["question"], asked.get("choices", []))}


async def answers_itself(context: Context, asked: Mapping[str, Any]) -> Any:
    return {"answer": f"{asked['question']} {asked.get('choices', [])}"}


def as_if_from(value: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    first = asked["offset"]
    return {**value, "start_line": first, "end_line": first + value["text"].count("\n") - 1}


def only_for(name: str, broken: Tool, path: str) -> Tool:
    """A built-in tool that is broken for this path alone, and honest everywhere else."""
    honest = next(each for each in builtin_tools("all") if each.name == name)

    async def body(context: Context, asked: Mapping[str, Any]) -> Any:
        return await (broken if asked["path"] == path else honest).body(context, asked)

    return replace(honest, body=body)


def as_if_listed(value: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    return {**value, "truncated": True}


def as_if_in(value: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    return {**value, "cwd": f"{value['cwd']}/{asked['cwd']}"}


FAULTS: dict[str, tuple[Tool, str]] = {
    "read ignores offset": (ignoring("read", {"offset": 1}, as_if_from), "read.offset"),
    "read ignores limit for directories": (
        only_for("read", ignoring("read", {"limit": None}, as_if_listed), "."),
        "read.limit of a directory",
    ),
    "read ignores offset for directories": (
        only_for("read", ignoring("read", {"offset": 1}), "."),
        "read.offset of a directory",
    ),
    "grep ignores context in directories": (
        only_for("grep", ignoring("grep", {"context": 0}), "."),
        "grep.context in a directory",
    ),
    "glob ignores pattern": (
        ignoring("glob", {"pattern": "*"}, lambda value, asked: {**value, "pattern": asked["pattern"]}),
        "glob.pattern",
    ),
    "grep ignores pattern": (
        ignoring("grep", {"pattern": "a"}, lambda value, asked: {**value, "pattern": asked["pattern"]}),
        "grep.pattern",
    ),
    "run_code ignores language": (
        ignoring("run_code", {"language": "python"}, lambda value, asked: {**value, "language": asked["language"]}),
        "run_code.language",
    ),
    "background ignores idle_timeout": (
        ignoring("bash", {"idle_timeout": None}),
        "bash.idle_timeout in the background",
    ),
    "background ignores cwd": (ignoring("bash", {"cwd": None}, as_if_in), "bash.cwd in the background"),
    "todo is not stored": (planted("todo", todo_without_memory), "todo.items"),
    "todo is not stored, seen by its content": (planted("todo", todo_without_memory), "todo.items[].content"),
    "todo is not stored, seen by its status": (planted("todo", todo_without_memory), "todo.items[].status"),
    "ask_user does not pause": (planted("ask_user", asks_while_the_clock_runs), "ask_user.question"),
    "ask_user does not ask": (planted("ask_user", answers_itself), "ask_user.choices"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_tool_that_only_repeats_a_property_is_found(fault: str, tmp_path: Path) -> None:
    tool, property = FAULTS[fault]
    driver = "host" if "exec" in tool.needs else "memory"
    with pytest.raises(AssertionError, match="the property does nothing"):
        await compare(driver, tmp_path, property, [tool])
    seen = json.loads(await observed(driver, tmp_path / "control", property, "one", stripped=False, instead=[tool]))
    assert seen[0]["ok"], "the control: it answers, as if all were well"
