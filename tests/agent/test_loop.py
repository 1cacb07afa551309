"""The loop asks, calls, appends and repeats; it ends with a reason; it can be watched; every call has one result."""

import gc
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from handrail import Agent, Budget, Call, Context, HandrailError, Policy, Sandbox, Session, Tool, builtin_tools
from handrail.contract.driver import Command, Feature
from handrail.contract.model import Message, ModelEvent, ModelFailed, TextDelta, Usage
from handrail.drivers.memory import Script
from handrail.sandbox.views import on_late
from handrail.testing import MemoryDriver, ScriptedModel, Turn
from tests.gates.asked import until
from tests.journeys.evidence import endings, events_of, only_ending

pytestmark = pytest.mark.anyio


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def calls(*made: tuple[str, Any]) -> tuple[Call, ...]:
    return tuple(Call(f"id{n}", name, arguments) for n, (name, arguments) in enumerate(made))


def paired(messages: Sequence[Message]) -> list[tuple[Call, Any]]:
    """Every call with its result. Fails when a call has none, or its result is not in the very next message."""
    pairs: list[tuple[Call, Any]] = []
    for at, message in enumerate(messages):
        if message.calls:
            after = messages[at + 1]
            assert (message.role, after.role) == ("assistant", "tool")
            pairs += zip(message.calls, after.results, strict=True)
        elif message.role == "tool":
            assert messages[at - 1].calls
    assert pairs, "no call was made, so nothing was shown"
    return pairs


class Late(MemoryDriver):
    """Starts a command long after it was asked to, when nobody waits for it any more."""

    features: frozenset[Feature] = frozenset({"exec", "tree_kill"})

    async def start(self, command: Command) -> Any:
        await anyio.sleep(3)
        return await super().start(command)


async def test_an_agents_own_session_tells_what_came_of_a_command_after_its_answer() -> None:
    sandbox = Sandbox(Late(commands={"x": Script(hang=True)}))
    bash = [each for each in builtin_tools() if each.name == "bash"]
    model = ScriptedModel([Turn(calls=calls(("bash", {"command": "x", "timeout": 1}))), "Done."])
    agent = Agent(model, tools=bash, sandbox=sandbox, policy=Policy(mode="open"))
    assert (await agent.run("Go.")).reason == "done"
    assert only_ending(agent.session).data["kind"] == "timeout"
    with anyio.fail_after(60):
        async for event in agent.session.events():
            if event.type == "call_late":
                break
    assert (event.call_id, event.data["outcome"]) == ("id0", "ended with exit code 137")


async def test_a_sandbox_does_not_hold_the_sessions_that_it_served() -> None:
    sandbox = Sandbox(MemoryDriver())
    for _ in range(3):
        assert (await Agent(ScriptedModel(["Done."]), sandbox=sandbox).run("Go.")).reason == "done"
        async with Session(sandbox=sandbox.at(".")):
            await sandbox.__aenter__()
    with anyio.fail_after(60):
        while on_late(sandbox):
            gc.collect()  # it does nothing while another thread collects
            await anyio.sleep(0.01)


async def test_it_calls_the_tools_and_is_done_when_the_model_makes_no_call() -> None:
    model = ScriptedModel([
        Turn("let me see", calls(("add", '{"a": 1, "b": 2}'), ("add", {"a": 3, "b": 4})), "tool_use", Usage(10, 5)),
        lambda messages: Turn(f"it is {[r.value for r in messages[-1].results]}", usage=Usage(20, 6)),
    ])  # fmt: skip
    agent = Agent(model, tools=[add], system="be brief")
    outcome = await agent.run("add them")
    assert (outcome.reason, outcome.text) == ("done", "it is [3, 7]")
    assert outcome.usage == Usage(30, 11)
    assert outcome.session_id == agent.session.id
    assert [message.role for message in agent.messages] == ["user", "assistant", "tool", "assistant"]
    first, second = model.requests
    assert (len(first.messages), len(second.messages), first.system) == (1, 3, "be brief")
    assert [schema["name"] for schema in first.tools] == ["add"]
    assert [result.value for _, result in paired(agent.messages)] == [3, 7]
    assert len(endings(agent.session)) == 2


async def test_the_conversation_goes_on_and_each_run_has_its_own_budget() -> None:
    turn = Turn("", calls(("add", {"a": 1, "b": 1})))
    model = ScriptedModel([turn, "one", turn, "two"])
    agent = Agent(model, tools=[add], budget=Budget(calls=1))
    assert (await agent.run("first")).text == "one"
    assert (await agent.run("second")).text == "two"
    assert [message.text for message in agent.messages if message.role == "user"] == ["first", "second"]
    assert [result.ok for _, result in paired(agent.messages)] == [True, True]
    assert len(endings(agent.session)) == 2  # though the model used the same call id twice


async def test_it_stops_at_the_round_limit() -> None:
    turn = Turn("", calls(("add", {"a": 1, "b": 1})))
    model = ScriptedModel([turn] * 10)
    agent = Agent(model, tools=[add], rounds=3)
    outcome = await agent.run("for ever")
    assert outcome.reason == "round_limit"
    assert "3 rounds" in outcome.text
    assert len(model.requests) == 3
    assert len(paired(agent.messages)) == 3
    assert Agent(model).rounds == 64


async def test_it_stops_when_the_budget_is_used_up() -> None:
    model = ScriptedModel([Turn("", calls(*[("add", {"a": n, "b": 1}) for n in range(3)]))] * 5)
    agent = Agent(model, tools=[add], budget=Budget(calls=4))
    outcome = await agent.run("go")
    assert outcome.reason == "budget"
    assert len(model.requests) == 2
    results = [result for _, result in paired(agent.messages)]
    assert [result.ok for result in results] == [True] * 4 + [False] * 2


@pytest.mark.parametrize(
    "error",
    [
        ModelFailed("no"),
        ModelFailed("come back", transient=True, retry_after=61),
        ValueError("a bug in a client"),
    ],
)
async def test_a_model_that_fails_ends_the_run_and_the_next_one_goes_on(error: Exception) -> None:
    model = ScriptedModel([Turn("", calls(("add", {"a": 1, "b": 1}))), error, "better now"])
    agent = Agent(model, tools=[add])
    outcome = await agent.run("go")
    assert outcome.reason == "model_error"
    assert str(error) in outcome.text
    assert len(paired(agent.messages)) == 1
    assert (await agent.run("again")).reason == "done"


async def test_a_transient_failure_is_tried_again_and_takes_back_what_was_shown() -> None:
    class Breaks:
        tries = 0

        async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
            self.tries += 1
            yield TextDelta("half")
            if self.tries < 3:
                raise ModelFailed("overloaded", transient=True, retry_after=0.01)
            yield Turn("whole")

    agent = Agent(Breaks())
    assert (await agent.run("go")).text == "whole"
    trace = agent.session.trace
    retried = [event.data for event in trace if event.type == "retried"]
    assert [[trace[seq].data["text"] for seq in data["taken_back"]] for data in retried] == [["half"], ["half"]]
    assert [event.data["try"] for event in trace if event.type == "model_asked"] == [1, 2, 3]
    assert [message.text for message in agent.messages] == ["go", "whole"]


async def test_a_model_whose_answer_breaks_off_was_not_done() -> None:
    class BreaksOff:
        async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[ModelEvent]:
            yield TextDelta("I was about to")

    outcome = await Agent(BreaksOff()).run("go")
    assert outcome.reason == "model_error"
    assert "before it was complete" in outcome.text


async def test_the_last_call_of_an_answer_that_was_cut_never_runs() -> None:
    ran: list[str] = []

    def touch(path: str) -> str:
        ran.append(path)
        return path

    cut = calls(("touch", '{"path": "a"}'), ("touch", '{"path": "/tmp"}'))
    model = ScriptedModel([Turn("", cut, "max_tokens"), Turn("", cut[:1], "tool_use"), "done"])
    agent = Agent(model, tools=[touch])
    assert (await agent.run("go")).reason == "done"
    assert ran == ["a", "a"]
    results = [result for _, result in paired(agent.messages)]
    assert [result.ok for result in results] == [True, False, True]
    assert results[1].kind == "invalid_args"
    assert "cut off" in results[1].message


async def test_an_unknown_tool_a_bad_argument_and_a_broken_body_each_have_a_result() -> None:
    def breaks() -> None:
        raise RuntimeError("inside")

    made = calls(("nothing", "{}"), ("add", '{"a": '), ("breaks", "{}"), ("add", {"a": 1, "b": 2}))
    agent = Agent(ScriptedModel([Turn("", made), "sorry"]), tools=[add, breaks])
    assert (await agent.run("go")).reason == "done"
    kinds = [None if result.ok else result.kind for _, result in paired(agent.messages)]
    assert kinds == ["tool_not_found", "invalid_args", "execution_error", None]


@pytest.mark.parametrize("several", [False, True])
async def test_after_a_cancellation_every_call_has_its_result_and_the_next_run_works(several: bool) -> None:
    async def slow() -> str:
        await until(lambda: len(events_of(agent.session, "call_ended")) == several)
        scope.cancel()
        await anyio.sleep(30)
        return "never"

    made = calls(*[("add", {"a": 1, "b": 1}), ("slow", "{}")][0 if several else 1 :])
    agent = Agent(ScriptedModel([Turn("", made), "going on"]), tools=[add, slow])
    with anyio.CancelScope() as scope:
        await agent.run("go")
    assert scope.cancelled_caught
    *others, (_, lost) = paired(agent.messages)
    assert not lost.ok
    assert lost.kind == "cancelled"
    assert [result.value for _, result in others] == [2] * several
    ended = events_of(agent.session, "run_ended")
    assert [event.data["reason"] for event in ended] == ["cancelled"]
    assert len(endings(agent.session)) == len(made)
    assert (await agent.run("again")).text == "going on"
    paired(agent.messages)


async def test_a_tool_may_end_the_loop_after_its_round_or_ask_the_person() -> None:
    async def done(context: Context, summary: str) -> str:
        context.host.finish(summary)
        return "ended"

    async def ask(context: Context) -> str:
        return await context.host.ask("Which one?", ["red", "blue"])

    both = Turn("", calls(("done", {"summary": "all well"}), ("add", {"a": 1, "b": 1})))
    model = ScriptedModel([both, Turn("", calls(("ask", "{}"))), "thank you"])
    agent = Agent(model, tools=[add, done, ask])
    outcome = await agent.run("go")
    assert (outcome.reason, outcome.text) == ("done", "all well")
    assert [result.ok for _, result in paired(agent.messages)] == [True, True]
    asked = await agent.run("choose")
    assert (asked.reason, asked.text) == ("asked_user", "Which one?\n- red\n- blue")
    assert (await agent.run("red")).text == "thank you"
    assert len(model.requests) == 3
    paired(agent.messages)


async def test_a_call_that_the_policy_refuses_is_a_result_like_any_other() -> None:
    danger = Tool("danger", {"type": "object"}, lambda context, arguments: "ran", risk="critical", effects=["writes"])
    model = ScriptedModel([Turn("", calls(("danger", "{}"))), "ok"])
    agent = Agent(model, tools=[danger], policy=Policy(mode="strict"))
    assert (await agent.run("go")).reason == "done"
    ((_, result),) = paired(agent.messages)
    assert result.kind == "rejected"


def test_what_an_agent_cannot_use_is_refused_when_it_is_made() -> None:
    with pytest.raises(HandrailError, match="missing ask"):
        Agent(object())  # type: ignore[arg-type]
    with pytest.raises(HandrailError, match="give tools, budget to the Session"):
        Agent(ScriptedModel([]), tools=[add], budget=Budget(calls=1), session=Session())
    assert Agent(ScriptedModel([]), session=Session([add])).session.toolbox.names() == ["add"]


async def slow(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "slept"


def watched_agent(seconds: float) -> Agent:
    turn = Turn("let me see", (Call("1", "slow", {"seconds": seconds}),))
    return Agent(ScriptedModel([turn, "done"]), tools=[slow])


async def test_the_events_come_as_they_happen_and_the_last_one_is_the_end() -> None:
    watched = watched_agent(0.01)
    seen = [event async for event in watched.stream("go")]
    assert [event.type for event in seen] == [
        "session_started", "run_started", "user", "model_asked", "text", "model_answered",
        "call_started", "call_running", "call_ended", "model_asked", "text", "model_answered", "run_ended",
    ]  # fmt: skip
    assert seen == list(watched.session.trace)
    assert seen[-1].data == {"reason": "done", "text": "done"}
    again = Agent(ScriptedModel(["more"]), session=watched.session)
    assert [event.type async for event in again.stream("on")][0] == "run_started"  # noqa: RUF015


@pytest.mark.parametrize("closed", [True, False])
async def test_leaving_early_ends_the_run_and_leaves_the_watcher_unharmed(closed: bool) -> None:
    watched = watched_agent(30)
    if closed:
        async with aclosing(watched.stream("go")) as events:  # type: ignore[type-var]
            async for event in events:
                if event.type == "call_started":
                    break
    else:
        async for event in watched.stream("go"):
            if event.type == "call_started":
                break
        gc.collect()
    with anyio.fail_after(90):
        while watched.session.trace[-1].type != "run_ended":  # noqa: ASYNC110 - it ends in its own task
            await anyio.sleep(0.001)
    (ended,) = endings(watched.session).values()
    assert ended.data["kind"] == "cancelled"
    assert watched.session.trace[-1].data["reason"] == "cancelled"
    assert len(watched.messages[-1].results) == 1
    with anyio.move_on_after(0.01) as scope:  # the control: this task's own scopes still work
        await anyio.sleep(30)
    assert scope.cancelled_caught


async def test_a_watcher_that_is_cancelled_takes_the_run_along() -> None:
    watched = watched_agent(30)
    with anyio.CancelScope() as scope:
        async for event in watched.stream("go"):
            if event.type == "call_running":
                scope.cancel()
    assert scope.cancelled_caught
    assert watched.session.trace[-1].type == "run_ended"
    assert [event.data["kind"] for event in endings(watched.session).values()] == ["cancelled"]


async def test_what_the_programmer_did_wrong_is_raised_to_the_watcher() -> None:
    async with Session([slow]) as session:
        pass
    closed = Agent(ScriptedModel([Turn("", (Call("1", "slow", {"seconds": 0}),))]), session=session)
    with pytest.raises(HandrailError, match="closed"):
        async for _ in closed.stream("go"):
            pass
