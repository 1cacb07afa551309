"""A conversation in a terminal: what a typed line does, and who runs the turns."""

import re
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio
import anyio.from_thread
from rich.text import Text

from handrail.agent import Agent
from handrail.aio import in_background
from handrail.cli._app import Options, typed
from handrail.cli._chat_screen import ChatTerminal, LineTerminal, PromptTerminal, is_plain
from handrail.cli._chat_session import ChatOptions, ChatSession, first_line, open_chat_session
from handrail.cli._result_view import job_line
from handrail.cli._server_questions import ServerQuestions
from handrail.cli._session_store import find_session, open_store, to_resume, writable_store
from handrail.cli._sessions import list_line
from handrail.cli._settings import read_settings
from handrail.cli._terminal import TerminalApprover
from handrail.cli._which_model import model_name, open_named
from handrail.contract.errors import HandrailError, ToolFailed
from handrail.policy.approval import visible
from handrail.policy.approvers import approve_all
from handrail.policy.policy import Policy
from handrail.session.session import core_of
from handrail.toolkit.toolbox import Toolbox
from handrail.tools.plugins import every_tool

COMMANDS: Final = {
    "/help": "what can be typed",
    "/jobs": "the background jobs; /jobs stop JOB ends one",
    "/tools": "the tools that the model has",
    "/show": "all that a call gave: /show NUMBER",
    "/sessions": "the stored conversations",
    "/resume": "go on with another conversation: /resume ID",
    "/report": "what the sandbox enforces here",
    "/model": "the model; /model PROVIDER:NAME takes another",
    "/mode": "what needs your approval; /mode contained, ask, strict or open",
    "/exit": "leave, as Ctrl-D does",
}
OTHERS: Final = {
    "!COMMAND": "run a command in the sandbox; the model does not see it",
    "@FILE": "add a file of the workspace to the message",
    "Alt-Enter": "begin a new line; what you paste keeps its lines",
    "Ctrl-C": "end the running call; twice: the turn; three times: the program",
}
MAX_FILE_CHARS: Final = 64 * 1024
MAX_SESSIONS_COUNT: Final = 20
_MENTION: Final = re.compile(r"(?<!\S)@([^\s@]+)")


async def run_chat(named: str | None, resume: str | None, options: Options) -> int:
    """Serve one conversation after the other, until the person leaves."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise HandrailError("chat needs a terminal; for one task without one, type: handrail run 'the task'")
    terminal: ChatTerminal = (
        LineTerminal(full=options.full)
        if is_plain()
        else PromptTerminal(COMMANDS, options.workspace, full=options.full)
    )
    terminal.printer.envelopes = options.json
    settings = read_settings(options.workspace)
    options = settings.applied(options, typed.get())
    id = to_resume(resume, options.workspace)
    wanted = ChatOptions(model_name(named, settings.model), None, id, settings=settings)
    for note in settings.notes:
        terminal.note(note, "yellow")
    while True:
        store, why_not = writable_store()
        if store is None:
            terminal.note(f"this conversation is not kept: {why_not}")
        following = await _converse(terminal, replace(wanted, store=store), options)
        if following is None:
            return 0
        wanted = following


async def _converse(terminal: ChatTerminal, wanted: ChatOptions, options: Options) -> ChatOptions | None:
    """One conversation. Returns the next one, if the person asked for another."""
    tools = Toolbox(every_tool(terminal.note))
    person = TerminalApprover(terminal, tools, remembers=True, shown=terminal.until_shown)
    approver: Any = approve_all if options.yes else person
    model = open_named(wanted.model, _address(wanted), lambda shown: anyio.from_thread.run(terminal.ask_person, shown))
    questions = ServerQuestions()
    opening = open_chat_session(options, wanted, model, tools, approver, terminal.see, terminal.note, questions)
    async with opening as chat_session, terminal.serving(chat_session):
        person.sandbox, questions.terminal = chat_session.sandbox, terminal
        chat = Chat(terminal, chat_session, wanted)
        chat.greet()
        working = in_background(chat.work())
        try:
            while not chat.left and (line := await terminal.read()) is not None:
                await chat.take(line)
                if not terminal.reads_while_working:
                    await chat.idle()
        finally:
            if chat.following is None:  # everything is closed in order now, however often Ctrl-C is pressed
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            chat_session.end_turn()
            await chat.settled()
            working.cancel()
            chat.say_goodbye()
    return chat.following


def _address(wanted: ChatOptions) -> str | None:
    """The configured address of a provider, for the configured model alone."""
    return wanted.settings.base_url if wanted.model == wanted.settings.model else None


class Chat:
    """One conversation: does what the person's lines say."""

    def __init__(self, terminal: ChatTerminal, chat_session: ChatSession, wanted: ChatOptions) -> None:
        self._terminal, self._session, self._wanted = terminal, chat_session, wanted
        self._queue: deque[Callable[[], Awaitable[object]]] = deque()
        self._news = anyio.Event()
        self._idle = anyio.Event()
        self._idle.set()
        self.left = False
        self.following: ChatOptions | None = None

    def greet(self) -> None:
        """The first line says what holds here; a conversation that goes on shows what was said in it."""
        self._terminal.print(Text(first_line(self._session), style="bold"))
        self._terminal.print(Text("/help lists the commands; Ctrl-D leaves.", style="dim"))
        for note in self._session.sandbox.report.notes:
            self._terminal.note(note)
        if self._wanted.resume is not None:
            for event in self._session.agent.session.trace:
                self._terminal.printer.see(event)

    def say_goodbye(self) -> None:
        jobs = [job.id for job in self._session.sandbox.jobs() if job.running]
        if jobs:
            self._terminal.note(f"{', '.join(jobs)} ends now, with this conversation")
        session = self._session.agent.session
        if self._wanted.store is not None and self.following is None and session.event_count:
            self._terminal.note(f"to go on: handrail chat --resume {session.id}")

    async def take(self, line: str) -> None:
        """Do what a line says: a command at once, a message when those before it are done."""
        text = line.strip()
        if not text:
            return
        if text.startswith("/") and text.split()[0] in COMMANDS:
            await self._command(*text.split())
        elif re.fullmatch(r"/[a-z]+", text.split()[0]):
            self._terminal.note(f"there is no {text.split()[0]}; /help lists the commands")
        elif text.startswith("!"):
            self._add(partial(self._run, text[1:].strip()))
        else:
            self._add(partial(self._turn, line.rstrip()))

    def _add(self, work: Callable[[], Awaitable[object]]) -> None:
        if not self._idle.is_set():
            self._terminal.queued = len(self._queue) + 1
        else:
            self._idle = anyio.Event()
        self._queue.append(work)
        self._news.set()

    async def work(self) -> None:
        """Do what is queued, one after the other."""
        while True:
            while self._queue:
                work = self._queue.popleft()
                self._terminal.queued = len(self._queue)
                try:
                    await work()
                except Exception as error:  # noqa: BLE001 - a turn that fails must not end the conversation
                    self._terminal.note(f"{type(error).__name__}: {error}", "red")
            self._idle.set()
            self._news = anyio.Event()
            await self._news.wait()

    async def idle(self) -> None:
        """Return when everything that was queued is done."""
        await self._idle.wait()

    async def settled(self) -> None:
        """Drop what is queued, and return when what runs has ended."""
        self._queue.clear()
        await self.idle()

    async def _turn(self, text: str) -> None:
        await self._session.turn(await self._with_files(text))

    async def _run(self, command: str) -> None:
        if not command:
            return
        await self._session.call("bash", {"command": command})  # the printer shows what came of it

    async def _with_files(self, text: str) -> str:
        """The message and the files that it mentions, read through the sandbox: no link leads out of it."""
        parts = [text]
        for path in dict.fromkeys(_MENTION.findall(text)):
            try:
                data = await self._session.sandbox.read_bytes(path, length=MAX_FILE_CHARS + 1)
            except (OSError, HandrailError, ToolFailed, ValueError) as error:
                self._terminal.note(f"@{path} was not added: {error}")
                continue
            cut = "\n(cut here)" if len(data) > MAX_FILE_CHARS else ""
            parts.append(f"{path}:\n```\n{data[:MAX_FILE_CHARS].decode('utf-8', 'replace')}{cut}\n```")
        return "\n\n".join(parts)

    async def _command(self, name: str, *words: str) -> None:
        doing: Any = getattr(self, f"_{name[1:]}")
        try:
            await doing(*words)
        except TypeError:
            self._terminal.note(f"{name}: {COMMANDS[name]}")
        except HandrailError as error:
            self._terminal.note(str(error), "red")

    async def _help(self) -> None:
        for name, about in (*COMMANDS.items(), *OTHERS.items()):
            self._terminal.print(Text(f"{name:<10}", style="bold") + Text(f" {about}"))

    async def _jobs(self, *words: str) -> None:
        if words and (len(words) != 2 or words[0] != "stop"):
            raise TypeError
        if words and not await self._session.agent.session.terminate(words[1]):
            self._terminal.note(f"no job {words[1]} runs")
        for job in self._session.sandbox.jobs():
            state = {"job": job.id, "running": job.running, "exit_code": job.exit_code, "command": job.command}
            self._terminal.note(job_line(state), "")
        if not self._session.sandbox.jobs():
            self._terminal.note("no jobs")

    async def _tools(self) -> None:
        for tool in self._session.agent.session.toolbox:
            about = visible(tool.description.partition("\n")[0], lines=False)
            self._terminal.print(Text(tool.name, style="bold") + Text(f"  {about}"))

    async def _sessions(self) -> None:
        for each in open_store().sessions()[:MAX_SESSIONS_COUNT]:
            self._terminal.print(list_line(each))

    async def _resume(self, id: str) -> None:
        if self._session.works:
            raise HandrailError("another conversation can be taken up when it has answered; Ctrl-C twice ends the turn")
        self.following = replace(self._wanted, resume=find_session(open_store(), id).id)
        if self.following.resume == self._session.agent.session.id:
            self.following = None
            raise HandrailError("that is this conversation")
        self.left = True

    async def _report(self) -> None:
        for guarantee in self._session.sandbox.report.guarantees:
            why = f"  {guarantee.reason}" if guarantee.standing != "enforced" else ""
            self._terminal.note(f"{guarantee.standing:<9} {guarantee.feature}{why}", "")

    async def _model(self, name: str = "") -> None:
        agent = self._session.agent
        if name and self._session.works:
            raise HandrailError("the model can be changed when it has answered; Ctrl-C twice ends the turn")
        if name:
            model = open_named(name, None, lambda shown: anyio.from_thread.run(self._terminal.ask_person, shown))
            self._session.agent = Agent(model, session=agent.session, rounds=agent.rounds, system=agent.system)
            self._wanted = replace(self._wanted, model=name)
        self._terminal.note(f"model {self._session.agent.model_name}", "")

    async def _mode(self, name: str = "") -> None:
        shared = core_of(self._session.agent.session).shared
        if name:
            mode: Any = name
            shared.policy = replace(shared.policy, mode=Policy(mode=mode).mode)
        self._terminal.note(f"policy {shared.policy.mode}", "")

    async def _show(self, id: str) -> None:
        if not self._terminal.printer.open(id):
            raise HandrailError(f"no call {id} has ended here; a result that is shown in part names its number")

    async def _exit(self) -> None:
        self.left = True
