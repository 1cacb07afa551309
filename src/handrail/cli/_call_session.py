"""A sandbox and a session as the person's options say, and calls in it that Ctrl-C ends."""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus
from rich.console import Console
from rich.text import Text

from handrail.cli._app import INTERRUPTED, NOT_RUN, Options, typed
from handrail.cli._argument_syntax import Arguments
from handrail.cli._console import as_json, make_console
from handrail.cli._event_printer import EventPrinter
from handrail.cli._live_output import LiveOutput
from handrail.cli._lost_files import lost_files
from handrail.cli._open_session import Following, open_session
from handrail.cli._settings import read_settings
from handrail.cli._signals import interrupts
from handrail.cli._terminal import TerminalApprover, TerminalHost, can_ask
from handrail.contract.event import Event
from handrail.contract.result import REFUSALS, Failure, Result
from handrail.policy.approval import visible
from handrail.policy.approvers import approve_all
from handrail.sandbox.completed import EXIT_TIMED_OUT
from handrail.sandbox.sandbox import Sandbox
from handrail.session.session import Session
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import Toolbox

FAILED: Final = 1
"""Exit code of a call that failed and ran no command."""


@asynccontextmanager
async def open_call_session(options: Options, tools: Toolbox, *, lasting: bool) -> AsyncIterator["CallSession"]:
    """Open a session for calls by hand. A `lasting` one serves many calls: it remembers rules, and jobs go on."""
    console, to_person = make_console(stderr=True), sys.stdout.isatty() and not options.json
    settings = read_settings(options.workspace)
    options = settings.applied(options, typed.get())
    live, asks = LiveOutput(to_person=to_person), can_ask() and not options.yes
    printer = EventPrinter(console.print, full=options.full, by_hand=make_console().print)

    async def show(event: Event) -> None:
        await live.see(event)
        if to_person and event.type in ("call_started", "job_started", "call_ended"):
            printer.see(event)

    async def until_shown(request_id: str) -> None:
        await following.until_shown(request_id)
        live.start_line()

    person = TerminalApprover(console, tools, remembers=lasting, shown=until_shown) if asks else None
    approver = approve_all if options.yes else person
    host = TerminalHost(console) if asks else None
    async with open_session(options, settings, tools, approver, show, host=host) as following:
        if person is not None:
            person.sandbox = following.sandbox
        for note in settings.notes:
            console.print(Text(f"handrail: {visible(note)}", style="yellow"))
        yield CallSession(following, live, console, to_person, lasting, options.verbose, person)


@dataclass(slots=True)
class CallSession:
    """One session at a terminal, or without one."""

    following: Following
    live: LiveOutput
    console: Console
    to_person: bool
    """Whether results are shown as text; otherwise envelopes are printed."""
    lasting: bool
    verbose: bool
    """Whether what holds in every such sandbox is printed too."""
    person: TerminalApprover | None
    _noted: set[str] = field(default_factory=set)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    @property
    def session(self) -> Session:
        return self.following.session

    @property
    def sandbox(self) -> Sandbox:
        return self.following.sandbox

    def show_notes(self) -> None:
        """Print what is weaker in this sandbox than one would expect, each note once; all that is known, if asked."""
        report = self.sandbox.report
        for note in (*(report.facts if self.verbose else ()), *report.notes):
            if note not in self._noted:
                self._noted.add(note)
                self.console.print(Text(f"note: {visible(note)}", style="dim"))

    async def call(self, name: str, arguments: Arguments) -> int:
        """Make a call and show it. Returns the code to exit with."""
        self.show_notes()
        id = f"line_{next(self._numbers)}"
        self.live.watch(id)
        tool = self.session.toolbox.find(name)
        result = await self._run(name, arguments, id)
        if result is None:
            self.live.start_line()
            self.say("Interrupted: the call was given up, and what it ran is stopped.")
            return exit_code(tool, None)
        await self.following.until_shown(id)
        if not self.to_person:
            envelope = result.to_envelope(name)
            print(as_json(envelope, indent=None if self.lasting else 2), flush=True)
        self._advise(result)
        if not self.lasting and (lost := await lost_files(self.sandbox)):
            self.say(lost)
        self.show_notes()
        return exit_code(tool, result)

    def say(self, text: str) -> None:
        """One remark of the command line itself."""
        self.console.print(Text(f"handrail: {visible(text)}", style="yellow"))

    def running_jobs(self) -> list[str]:
        """The ids of the background jobs that still run."""
        return [job.id for job in self.sandbox.jobs() if job.running]

    def _advise(self, result: Result) -> None:
        if isinstance(result, Failure) and "needs_approval" in result.data:
            self.say(
                "nobody can be asked here, because standard input and standard error are not a terminal. Add --yes to "
                "approve the call, or --mode open to run it without asking."
            )
        elif not self.lasting and (jobs := self.running_jobs()):
            self.say(f"{', '.join(jobs)} ends now, with this command; `handrail shell` keeps jobs until you leave it.")

    async def _run(self, name: str, arguments: Arguments, id: str) -> Result | None:
        """The result; None when a second Ctrl-C abandoned the call."""
        result: Result | None = None
        async with anyio.create_task_group() as group:
            await group.start(self._interrupts, id, group)
            result = await self.session.call(name, arguments, origin="user", id=id)
            group.cancel_scope.cancel()
        return result

    async def _interrupts(self, id: str, group: TaskGroup, *, task_status: TaskStatus[None]) -> None:
        """The first Ctrl-C stops the running call; the second abandons it."""
        stopped = False
        with anyio.open_signal_receiver(*interrupts()) as signals:
            task_status.started()
            async for _ in signals:
                if self.person is not None and self.person.editing:
                    continue
                if stopped:
                    group.cancel_scope.cancel()
                stopped = True
                group.start_soon(self.session.terminate, id)


def exit_code(tool: Tool, result: Result | None) -> int:
    """The code to exit with: the command's own, 124, 130, 125 for a call that did not run, 1 for other failures."""
    if result is None:
        return INTERRUPTED
    runs = "executes" in tool.effects
    if result.ok:
        value = result.value if runs and isinstance(result.value, Mapping) else {}
        code = _exit_code_of(value)
        if code is None:  # it runs no command, or one that goes on in the background
            return FAILED if value.get("error") else 0
        return code if isinstance(code, int) and 0 <= code < 256 else FAILED
    if result.kind == "timeout":
        return EXIT_TIMED_OUT
    if result.kind == "cancelled":
        return INTERRUPTED
    code = result.data.get("exit_code")
    if runs and isinstance(code, int):
        return code
    return NOT_RUN if runs or result.kind in REFUSALS or result.kind == "unavailable" else FAILED


def _exit_code_of(value: Mapping[str, Any]) -> Any:
    """The command's exit code in a result; None if the result reports a kill."""
    return None if "killed" in value else value.get("exit_code")
