"""What an object prints says what it is, in one short line, and tells no secret."""

import pytest

from handrail import Agent, Artifacts, Command, Session, Toolbox, open_sandbox, tool
from handrail.testing import ScriptedModel

pytestmark = pytest.mark.anyio
SECRET = "hunter2"
LONGEST = 240


@tool(effects=["spends"], risk="high")
def pay(amount: int, to: str = "shop") -> int:
    """Pay."""
    return amount


class PaidModel(ScriptedModel):
    def __init__(self) -> None:
        super().__init__([])
        self.api_key = SECRET

    def __repr__(self) -> str:
        return f"PaidModel({self.api_key})"


async def test_each_object_says_what_it_is_and_no_secret() -> None:
    unopened = open_sandbox("memory", env={"TOKEN": SECRET}, commands={"sleep 5": "done"})
    async with unopened as sandbox, Session([pay], sandbox=sandbox, id="s1", state={"key": SECRET}) as session:
        job = await sandbox.start("sleep 5", env={"TOKEN": SECRET})
        agent = Agent(PaidModel(), tools=[pay], system=f"The key is {SECRET}.")
        await job.wait()
        shown = [repr(each) for each in (sandbox, session, job, agent, pay, unopened, session.toolbox)]
        shown += [repr(session.artifacts), repr(Artifacts()), repr(Command(line="ls", env={"TOKEN": SECRET}))]
    assert shown[0] == "<Sandbox memory at /workspace, network full>"
    assert shown[1] == f"<Session s1: tools pay; {shown[0]}; policy contained; 0 calls>"
    assert shown[2] == "<Job job-1: 'sleep 5', exit code 0>"
    assert shown[3].startswith("<Agent of PaidModel: 0 messages, <Session ")
    assert shown[4] == "<Tool pay(amount, to?): high, spends>"
    assert shown[5] == "<open_sandbox('memory'), entered>"
    assert shown[6] == "<Toolbox of 1: pay>"
    assert shown[7:9] == ["<Scope of session s1>", "<Artifacts in a private directory>"]
    assert [each for each in shown if SECRET in each or len(each) > LONGEST or "\n" in each] == []


async def test_an_object_that_is_closed_says_so() -> None:
    async with open_sandbox("memory") as sandbox, Session(sandbox=sandbox) as session:
        assert "closed" not in f"{sandbox} {session}"
    assert repr(sandbox).endswith(", closed>")
    assert repr(session).endswith(", closed>")


def test_a_long_list_of_tools_is_cut() -> None:
    box = Toolbox(tool(name=f"tool_{number:02}", description="x")(lambda: None) for number in range(20))
    assert repr(box) == "<Toolbox of 20: tool_00, tool_01, tool_02, tool_03, tool_04, …>"
