"""One call of a framework's model: run by the session under an id of its own, its live output shown as it comes."""

import json
from typing import Any, Final, Literal

from handrail.adapters._live_output import Show, shown
from handrail.contract.approval import ApprovalRequest, Decision
from handrail.contract.call import Arguments, Call
from handrail.contract.limits import DEFAULT_BUDGET, Budget
from handrail.contract.result import IMAGE_TYPES, Image, Result, images_in
from handrail.contract.wire import sendable
from handrail.misuse import expect, refuse
from handrail.session.session import Session, core_of

Approval = Literal["ours", "framework"]
NO_RUNS: Final = Budget(calls=None, refusals=None)


def checked(session: Session, approval: Approval = "ours") -> Session:
    """The session itself. Raises HandrailError for anything that is not an open session.

    Where the framework asks, its approvals come later: a call that needs one ends, and comes again when it has it.
    """
    expect("session", session, Session, "an open session: async with Session(…) as session")
    if approval not in ("ours", "framework"):
        refuse("approval", approval, '"ours", where the session asks, or "framework"')
    if approval == "framework":
        if core_of(session).shared.approver not in (None, _defer):
            refuse("approval", approval, '"ours": this session has an approver; or make it without one')
        core_of(session).shared.approver = _defer
    return session


async def _defer(request: ApprovalRequest) -> Decision:
    return Decision.defer()


def deferred(result: Result, name: str) -> dict[str, Any] | None:
    """The approval that this call of the tool waits for; None if the call waits for none."""
    approval = result.data.get("approval") if result.kind == "rejected" else None
    return approval if isinstance(approval, dict) and approval.get("tool") == name else None


def without_runs(session: Session) -> Session:
    """The session for a framework that does not say when a run begins, so nobody calls `begin_run`.

    The default budget, which is that of one run, would refuse every call after the 500th. One that was chosen stays.
    """
    if core_of(session).shared.budget is DEFAULT_BUDGET:
        core_of(session).shared.budget = NO_RUNS
    return session


def with_runs(session: Session) -> Session:
    """The session for a framework that says when a run begins: the default budget, unless one was chosen."""
    if core_of(session).shared.budget is NO_RUNS:
        core_of(session).shared.budget = DEFAULT_BUDGET
    return session


def text_of(result: Result, name: str) -> str:
    """The envelope, as the model reads it."""
    return sendable(json.dumps(result.to_envelope(name), ensure_ascii=False, separators=(",", ":")))


def pictures_of(result: Result) -> list[Image]:
    """The pictures in an answer that a model can be shown; the envelope names all of them."""
    return [image for _, image in images_in(result.value) if image.media_type in IMAGE_TYPES]


async def run(
    session: Session,
    name: str,
    arguments: Arguments,
    id: str | None,
    show: Show | None = None,
    approved: str | None = None,
) -> Result:
    """Run one call. A cancellation of the caller ends it."""
    [call] = core_of(session).ids.for_answer([Call(id or "", name, arguments)])
    if show is None:
        return await session.call(name, arguments, id=call.id, approved=approved)
    async with shown(session, call.id, show):
        return await session.call(name, arguments, id=call.id, approved=approved)
