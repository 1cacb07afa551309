"""Inside pydantic-ai: its agents use a session's tools, and its workspaces are our sandboxes."""

from typing import Any

import anyio
import pytest
from pydantic_ai import Agent, DeferredToolRequests, ToolApproved, ToolDenied
from pydantic_ai.capabilities import AbstractCapability

from handrail import ApprovalRequest, Decision, HandrailError, Policy, Session
from handrail.adapters import pydantic_ai
from handrail.adapters._calls import run
from handrail.testing import approve_all
from tests.adapters.drive_pydantic_ai import PydanticAI, script
from tests.adapters.scenarios import SCENARIOS, STREAMING, Ask, Scenario, Told, asks, coding, until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("scenario", [*SCENARIOS, *STREAMING], ids=lambda each: each.__name__)
async def test_an_agent_of_pydantic_ai_uses_the_tools_of_a_session(scenario: Scenario) -> None:
    await scenario(PydanticAI())


async def test_what_is_shown_after_a_cancelled_run_is_shown_once() -> None:
    shown: list[str] = []
    async with coding() as session:
        run = PydanticAI().agent(session, shown)
        async with anyio.create_task_group() as group:
            group.start_soon(run, [[asks("bash", command="echo begun; sleep 1000")]])
            await until(lambda: shown == ["begun\n"])
            group.cancel_scope.cancel()
        await run([[asks("bash", command="echo one"), asks("bash", command="echo two")]])
    assert sorted(shown) == ["begun\n", "one\n", "two\n"]


async def test_whoever_cannot_show_something_does_not_stop_the_call() -> None:
    """Here the loop of the framework's events has ended with an error of its reader."""

    async def fails(stream: str, text: str) -> None:
        raise RuntimeError("no screen")

    async with coding() as session:
        done = await run(session, "bash", {"command": "echo one; sleep 0.2; echo two"}, None, fails)
        assert done.value["stdout"] == "one\ntwo\n"
    with pytest.raises(HandrailError, match="is closed"):
        await run(session, "bash", {"command": "echo"}, None, fails)


# Approval by the framework


def script_for(asked: list[Ask], told: list[list[Told]]) -> Agent[None, str | DeferredToolRequests]:
    return Agent(script([asked], told), output_type=[str, DeferredToolRequests])


@pytest.mark.parametrize("answer", ["approved", "denied", "edited", "approved elsewhere"])
async def test_what_needs_approval_ends_the_run_and_comes_again_when_the_framework_has_it(answer: str) -> None:
    told: list[list[Told]] = []
    agent = script_for([asks("bash", command="echo one >> out")], told)
    async with coding(policy=Policy(ask=["bash"])) as session:
        tools = pydantic_ai.toolset(session, approval="framework")
        first = await agent.run("go", toolsets=[tools])
        assert isinstance(first.output, DeferredToolRequests)
        [call] = first.output.approvals
        request = first.output.metadata[call.tool_call_id]
        assert (request["tool"], request["arguments"]) == ("bash", {"command": "echo one >> out"})
        assert "echo one" in request["text"]
        assert session.sandbox is not None
        assert not await session.sandbox.exists("out")
        approval: Any = True
        if answer == "denied":
            approval = ToolDenied("not this")
        elif answer == "edited":
            approval = ToolApproved(override_args={"command": "echo two >> out"})
        elif answer == "approved elsewhere":  # another process has a toolset of its own
            tools = pydantic_ai.toolset(session, approval="framework")
        results = first.output.build_results(approvals={call.tool_call_id: approval})
        last = await agent.run(message_history=first.all_messages(), deferred_tool_results=results, toolsets=[tools])
        assert last.output == "done"
        written = await session.sandbox.read_text("out") if await session.sandbox.exists("out") else ""
    if answer == "denied":
        assert (told[0][0].text, written) == ("not this", "")
    else:
        assert told[0][0].envelope["result"]["exit_code"] == 0
        assert written == ("two\n" if answer == "edited" else "one\n")


async def test_an_approval_of_the_framework_counts_once() -> None:
    told: list[list[Told]] = []
    async with coding(policy=Policy(ask=["bash"])) as session:
        tools = pydantic_ai.toolset(session, approval="framework")
        for _ in range(2):
            agent = script_for([asks("bash", command="echo one >> out")], told)
            first = await agent.run("go", toolsets=[tools])
            assert isinstance(first.output, DeferredToolRequests), "the same call asks again"
            results = first.output.build_results(approve_all=True)
            await agent.run(message_history=first.all_messages(), deferred_tool_results=results, toolsets=[tools])
        assert session.sandbox is not None
        assert await session.sandbox.read_text("out") == "one\none\n"


async def test_a_deny_rule_holds_though_the_framework_approves() -> None:
    told: list[list[Told]] = []
    async with coding(policy=Policy(ask=["bash"], deny=["bash(rm *)"])) as session:
        agent = script_for([asks("bash", command="rm x")], told)
        done = await agent.run("go", toolsets=[pydantic_ai.toolset(session, approval="framework")])
    assert done.output == "done"
    assert told[0][0].envelope["kind"] == "rejected"


async def test_what_an_approver_of_the_session_puts_off_does_not_end_the_run() -> None:
    async def later(request: ApprovalRequest) -> Decision:
        return Decision.defer()

    told: list[list[Told]] = []
    async with coding(policy=Policy(ask=["bash"]), approver=later) as session:
        agent = Agent(script([[asks("bash", command="echo one")]], told), toolsets=[pydantic_ai.toolset(session)])
        assert (await agent.run("go")).output == "done"
    assert told[0][0].envelope["kind"] == "rejected"
    assert told[0][0].envelope["data"]["approval"]["arguments"] == {"command": "echo one"}


async def test_a_session_that_asks_somebody_itself_is_not_left_to_the_framework() -> None:
    async with Session([], approver=approve_all) as session:
        with pytest.raises(HandrailError, match="has an approver"):
            pydantic_ai.toolset(session, approval="framework")
        with pytest.raises(HandrailError, match='"ours"'):
            pydantic_ai.toolset(session, approval="theirs")  # type: ignore[arg-type]
        with pytest.raises(HandrailError, match="an open session"):
            pydantic_ai.toolset([])  # type: ignore[arg-type]


async def test_a_hook_that_changes_the_arguments_is_heard() -> None:
    """They no longer are what the model wrote."""

    def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    class Softer(AbstractCapability[None]):
        async def before_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any]) -> Any:
            args["text"] = "soft"
            return args

    told: list[list[Told]] = []
    async with Session([shout]) as session:
        agent = Agent(
            script([[asks("shout", text="loud")]], told),
            toolsets=[pydantic_ai.toolset(session)],
            capabilities=[Softer()],
        )
        await agent.run("go")
    assert told[0][0].envelope["result"] == {"text": "SOFT"}
