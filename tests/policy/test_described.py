"""A person is asked the same at every place: the call as lines with their kinds, and a change as a difference."""

from typing import Any

import pytest

from handrail import ApprovalRequest, Decision, Policy, Session, builtin_tools, open_sandbox
from handrail.policy.described import Described, described

pytestmark = pytest.mark.anyio


async def asked_about(name: str, arguments: dict[str, Any], content: str | None = None) -> Described:
    """The description of the request for this call, where a file f may have a content."""
    found: list[Described] = []
    async with open_sandbox() as sandbox:
        if content is not None:
            await sandbox.write_text("f", content)

        async def look(request: ApprovalRequest) -> Decision:
            found.append(await described(request, sandbox))
            return Decision.deny()

        async with Session(builtin_tools(), sandbox=sandbox, policy=Policy(mode="ask"), approver=look) as session:
            await session.call("read", {"path": "f"})
            await session.call(name, arguments)
    return found[-1]


async def test_a_write_is_the_difference_to_what_is_there() -> None:
    about = await asked_about("write", {"path": "f", "content": "one\nthree\n"}, "one\ntwo\n")
    assert about.head == "May write run?"
    assert about.lines[:2] == (("text", "write"), ("text", "  path: f"))
    assert [line for line in about.lines if line[0] in ("added", "removed")] == [
        ("removed", "-two"),
        ("added", "+three"),
    ]


async def test_an_edit_is_a_difference_of_its_texts() -> None:
    about = await asked_about("edit", {"path": "f", "old": "two", "new": "three"}, "one\ntwo\n")
    assert about.lines[-2:] == (("removed", "-two"), ("added", "+three"))


async def test_a_command_is_code_and_its_repairs_are_notes() -> None:
    about = await asked_about("bash", {"command": "echo hi", "timeout": "5"})
    assert {kind for kind, _ in about.lines} == {"bash"}
    assert "echo hi" in about.text
    assert any("timeout" in note for note in about.notes)
