"""Use one tool by hand: live output while it runs, approval in the terminal, Ctrl-C that ends the whole tree."""

import json
import signal
import sys
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus
from rich.console import Console

from handrail.cli.terminal import TerminalApprover, TerminalHost
from handrail.contract.approval import Approver
from handrail.contract.event import Event
from handrail.contract.result import Result
from handrail.policy.approval import visible
from handrail.policy.policy import Policy
from handrail.session.open import open_sandbox
from handrail.session.session import Session
from handrail.testing.approvers import approve_all
from handrail.tools.builtin import builtin_tools

CALL = "call"
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What the person typed."""

    workspace: str
    driver: str
    allow_weaker: bool
    network: str
    mode: Any
    yes: bool


async def call_tool(tool: str, arguments: str, options: CallOptions) -> int:
    """Print the result's envelope. 0 for a success, 1 for a failure, 130 for a call that was given up."""
    policy = Policy(mode=options.mode)
    async with open_sandbox(
        options.driver, workspace=options.workspace, network=options.network, allow_weaker=options.allow_weaker
    ) as sandbox:
        session = Session(
            builtin_tools("all"),
            sandbox=sandbox,
            policy=policy,
            approver=approver(options.yes),
            readers=[show_output],
            host=TerminalHost(Console(stderr=True)) if sys.stdin.isatty() and not options.yes else None,
        )
        async with session:
            result = await _call(session, tool, arguments)
    if result is None:
        return INTERRUPTED
    print(json.dumps(result.to_envelope(tool), indent=2, ensure_ascii=False), flush=True)
    return 0 if result.ok else 1


def approver(yes: bool) -> Approver | None:
    """The person at the terminal, somebody who always agrees, or nobody."""
    if yes:
        return approve_all
    return TerminalApprover(Console(stderr=True)) if sys.stdin.isatty() else None


def show_output(event: Event) -> None:
    """What a tool prints while it runs, with anything that could move the cursor made visible."""
    if event.type == "call_output":
        if event.data.get("left_out"):
            sys.stderr.write(f"\n[… {event.data['left_out']:,} bytes not shown]\n")
        sys.stderr.write(visible(str(event.data["text"]).replace("\r\n", "\n")))
        sys.stderr.flush()


async def _call(session: Session, tool: str, arguments: str) -> Result | None:
    """None when the person would not wait for the end."""
    result: Result | None = None
    async with anyio.create_task_group() as group:
        await group.start(_interrupts, session, group)
        result = await session.call(tool, arguments, origin="user", id=CALL)
        group.cancel_scope.cancel()
    return result


async def _interrupts(session: Session, group: TaskGroup, *, task_status: TaskStatus[None]) -> None:
    """The first Ctrl-C ends the running call; the second waits for nothing, and everything that was started ends."""
    with anyio.open_signal_receiver(signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            group.start_soon(session.terminate, CALL)
            break
        async for _ in signals:
            group.cancel_scope.cancel()
