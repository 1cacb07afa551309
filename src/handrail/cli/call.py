"""`handrail call`: use one tool by hand, with live output, approval in the terminal, and Ctrl-C for the whole tree."""

import json
import signal
import sys
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

import anyio
import typer
from anyio.abc import TaskGroup, TaskStatus
from rich.console import Console

from handrail.cli._app import INTERRUPTED, AllowWeaker, Driver, Yes, app, or_exit, run
from handrail.cli._inside import Env, Mounts, inside
from handrail.cli._terminal import TerminalHost, approver
from handrail.contract.event import Event
from handrail.contract.result import Result
from handrail.drivers.open import open_sandbox
from handrail.policy.approval import visible
from handrail.policy.policy import Policy
from handrail.session.session import Session
from handrail.tools.builtin import builtin_tools

CALL_ID: Final = "call"
MODES: Final = (
    "What needs your approval: contained, whatever leaves the sandbox; ask, also writes and commands; strict, "
    "everything that is not safe; open, nothing."
)


@app.command()
def call(
    tool: Annotated[str, typer.Argument(help="The tool's name; `handrail tools` lists them.")],
    arguments: Annotated[str, typer.Argument(help="Its arguments as JSON; - reads them from standard input.")] = "{}",
    workspace: Annotated[str, typer.Option(help="The directory the tool may work in.")] = ".",
    driver: Driver = "auto",
    allow_weaker: AllowWeaker = False,
    network: Annotated[str, typer.Option(help="none or full.")] = "none",
    mode: Annotated[str, typer.Option(help=MODES)] = "contained",
    yes: Yes = False,
    mount: Mounts = None,
    env: Env = None,
) -> None:
    """Use one tool by hand, in a jail on the current directory.

    The result envelope goes to standard output, live output to standard error. Ctrl-C stops the running command and
    everything it started; a second Ctrl-C stops without waiting.

        handrail call bash '{"command": "pytest -q", "timeout": 60}'
        handrail call read '{"path": "README.md", "limit": 20}'
    """
    text = sys.stdin.read() if arguments == "-" else arguments
    more = or_exit(lambda: inside(mount, env))
    options = CallOptions(workspace, driver, allow_weaker, network, mode, yes, more)
    run(partial(call_tool, tool, text, options))


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What the person typed."""

    workspace: str
    driver: str
    allow_weaker: bool
    network: str
    mode: Any
    yes: bool
    inside: dict[str, Any]


async def call_tool(tool: str, arguments: str, options: CallOptions) -> int:
    """Print the result's envelope. Returns 0 for a success, 1 for a failure, 130 for a call that was abandoned."""
    policy = Policy(mode=options.mode)
    async with open_sandbox(
        options.driver,
        workspace=options.workspace,
        network=options.network,
        allow_weaker=options.allow_weaker,
        **options.inside,
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


def show_output(event: Event) -> None:
    """Print live output to standard error; characters that could move the cursor are escaped."""
    if event.type == "call_output":
        if event.data.get("left_out"):
            sys.stderr.write(f"\n[… {event.data['left_out']:,} bytes not shown]\n")
        sys.stderr.write(visible(str(event.data["text"]).replace("\r\n", "\n")))
        sys.stderr.flush()


async def _call(session: Session, tool: str, arguments: str) -> Result | None:
    """The result; None when a second Ctrl-C abandoned the call."""
    result: Result | None = None
    async with anyio.create_task_group() as group:
        await group.start(_interrupts, session, group)
        result = await session.call(tool, arguments, origin="user", id=CALL_ID)
        group.cancel_scope.cancel()
    return result


async def _interrupts(session: Session, group: TaskGroup, *, task_status: TaskStatus[None]) -> None:
    """The first Ctrl-C stops the running call; the second abandons it, and closing the session stops the rest."""
    with anyio.open_signal_receiver(signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            group.start_soon(session.terminate, CALL_ID)
            break
        async for _ in signals:
            group.cancel_scope.cancel()
