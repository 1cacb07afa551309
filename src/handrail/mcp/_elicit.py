"""Approval by elicitation: what the client shows to its person, and which decision its answer is."""

from time import time
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from handrail.contract.approval import ApprovalRequest, Decision
from handrail.policy.described import described
from handrail.sandbox.sandbox import Sandbox

_APPROVE: Final = "approve"
_REMEMBER: Final = "approve and remember"
_DENY: Final = "deny"


def can_ask(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client says that it can show a form to a person."""
    capabilities = context.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


async def form(request: ApprovalRequest, sandbox: Sandbox | None) -> types.ElicitRequestFormParams:
    """The question, and its possible answers. The text is Handrail's own, never the model's."""
    about = await described(request, sandbox)
    parts = [f"May this tool be called? {request.reason}", about.text]
    if about.notes:
        parts.append("Changed before the call: " + "; ".join(about.notes))
    choices = [_APPROVE, _DENY]
    if request.suggested_rule:
        choices.insert(1, _REMEMBER)
        parts.append(f'"{_REMEMBER}" also allows, for the rest of this session: {request.suggested_rule}')
    properties = {
        "decision": {"type": "string", "title": "Decision", "enum": choices},
        "reason": {"type": "string", "title": "Why not", "description": "Told to the model if you deny the call."},
    }
    schema = {"type": "object", "properties": properties, "required": ["decision"]}
    return types.ElicitRequestFormParams(message="\n\n".join(parts), requested_schema=schema)


def decision(answer: types.ElicitResult) -> Decision:
    """The person's decision. Everything that is not a clear yes is a no."""
    content = answer.content or {}
    chosen = content.get("decision")
    if answer.action == "accept" and chosen == _APPROVE:
        return Decision.approve()
    if answer.action == "accept" and chosen == _REMEMBER:
        return Decision.remember()
    if answer.action == "cancel":
        return Decision.skip()
    reason = content.get("reason")
    return Decision.deny(reason if isinstance(reason, str) else "")


async def ask_now(
    context: ServerRequestContext[Any, Any], request: ApprovalRequest, sandbox: Sandbox | None
) -> Decision | None:
    """Ask over the open request, as the protocol did until 2025-11-25. None if nobody answered in time."""
    asked = await form(request, sandbox)
    with anyio.move_on_after(max(0.0, request.expires_at - time())):
        try:
            answer = await context.session.elicit_form(
                asked.message, asked.requested_schema, related_request_id=context.request_id
            )
        except (MCPError, ValidationError):
            return Decision.deny("The client could not ask its person.")
        return decision(answer)
    return None
