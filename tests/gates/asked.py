"""A tool that is asked about, approvers that answer as told, and what the transcript keeps of it."""

from collections.abc import Callable
from typing import Any

import anyio

from handrail import ApprovalRequest, Policy, Session, tool
from tests.journeys.evidence import events_of

ASK = Policy(mode="ask")
ran: list[dict[str, Any]] = []


@tool(effects=["writes"])
async def save(path: str, content: str = "", mode: int = 0) -> str:
    """Write it down."""
    ran.append({"path": path, "content": content, "mode": mode})
    return f"saved {path}"


def saying(*decisions: Any) -> Any:
    """An approver that gives these answers in turn; `asked` keeps the requests."""
    left = list(decisions)

    async def approver(request: ApprovalRequest) -> Any:
        approver.asked.append(request)
        answer = left.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    approver.asked = []
    return approver


def settled(session: Session) -> list[str]:
    """How each request ended; none is left open."""
    asked = [event.data["id"] for event in events_of(session, "approval_asked")]
    closed = events_of(session, "approval_settled")
    assert sorted(asked) == sorted(event.data["id"] for event in closed)
    return [event.data["decision"] for event in closed]


async def until(true: Callable[[], bool]) -> None:
    """Wait, a bounded time."""
    with anyio.fail_after(90):
        while not true():  # noqa: ASYNC110 - what is waited for has no event
            await anyio.sleep(0.002)
