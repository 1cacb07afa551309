"""Do one task: the prompt, what is piped in, one run of an agent, its answer, and the code to exit with."""

import json
import os
import signal
import sys
from typing import Any, Final, TextIO

import anyio
from rich.text import Text

from handrail.agent import Outcome
from handrail.aio import in_background
from handrail.cli._app import INTERRUPTED, Options, typed
from handrail.cli._chat_session import ChatOptions, ChatSession, first_line, open_chat_session
from handrail.cli._console import as_json, make_console
from handrail.cli._event_printer import EventPrinter, tokens
from handrail.cli._lost_files import lost_files
from handrail.cli._session_store import to_resume, writable_store
from handrail.cli._settings import read_settings
from handrail.cli._signals import interrupts
from handrail.cli._terminal import TerminalApprover, can_ask
from handrail.cli._which_model import model_name, open_named
from handrail.contract.errors import HandrailError
from handrail.contract.event import Event
from handrail.policy.approval import visible
from handrail.policy.approvers import approve_all
from handrail.threads import Work
from handrail.toolkit.toolbox import Toolbox
from handrail.tools.plugins import every_tool

CODES: Final = {"done": 0, "asked_user": 3, "round_limit": 4, "budget": 4, "cancelled": INTERRUPTED}
"""Exit codes by the reason for which a run ended; any other reason is a 1."""
READ_AT_ONCE: Final = 1 << 16


async def run_task(
    prompt: str | None,
    named: str | None,
    resume: str | None,
    rounds: int,
    calls: int,
    options: Options,
    given: TextIO | None,
) -> int:
    """Returns the code to exit with."""
    text = await whole_prompt(prompt, given)
    id = to_resume(resume, options.workspace)
    store, why_not = writable_store()
    settings = read_settings(options.workspace)
    options = settings.applied(options, typed.get())
    wanted = ChatOptions(model_name(named, settings.model), store, id, rounds, calls, settings)
    task = _Task(options)
    for note in settings.notes:
        task.say(note)
    if store is None:
        task.say(f"this session is not kept: {why_not}")
    model = open_named(wanted.model, settings.base_url if wanted.model == settings.model else None)
    async with open_chat_session(
        options, wanted, model, task.tools, task.approver, task.show, task.say
    ) as chat_session:
        task.begin(chat_session)
        ready = anyio.Event()
        watching = in_background(_end_on_signals(chat_session, task, ready))
        await ready.wait()
        try:
            outcome = await chat_session.turn(text)
        finally:
            watching.cancel()
        if lost := await lost_files(chat_session.sandbox):
            task.say(lost)
        if chat_session.broken is not None:
            raise chat_session.broken
        task.finish(outcome, stored=store is not None)
    return CODES.get(outcome.reason, 1)


async def whole_prompt(prompt: str | None, given: TextIO | None) -> str:
    """The prompt and what is piped in. Raises HandrailError if there is neither."""
    piped = ""
    if given is not None and not given.isatty():
        piped = await Work(lambda: _read_all(given.fileno())).wait()
    parts = [part for part in ((prompt or "").strip(), piped.strip()) if part]
    if not parts:
        raise HandrailError("there is no task: write it after `handrail run`, in quotes, or pipe it in")
    return "\n\n".join(parts)


def _read_all(descriptor: int) -> str:
    """It reads the descriptor: a thread blocked in `sys.stdin` holds a lock that the interpreter needs to exit."""
    return b"".join(iter(lambda: os.read(descriptor, READ_AT_ONCE), b"")).decode("utf-8", "replace")


async def _end_on_signals(chat_session: ChatSession, task: "_Task", ready: anyio.Event) -> None:
    with anyio.open_signal_receiver(*interrupts(), signal.SIGTERM) as signals:
        ready.set()
        async for _ in signals:
            if task.person is None or not task.person.editing:
                chat_session.end_turn()


class _Task:
    """One task at the terminal: its output, and the person whom it asks."""

    def __init__(self, options: Options) -> None:
        self._console = make_console(stderr=True)
        self.tools = Toolbox(every_tool(self.say))
        self._json, self._options = options.json, options
        self._to_person = sys.stdout.isatty() and not options.json
        answers = make_console().print if self._to_person else lambda _: None
        self._printer = EventPrinter(self._console.print, answers, full=options.full)
        self._session: ChatSession | None = None
        asks = can_ask() and not options.yes
        self.person = (
            TerminalApprover(self._console, self.tools, remembers=True, shown=self._until_shown) if asks else None
        )
        self.approver: Any = approve_all if options.yes else self.person

    def begin(self, chat_session: ChatSession) -> None:
        self._session = chat_session
        if self.person is not None:
            self.person.sandbox = chat_session.sandbox
        self._console.print(Text(first_line(chat_session), style="dim"))

    def show(self, event: Event) -> None:
        """One event: as JSON for a program, and as lines for a person."""
        if self._json:
            print(event_line(event), flush=True)
        elif event.type != "user":
            self._printer.see(event)
        if event.type == "call_ended" and "needs_approval" in ((event.data.get("result") or {}).get("data") or {}):
            self.say("nobody can be asked here; add --yes to approve every request, or --mode open to ask for none")

    def finish(self, outcome: Outcome, *, stored: bool) -> None:
        """The answer, what it took, and how to go on."""
        if not self._json and not self._to_person and outcome.text and outcome.reason != "model_error":
            print(visible(outcome.text), flush=True)
        self._console.print(Text(tokens(outcome.usage), style="dim"))
        if (
            stored
            and self._session is not None
            and outcome.reason in ("asked_user", "round_limit", "budget", "cancelled")
        ):
            self.say(f"to go on: handrail run --resume {self._session.agent.session.id} '…'")

    def say(self, text: str) -> None:
        self._console.print(Text(f"handrail: {visible(text, lines=False)}", style="yellow"))

    async def _until_shown(self, request_id: str) -> None:
        if self._session is not None:
            await self._session.until_shown(request_id)


def event_line(event: Event) -> str:
    """An event as one line of JSON."""
    values = {"seq": event.seq, "time": event.time, "type": event.type, "call_id": event.call_id}
    whole = {**values, "parent": event.parent, "data": event.data}
    return as_json(json.loads(json.dumps(whole, default=str)))
