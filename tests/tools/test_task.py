"""Tasks run in child sessions: the same gates and budget, fewer tools, events under the parent, ended with it."""

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from handrail import (
    Agent,
    Budget,
    Call,
    Context,
    Decision,
    Failure,
    Message,
    ModelEvent,
    Policy,
    Sandbox,
    Session,
    Store,
    Success,
    ToolFailed,
    Turn,
    Usage,
    builtin_tools,
    open_sandbox,
    tool,
)  # fmt: skip
from handrail.agent.child import TASK
from handrail.testing import MemoryDriver, ScriptedModel
from handrail.tools.task import task
from tests.agent.test_loop import paired
from tests.journeys.evidence import endings, events_of

pytestmark = pytest.mark.anyio


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class ByPrompt:
    """A model that answers by the first prompt of the conversation, and by what was said since."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Sequence[str], str]] = []

    async def ask(self, messages: Sequence[Message], tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
        prompt, at = messages[0].text, sum(message.role == "assistant" for message in messages)
        self.asked.append((prompt, [each["name"] for each in tools], system))
        answer = self.answers[prompt][at] if prompt in self.answers else f"did {prompt}"
        yield Turn(answer, usage=Usage(1, 1)) if isinstance(answer, str) else answer


def doing(**arguments: Any) -> Turn:
    return Turn("", (Call("t", "task", arguments),), "tool_use", Usage(1, 1))


def using(name: str, id: str = "c", **arguments: Any) -> Turn:
    return Turn("", (Call(id, name, arguments),), "tool_use", Usage(1, 1))


def only_result(agent: Agent) -> Any:
    ((_, result),) = paired(agent.messages)
    return result


async def test_a_task_returns_its_text_and_its_events_are_under_the_parent() -> None:
    model = ByPrompt({"go": [doing(prompt="add", role="a clerk"), "done"], "add": [using("add", a=1, b=2), "three"]})
    agent = Agent(model, tools=[add, task], system="Be brief.")
    outcome = await agent.run("go")
    assert outcome.text == "done"
    assert only_result(agent).value == {"task": "t/1", "text": "three", "artifacts": []}
    assert outcome.usage == Usage(4, 4)  # the child's too
    inside = [event for event in agent.session.trace if event.parent == "t/1"]
    assert [event.type for event in inside if event.type != "text"] == [
        "run_started", "user", "model_asked", "model_answered", "call_started", "call_running", "call_ended",
        "model_asked", "model_answered", "run_ended",
    ]  # fmt: skip
    assert [event.call_id for event in inside if event.type == "call_started"] == ["t/1/c"]
    assert len(endings(agent.session)) == 2
    (child, *_) = [asked for asked in model.asked if asked[0] == "add"]
    assert child[1] == ["add", "task"]
    assert "Be brief." in child[2]
    assert "a clerk" in child[2]
    assert len(agent.messages) == 4  # nothing of the child's conversation


async def test_a_task_inside_a_task_is_told_once_that_it_is_one() -> None:
    answers = {
        "go": [doing(prompt="one", role="a clerk"), "done"],
        "one": [doing(prompt="two", role="a cook"), "done"],
        "two": [doing(prompt="three"), "done"],
    }
    model = ByPrompt(answers)
    await Agent(model, tools=[task], system="Be brief.").run("go")
    systems = {prompt: system for prompt, _, system in model.asked}
    assert systems["go"] == "Be brief."
    for prompt, role in (("one", "\n\nYour role: a clerk"), ("two", "\n\nYour role: a cook"), ("three", "")):
        assert systems[prompt] == f"Be brief.\n\n{TASK}{role}"


async def test_the_ids_in_a_childs_messages_are_accepted_by_providers() -> None:
    seen: list[str] = []

    def look(messages: Sequence[Message]) -> Turn:
        seen.extend(call.id for message in messages for call in message.calls)
        return Turn("ok")

    model = ScriptedModel([doing(prompt="add"), using("add", "x", a=1, b=1), look, "done"])
    await Agent(model, tools=[add, task]).run("go")
    assert seen == ["x"]


@pytest.mark.parametrize("arguments", [{}, {"prompt": " "}, {"batch": []}, {"prompt": "a", "batch": [{"prompt": "b"}]}])
async def test_exactly_one_of_prompt_and_batch_is_given(arguments: Any) -> None:
    agent = Agent(ByPrompt({"go": [doing(**arguments), "done"]}), tools=[task])
    await agent.run("go")
    assert only_result(agent).kind == "invalid_args"


async def test_a_batch_of_32_answers_in_order_and_one_that_fails_does_not_lose_the_others() -> None:
    batch = [{"prompt": f"part {n}"} for n in range(32)]
    answers = {"go": [doing(batch=batch), "done"], "part 7": [Turn("", stop="refused")]}
    agent = Agent(ByPrompt(answers), tools=[task])
    assert (await agent.run("go")).reason == "done"
    envelopes = only_result(agent).value
    assert [each["ok"] for each in envelopes] == [n != 7 for n in range(32)]
    assert [each["result"]["text"] for each in envelopes if each["ok"]] == [
        f"did part {n}" for n in range(32) if n != 7
    ]
    assert [each["result"]["task"] for each in envelopes[:3]] == ["t/1", "t/2", "t/3"]
    assert envelopes[7]["kind"] == "execution_error"
    assert "refused" in envelopes[7]["message"]
    many = Agent(ByPrompt({"go": [doing(batch=[*batch, {"prompt": "one more"}]), "done"]}), tools=[task])
    await many.run("go")
    assert only_result(many).kind == "invalid_args"


async def test_long_answers_of_a_batch_are_cut_and_can_be_read_whole() -> None:
    answers = {"go": [doing(batch=[{"prompt": "a"}, {"prompt": "b"}]), "done"], "a": ["x" * 100_000], "b": ["short"]}
    agent = Agent(ByPrompt(answers), tools=[task])
    await agent.run("go")
    first, second = only_result(agent).value
    assert second["result"]["text"] == "short"
    ref = first["result"]["text"].partition("full output: ")[2].partition("]")[0]
    assert len(await agent.session.artifacts.read(ref)) == 100_000


async def test_tools_are_narrowed_and_never_widened() -> None:
    grandchild = [using("add", a=1, b=1), "tried"]
    answers = {
        "go": [doing(prompt="child", tools=["task"]), "done"],
        "child": [doing(prompt="wider", tools=["add"]), doing(prompt="grandchild"), "over"],
        "grandchild": grandchild,
    }
    agent = Agent(ByPrompt(answers), tools=[add, task])
    await agent.run("go")
    ended = endings(agent.session)
    assert ended["t/1/t"].data["kind"] == "invalid_args"  # it may not give what it has not
    kinds = {id: event.data["kind"] for id, event in ended.items() if event.data["tool"] == "add"}
    assert list(kinds.values()) == ["tool_not_found"]
    nothing = Agent(
        ByPrompt({"go": [doing(batch=[{"prompt": "x", "tools": []}], tools=["add"]), "done"]}), tools=[add, task]
    )
    await nothing.run("go")
    assert [asked[1] for asked in nothing.model.asked if asked[0] == "x"] == [[]]  # type: ignore[attr-defined]


async def test_the_typed_answer_of_the_parent_is_not_the_childs() -> None:
    class Sum(BaseModel):
        total: int

    model = ByPrompt({"go": [doing(prompt="x"), using("answer", total=3)]})
    outcome = await Agent(model, tools=[task], output=Sum).run("go")
    assert outcome.output == Sum(total=3)
    assert [asked[1] for asked in model.asked] == [["answer", "task"], ["task"], ["answer", "task"]]


async def test_tasks_nest_four_deep_and_no_deeper() -> None:
    answers = {f"level {n}": [doing(prompt=f"level {n + 1}"), f"back from {n}"] for n in range(6)}
    agent = Agent(ByPrompt(answers), tools=[task])
    assert (await agent.run("level 0")).reason == "done"
    kinds = {id: event.data["kind"] for id, event in endings(agent.session).items()}
    assert kinds == {
        "t": None, "t/1/t": None, "t/1/t/1/t": None, "t/1/t/1/t/1/t": None, "t/1/t/1/t/1/t/1/t": "rejected"
    }  # fmt: skip


async def test_children_share_the_parents_budget() -> None:
    answers = {"go": [doing(prompt="child"), "done"], "child": [using("add", str(n), a=n, b=1) for n in range(9)]}
    agent = Agent(ByPrompt(answers), tools=[add, task], budget=Budget(calls=4))
    assert (await agent.run("go")).reason == "budget"
    kinds = [event.data["kind"] for event in endings(agent.session).values()]
    assert kinds.count(None) == 3
    assert kinds.count("budget_exhausted") == 2  # of the child's fourth call, and so of the task


async def test_the_run_s_seconds_end_a_child_that_waits_for_its_model() -> None:
    class Hangs(ByPrompt):
        async def ask(self, messages: Sequence[Message], tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
            if messages[0].text == "child":
                await anyio.sleep(600)
            async for event in super().ask(messages, tools, system=system):
                yield event

    agent = Agent(Hangs({"go": [doing(prompt="child"), "done"]}), tools=[task], budget=Budget(seconds=0.2))
    with anyio.fail_after(60):
        assert (await agent.run("go")).reason == "budget"


async def test_a_child_s_failures_do_not_break_the_calls_of_another() -> None:
    def fails() -> None:
        """Fail."""
        raise RuntimeError("no")

    batch = [{"prompt": f"p{n}"} for n in range(5)]
    answers: dict[str, Any] = {f"p{n}": [using("fails"), "ok"] for n in range(5)}
    agent = Agent(ByPrompt({"go": [doing(batch=batch), "done"], **answers}), tools=[fails, task])
    await agent.run("go")
    kinds = [event.data["kind"] for event in endings(agent.session).values() if event.data["tool"] == "fails"]
    assert kinds == ["execution_error"] * 5


async def test_a_child_asks_the_same_approver_under_the_same_policy() -> None:
    asked: list[str] = []

    async def approver(request: Any) -> Decision:
        asked.append(request.call_id)
        return Decision.remember()

    @tool(risk="critical", effects=["writes"])
    async def danger(what: str) -> str:
        """Do something dangerous."""
        return what

    answers = {
        "go": [doing(prompt="child"), using("danger", "later", what="x"), "done"],
        "child": [using("danger", "c", what="x"), "ok"],
    }
    agent = Agent(ByPrompt(answers), tools=[danger, task], approver=approver, policy=Policy(mode="ask"))
    await agent.run("go")
    assert asked == ["t/1/c"]  # what was remembered there holds here


async def test_a_child_works_in_its_directory_and_not_above_its_parents() -> None:
    sandbox = Sandbox(MemoryDriver({"/workspace/sub/a.txt": b"here\n", "/workspace/b.txt": b"above\n"}))
    answers = {
        "go": [doing(prompt="in sub", cwd="sub"), doing(prompt="out", cwd="../etc"), "done"],
        "in sub": [using("read", path="a.txt"), doing(prompt="up", cwd=".."), "ok"],
    }
    tools = [*builtin_tools("read_only"), task]
    agent = Agent(ByPrompt(answers), tools=tools, sandbox=sandbox)
    await agent.run("go")
    ended = endings(agent.session)
    assert ended["t/1/c"].data["result"]["result"]["text"] == "here\n"
    refused = [event.data["result"] for event in ended.values() if event.data["kind"]]
    assert [each["field"] for each in refused] == ["cwd", "cwd"]


async def test_artifacts_of_a_child_are_named_and_readable_by_the_parent() -> None:
    @tool
    async def keep(context: Context) -> Any:
        """Keep something."""
        return {"kept": await context.artifacts.put("from the child", name="note.txt")}

    answers = {"go": [doing(prompt="child"), "done"], "child": [using("keep"), "kept"]}
    agent = Agent(ByPrompt(answers), tools=[keep, task])
    await agent.run("go")
    (named,) = only_result(agent).value["artifacts"]
    assert named["name"] == "note.txt"
    assert await agent.session.artifacts.read(named["$artifact"]) == b"from the child"


async def test_a_child_that_asks_the_user_fails_with_its_question() -> None:
    tools = [*[each for each in builtin_tools("all") if each.name == "ask_user"], task]
    answers = {"go": [doing(prompt="child"), "done"], "child": [using("ask_user", question="Which one?")]}
    agent = Agent(ByPrompt(answers), tools=tools)
    assert (await agent.run("go")).reason == "done"
    assert only_result(agent).kind == "unavailable"
    assert "Which one?" in only_result(agent).message


async def test_complete_in_a_child_ends_the_child_alone() -> None:
    tools = [*[each for each in builtin_tools("all") if each.name == "complete"], task]
    answers = {
        "go": [doing(prompt="child"), "parent done"],
        "child": [using("complete", summary="All files were read.")],
    }
    agent = Agent(ByPrompt(answers), tools=tools)
    assert (await agent.run("go")).text == "parent done"
    assert only_result(agent).value["text"] == "All files were read."


class Own:
    """A host of the session's own."""

    def __init__(self, result: Any) -> None:
        self.result, self.spawned = result, list[Any]()

    async def spawn(self, prompt: str, *, role: str = "", tools: Any = None, cwd: Any = None) -> Any:
        self.spawned.append((prompt, role, tools, cwd))
        if isinstance(self.result, ToolFailed):
            raise self.result
        return self.result


async def test_a_host_of_the_session_s_own_starts_tasks_and_what_it_cannot_do_the_loop_does() -> None:
    for given, expected in (
        (Success({"task": "own", "text": "mine"}), "mine"),
        (ToolFailed(Failure("unavailable", "not here")), "did child"),
    ):
        host: Any = Own(given)
        session = Session([task], host=host)
        agent = Agent(ByPrompt({"go": [doing(prompt="child", role="r", tools=[], cwd=None), "done"]}), session=session)
        await agent.run("go")
        assert only_result(agent).value["text"] == expected
        assert host.spawned == [("child", "r", [], None)]


async def test_without_a_loop_a_task_is_unavailable() -> None:
    async with Session([task]) as session:
        assert (await session.call("task", {"prompt": "x"})).kind == "unavailable"


async def test_cancelling_the_parent_ends_all_children_and_their_processes(tmp_path: Path) -> None:
    batch = [{"prompt": f"part {n}"} for n in range(3)]
    answers: dict[str, Any] = {"go": [doing(batch=batch), "never"]}
    for n in range(3):
        job = using("bash", "job", command=f"echo $$ > job{n}; sleep 600", background=True)
        answers[f"part {n}"] = [job, using("bash", "run", command=f"echo $$ > run{n}; sleep 600 & sleep 600"), "never"]
    async with open_sandbox("host", workspace=str(tmp_path), allow_weaker=True) as sandbox:
        tools = [*builtin_tools("coding"), task]
        agent = Agent(ByPrompt(answers), tools=tools, sandbox=sandbox, policy=Policy(mode="open"))
        jobs = [tmp_path / f"job{n}" for n in range(3)]
        with anyio.fail_after(90):
            async with anyio.create_task_group() as group:
                group.start_soon(agent.run, "go")
                while not (all(map(_written, jobs)) and any(map(_written, tmp_path.glob("run*")))):  # noqa: ASYNC110 - shells write them
                    await anyio.sleep(0.02)
                assert len([line for line in _commands(tmp_path) if "sleep 600" in line]) >= 4
                group.cancel_scope.cancel()
        assert not any("sleep 600" in line for line in _commands(tmp_path))
    ended = [event.data["reason"] for event in events_of(agent.session, "run_ended")]
    assert ended == ["cancelled"] * 4
    assert len(events_of(agent.session, "job_ended")) == 3
    endings(agent.session)
    paired(agent.messages)


def _written(path: Path) -> bool:
    return path.exists() and bool(path.read_text().strip())


def _commands(directory: Path) -> list[str]:
    """The command lines of every process that works in this directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.readlink(entry / "cwd").startswith(str(directory)):
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
    return found


async def test_a_stored_session_with_tasks_is_resumed_without_the_childrens_messages(tmp_path: Path) -> None:
    answers = {"go": [doing(prompt="child"), "done"], "child": [using("add", a=1, b=1), "two"]}
    with Store(tmp_path / "s.db") as store:
        async with Agent(ByPrompt(answers), tools=[add, task], store=store) as agent:
            await agent.run("go")
        assert list(store.events(agent.session.id)) == list(agent.session.trace)
        (summary,) = store.sessions()
        assert summary.usage == Usage(4, 4)
        resumed = Agent.resume(ScriptedModel([]), store, agent.session.id, tools=[add, task])
        assert resumed.messages == agent.messages


async def test_one_task_of_a_batch_can_be_ended_without_the_others(tmp_path: Path) -> None:
    batch = [{"prompt": f"part {n}"} for n in range(3)]
    answers: dict[str, Any] = {"go": [doing(batch=batch), "done"]}
    for n in range(3):
        line = f"echo $$ > run{n}; while ! test -e go; do sleep 0.02; done"
        answers[f"part {n}"] = [using("wait", "run", line=line), f"did part {n}"]
    async with open_sandbox("host", workspace=str(tmp_path), allow_weaker=True) as sandbox:
        tools = [tool(name="wait", lane="none", needs=("exec",))(_wait), task]
        agent = Agent(ByPrompt(answers), tools=tools, sandbox=sandbox, policy=Policy(mode="open"))
        outcomes = []

        async def run() -> None:
            outcomes.append(await agent.run("go"))

        with anyio.fail_after(90):
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                while not all(_written(tmp_path / f"run{n}") for n in range(3)):  # noqa: ASYNC110 - shells write them
                    await anyio.sleep(0.02)
                assert not await agent.session.terminate("t/9")
                assert await agent.session.terminate("t/2")
                (tmp_path / "go").touch()
        assert not any("run1" in line for line in _commands(tmp_path))
    assert outcomes[0].reason == "done"
    first, ended, last = only_result(agent).value
    assert [first["ok"], last["ok"]] == [True, True]
    assert (ended["kind"], ended["data"]["task"]) == ("cancelled", "t/2")
    endings(agent.session)
    reasons = {event.parent: event.data["reason"] for event in events_of(agent.session, "run_ended")}
    assert reasons == {None: "done", "t/1": "done", "t/2": "cancelled", "t/3": "done"}
    assert not await agent.session.terminate("t/2")


async def _wait(line: str, context: Context) -> str:
    """Run a command line to its end."""
    return str((await context.sandbox.run(line)).exit_code)


async def test_a_stream_goes_on_after_a_task_in_it_has_ended() -> None:
    turns = [Turn(calls=(Call("c", "task", {"prompt": "look"}),)), "the task's answer", "the answer"]
    async with Agent(ScriptedModel(turns), tools=[task]) as agent:
        events = [event async for event in agent.stream("go")]
    assert [event.parent for event in events if event.type == "run_ended"] == ["c/1", None]
    assert events[-1].data["text"] == "the answer"
