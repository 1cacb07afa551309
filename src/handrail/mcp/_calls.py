"""One `tools/call`: it goes through the client's session, shows its output, asks the client's person, and answers.

A call that waits for a person is parked and never run again. A client of 2026-07-28 is told to come back; when it
does, the request's state names the parked call and the question, and the client waits for the same call.
"""

import json
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, fields
from typing import Any, Final

import anyio
import mcp_types as types
from anyio.abc import TaskStatus
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from handrail.contract.approval import ApprovalRequest
from handrail.contract.call import Arguments
from handrail.contract.errors import HandrailError, ToolFailed
from handrail.contract.limits import MCP_PROGRESS_WAIT
from handrail.contract.result import Failure, Result
from handrail.contract.wire import sendable
from handrail.mcp._clients import Caller, Clients, Parked
from handrail.mcp._content import HANDLE, HANDLE_TOOLS, call_result
from handrail.mcp._elicit import ask_now, can_ask, decision, form

SETTLE_WAIT: Final = 0.02
"""Seconds between two checks of an expired question, until its call has ended."""
Context = ServerRequestContext[Clients, Any]
Answer = types.CallToolResult | types.InputRequiredResult


@dataclass(kw_only=True)
class CallContext(ServerRequestContext[Clients, Any]):
    """The context of a `tools/call`, with the arguments as the client wrote them."""

    arguments: Any


async def keep_arguments(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Let arguments that are not an object reach preflight too; the SDK would refuse them before any handler."""
    if ctx.method != "tools/call" or ctx.params is None:
        return await call_next(ctx)
    arguments = ctx.params.get("arguments", {})
    known = {field.name: getattr(ctx, field.name) for field in fields(ctx)}
    if not isinstance(arguments, Mapping):
        known["params"] = {**ctx.params, "arguments": {}}
    return await call_next(CallContext(**known, arguments=arguments))


async def call_tool(context: Context, params: types.CallToolRequestParams) -> Answer:
    """Run a call, or go on with one that was parked. Every failure is an answer that a model can read."""
    try:
        client = context.lifespan_context.of(context)
        if params.request_state is not None:
            key, parked = _parked(client, params.request_state)
            _take_answer(parked, params)
        else:
            key, parked = "", await _begin(context, client, params)
        return await _follow(context, client, parked, key)
    except ToolFailed as error:
        return call_result(params.name, error.failure)
    except HandrailError as error:
        return call_result(
            params.name, Failure("unavailable", f"The tool could not be called: {str(error).rstrip('.')}.")
        )


async def _begin(context: Context, client: Caller, params: types.CallToolRequestParams) -> Parked:
    arguments = context.arguments if isinstance(context, CallContext) else params.arguments or {}
    handle = ""
    if context.lifespan_context.handles and params.name not in HANDLE_TOOLS:
        handle, arguments = _without_handle(arguments)
    served = client.served(handle)
    with served.in_use():
        session = await served.session()
        if served.has_rested():
            session.begin_run()
        await session.toolbox.look_up(params.name)
        start = session.event_count
        pending = session.begin(params.name, _as_given(arguments), origin="mcp", asks=can_ask(context))
    return Parked(pending, session, served, params.name, start)


def _as_given(arguments: Any) -> Arguments:
    """The arguments for the session: an object, or the text that the model wrote instead of one."""
    return arguments if isinstance(arguments, Mapping | str) else json.dumps(arguments)


def _without_handle(arguments: Any) -> tuple[str, Any]:
    """The sandbox that the arguments name, and the arguments without it."""
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except (ValueError, RecursionError):
            return "", arguments  # preflight says what is wrong with it
        arguments = parsed if isinstance(parsed, Mapping) and HANDLE in parsed else arguments
    if not isinstance(arguments, Mapping) or HANDLE not in arguments:
        return "", arguments
    named = arguments[HANDLE]
    rest = {name: value for name, value in arguments.items() if name != HANDLE}
    return (named if isinstance(named, str) else "" if named is None else json.dumps(named)), rest


def _parked(client: Caller, state: str) -> tuple[str, Parked]:
    """The call that a state names. Only this server writes states: one that a client invented was refused earlier."""
    key = json.loads(state)["call"]
    if key not in client.parked:
        message = "The call that waited for an approval is no longer known; it ran only if it was approved before."
        raise ToolFailed(Failure("unknown_outcome", f"{message} Check whether it had its effect before you repeat it."))
    return key, client.parked[key]


def _take_answer(parked: Parked, params: types.CallToolRequestParams) -> None:
    """Pass the person's answer on. Only the first one counts."""
    asked = json.loads(params.request_state or "{}")["request"]
    answer = (params.input_responses or {}).get(asked)
    if isinstance(answer, types.ElicitResult):
        parked.pending.answer(asked, decision(answer))


async def _follow(context: Context, client: Caller, parked: Parked, key: str) -> Answer:
    """Show the call's output until it ends or asks. Cancelling the last request that waits cancels the call."""
    answer: Answer | None = None
    parked.waiting += 1
    try:
        with parked.served.in_use():
            async with anyio.create_task_group() as group:
                shown = await group.start(_show_output, context, parked)
                answer = await _answer(context, client, parked, key)
                if isinstance(answer, types.CallToolResult):
                    with anyio.move_on_after(MCP_PROGRESS_WAIT):
                        await shown.wait()
                group.cancel_scope.cancel()
    except BaseException:
        if parked.waiting == 1:
            parked.pending.cancel()
        raise
    finally:
        parked.waiting -= 1
    assert answer is not None
    return answer


async def _answer(context: Context, client: Caller, parked: Parked, key: str) -> Answer:
    sandbox = parked.session.sandbox
    while True:
        came: ApprovalRequest | Result = await parked.pending.next()
        if not isinstance(came, ApprovalRequest):
            return call_result(parked.tool, came)
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            key = key or client.park(parked)
            asked: types.InputRequests = {came.id: types.ElicitRequest(params=await form(came, sandbox))}
            state = json.dumps({"call": key, "request": came.id})
            return types.InputRequiredResult(input_requests=asked, request_state=state)
        decided = await ask_now(context, came, sandbox)
        if decided is None or not parked.pending.answer(came.id, decided):
            await anyio.sleep(SETTLE_WAIT)


async def _show_output(context: Context, parked: Parked, *, task_status: TaskStatus[anyio.Event]) -> None:
    """Report the output of the call, and of the calls that it makes, as progress, until the call has ended."""
    shown = anyio.Event()
    task_status.started(shown)
    id = parked.pending.id
    async with aclosing(parked.session.events(parked.next_event)) as events:  # type: ignore[type-var]
        async for event in events:
            parked.next_event = event.seq + 1
            text = event.data.get("text") if event.type == "call_output" and id in (event.call_id, event.parent) else ""
            if text:
                text = sendable(text)
                parked.progress += len(text.encode("utf-8", "replace"))
                await context.session.report_progress(parked.progress, message=text)
            if event.type == "call_ended" and event.call_id == id:
                break
    shown.set()
