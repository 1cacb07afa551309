"""In mode contained a command runs unasked where nothing of it can leave; with a network it can."""

from pathlib import Path

import pytest

from handrail import ApprovalRequest, Decision, Failure, Policy, Session, builtin_tools, open_sandbox

pytestmark = pytest.mark.anyio
RUNS = {"command": "echo ran | tee trace"}


class Person:
    """Says no, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> Decision:
        self.asked.append(request)
        return Decision.deny("not with a network")


async def test_a_command_runs_where_the_sandbox_has_no_network(tmp_path: Path) -> None:
    person = Person()
    async with (
        open_sandbox("jail", workspace=str(tmp_path), network="none") as sandbox,
        Session(builtin_tools(), sandbox=sandbox, policy=Policy(mode="contained"), approver=person) as session,
    ):
        result = await session.call("bash", RUNS)
    assert result.ok, result
    assert result.value["stdout"] == "ran\n"
    assert (tmp_path / "trace").exists()
    assert person.asked == []


async def test_the_same_command_is_refused_where_the_sandbox_has_a_network(tmp_path: Path) -> None:
    async with (
        open_sandbox("jail", workspace=str(tmp_path), network="full") as sandbox,
        Session(builtin_tools(), sandbox=sandbox, policy=Policy(mode="contained")) as session,
    ):
        result = await session.call("bash", RUNS)
        written = await session.call("write", {"path": "notes", "content": "x"})
    assert isinstance(result, Failure)
    assert result.kind == "rejected"
    assert "network_isolation" in result.message
    assert "file_isolation" not in result.message
    assert not (tmp_path / "trace").exists()
    assert written.ok, "a file stays inside, with a network or without"


async def test_a_person_is_asked_before_a_command_that_can_reach_a_network_and_may_refuse(tmp_path: Path) -> None:
    person = Person()
    async with (
        open_sandbox("jail", workspace=str(tmp_path), network="full") as sandbox,
        Session(builtin_tools(), sandbox=sandbox, policy=Policy(mode="contained"), approver=person) as session,
    ):
        result = await session.call("bash", RUNS)
    assert isinstance(result, Failure)
    assert result.kind == "user_denied"
    assert [request.tool for request in person.asked] == ["bash"]
    assert "network_isolation" in person.asked[0].reason
    assert not (tmp_path / "trace").exists()


async def test_in_mode_open_it_runs_with_a_network_too(tmp_path: Path) -> None:
    """The control: it was the mode that refused."""
    async with (
        open_sandbox("jail", workspace=str(tmp_path), network="full") as sandbox,
        Session(builtin_tools(), sandbox=sandbox, policy=Policy(mode="open")) as session,
    ):
        result = await session.call("bash", RUNS)
    assert result.ok, result
    assert (tmp_path / "trace").exists()
