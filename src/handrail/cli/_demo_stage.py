"""Play the demo: an agent with a scripted model, its events on the screen, and a check of every result."""

import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
from rich.console import Console
from rich.text import Text

from handrail.agent import Agent
from handrail.cli._console import make_console, report_lines
from handrail.cli._demo_story import Outside, model, scenes, tools, wrong_results
from handrail.cli._event_printer import EventPrinter
from handrail.cli._terminal import TerminalApprover, can_ask
from handrail.contract.errors import WeakerThanAsked
from handrail.contract.event import Event
from handrail.drivers.open import open_sandbox
from handrail.policy.approval import visible
from handrail.policy.approvers import approve_all
from handrail.policy.policy import Policy
from handrail.sandbox.sandbox import Sandbox
from handrail.session.session import Session
from handrail.threads import in_thread
from handrail.toolkit.toolbox import Toolbox

CHILD: Final = r'setsid sh -c "echo \$\$ > pid; while true; do echo beat >> beats; sleep 0.1; done" > /dev/null 2>&1'
COMMAND: Final = f"{CHILD} & echo printed; sleep 99"
"""A child in a session of its own writes ten lines a second, for ever; the command itself sleeps."""
WALLS: Final = frozenset({"file_isolation", "network_isolation"})
PICTURE_WIDTH: Final = 120
"""Columns of a picture."""
WATCH: Final = 0.6
"""Seconds for which the child's file is watched."""


async def run_demo(
    yes: bool, everything: bool, driver: str, allow_weaker: bool, picture: str | None, full: bool
) -> int:
    """Returns 0 when every result is as it must be; 1, naming those that are not, otherwise."""
    console = make_console()
    if picture is not None:
        console.record, console.soft_wrap, console.width = True, False, PICTURE_WIDTH
    asks = can_ask() and not yes
    screen, box = _Screen(console, asks=asks, full=full), Toolbox(tools())
    person = TerminalApprover(console, box, remembers=True, shown=screen.until_asked) if asks else None
    async with _opened(console, driver, allow_weaker) as sandbox, Outside() as outside:
        console.print(Text(f"Handrail demo · sandbox {sandbox.report.driver} · network {sandbox.report.network} · "
                           "model scripted", style="bold"))  # fmt: skip
        for line in report_lines(sandbox.report):
            console.print(Text(f"  {line}", style="dim"))
        played = scenes(outside, everything, walls=sandbox.features >= WALLS)
        # where nothing is confined, every command would be asked about
        policy = Policy() if sandbox.features >= WALLS else Policy(mode="open", ask=["publish"])
        session = Session(box, sandbox=sandbox, policy=policy, approver=approve_all if yes else person)
        async with session:
            agent = Agent(model(played), session=session)
            async for event in agent.stream("Show me what you can do, and what you cannot."):
                screen.show(event)
        console.print()
        survived = await compare_timeouts(console, sandbox)
    wrong = wrong_results(played, screen.results)
    if survived:
        wrong.append("the child that called setsid outlived its timeout in the sandbox")
    console.print(Text("What was enforced:", style="bold cyan"))
    for line in report_lines(sandbox.report):
        console.print(Text(f"  {line}", style="dim"))
    for line in wrong:
        console.print(Text(f"WRONG: {line}", style="bold red"))
    console.print(Text("Nothing is left running." if not wrong else "The demo found a broken promise.", style="bold"))
    if picture is not None:
        console.save_svg(picture, title="handrail demo")
    return 1 if wrong else 0


class _Screen:
    """Prints the events of the demo, and keeps the result of each call."""

    def __init__(self, console: Console, *, asks: bool, full: bool) -> None:
        self._console, self._asks = console, asks
        self._printer = EventPrinter(console.print, full=full)
        self.results: dict[str, Mapping[str, Any]] = {}
        self._asked: set[str] = set()
        self._news = anyio.Event()

    async def until_asked(self, request_id: str) -> None:
        """Return when every event before this request is on the screen."""
        while request_id not in self._asked:
            await self._news.wait()

    def show(self, event: Event) -> None:
        """Print one event; some print nothing."""
        if event.type != "user":  # the prompt is the demo's own
            self._printer.see(event)
        if event.type == "call_ended":
            self.results[event.call_id or ""] = event.data["result"]
        elif event.type == "approval_asked":
            if not self._asks:
                said = f"  ? {event.data['tool']} asks: {event.data['reason']}"
                self._console.print(Text(visible(said, lines=False), style="magenta"))
            self._asked.add(event.data["id"])
            self._news.set()
            self._news = anyio.Event()


@asynccontextmanager
async def _opened(console: Console, driver: str, allow_weaker: bool) -> AsyncIterator[Sandbox]:
    """The sandbox; where no jail can be had, what there is instead, saying so."""
    async with AsyncExitStack() as stack:
        try:
            yield await stack.enter_async_context(open_sandbox(driver, allow_weaker=allow_weaker))
            return
        except WeakerThanAsked as error:
            if driver != "auto":
                raise
            why = str(error.__cause__ or error)
        sandbox = await stack.enter_async_context(open_sandbox(driver, allow_weaker=True))
        instead = "in a weaker one" if "file_isolation" in sandbox.features else "on this machine, without isolation"
        console.print(Text(f"No jail can be had here: {visible(why)}", style="bold red"))
        console.print(Text(f"The demo goes on {instead}.", style="bold red"))
        yield sandbox


async def compare_timeouts(console: Console, sandbox: Sandbox) -> bool:
    """Run the same command by subprocess.run and by Handrail. Whether the child survived in the sandbox."""
    console.print(Text("The same command, a timeout of 1 s, a child that called setsid:", style="bold cyan"))
    alive = await in_thread(_under_subprocess)
    console.print(
        Text(f"  subprocess.run(timeout=1): the child is {'ALIVE (this demo kills it now)' if alive else 'dead'}")
    )
    done = await sandbox.run(COMMAND, timeout=1)
    survived = await _still_beats(sandbox)
    state = "ALIVE" if survived else "dead"
    console.print(
        Text(f"  handrail, timeout=1:       the child is {state}, ended_by {done.ended_by}, exit {done.exit_code}, ")
        + Text(f"output kept: “{done.stdout.strip()}”")
    )
    return survived or done.stdout.strip() != "printed"


def _under_subprocess() -> bool:
    """Whether the child survives its parent's timeout. It is killed here in either case."""
    with tempfile.TemporaryDirectory() as directory:
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(["bash", "-c", COMMAND], cwd=directory, capture_output=True, timeout=1, check=False)
        pid = int(Path(directory, "pid").read_text(encoding="utf-8"))
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


async def _still_beats(sandbox: Sandbox) -> bool:
    """Whether the child's file still grows; an empty file counts as a failure, because it must have grown before."""
    before = (await sandbox.stat("beats")).size
    await anyio.sleep(WATCH)
    after = (await sandbox.stat("beats")).size
    return before == 0 or after > before
