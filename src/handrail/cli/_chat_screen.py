"""The terminal of a conversation: a prompt that stays below what is printed, or a plain one, line by line."""

import io
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext, suppress
from typing import Final, Protocol

import anyio
from prompt_toolkit import PromptSession
from prompt_toolkit.application import in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.patch_stdout import patch_stdout
from rich.cells import set_cell_size
from rich.console import Console, RenderableType
from rich.text import Text

from handrail.aio import running_loop
from handrail.cli._chat_session import ChatSession
from handrail.cli._console import duration
from handrail.cli._editor import edit_text
from handrail.cli._event_printer import EventPrinter, Print, tokens
from handrail.cli._prompt import files_beginning, open_history, terminal_size
from handrail.cli._terminal import PlainTerminal, ask_line
from handrail.contract.event import Event
from handrail.policy.approval import visible

HISTORY: Final = "chat_history"
PROMPT: Final = "> "
AS_THE_MODEL: Final = "You are the model: type a call, or the answer."
REFRESH: Final = 0.25
"""Seconds between two pictures of what runs."""
ANSWER_LINES: Final = 4
"""Lines of an unfinished block of the answer that are shown."""
LEAVE: Final = 3
"""Number of Ctrl-C in a row that end the program."""


def is_plain() -> bool:
    """Whether the terminal can only print lines."""
    return os.environ.get("TERM", "dumb") in ("dumb", "unknown", "")


class ChatTerminal(Protocol):
    """A terminal as a conversation needs it."""

    queued: int
    """Number of messages that wait."""
    reads_while_working: bool
    printer: EventPrinter
    turn: anyio.Lock

    @property
    def width(self) -> int: ...
    def print(self, what: RenderableType) -> None: ...
    def note(self, text: str, style: str = "dim") -> None: ...
    def see(self, event: Event) -> None: ...
    def forget(self) -> None: ...
    def serving(self, chat_session: ChatSession) -> AbstractAsyncContextManager[None]: ...
    async def until_shown(self, request_id: str) -> None: ...
    async def read(self) -> str | None: ...
    async def line(self, question: str, until: float | None = None) -> str | None: ...
    async def edit(self, text: str) -> str | None: ...
    async def ask_person(self, shown: str) -> str | None: ...


class _Shown:
    """The part that both kinds of terminal share: events are printed, and a request comes after what was before it."""

    queued = 0

    def __init__(self, show: Print, *, full: bool) -> None:
        self.chat_session: ChatSession | None = None
        self.printer = EventPrinter(show, full=full, rest=lambda number: f"/show {number}")
        self._show = show

    def note(self, text: str, style: str = "dim") -> None:
        """Show one remark on a line of its own."""
        self._show(Text(visible(text, lines=False), style=style))

    def see(self, event: Event) -> None:
        """Tell an event; after a turn, what it took."""
        if event.type != "user":  # the person has typed it here
            self.printer.see(event)
        if event.type == "run_ended" and event.parent is None:
            self.note(tokens(self.printer.usage))

    async def until_shown(self, request_id: str) -> None:
        if self.chat_session is not None:
            await self.chat_session.until_shown(request_id)


class LineTerminal(_Shown):
    """A terminal that cannot move its cursor: everything is a line, and nothing is read while a turn runs."""

    reads_while_working = False

    def __init__(self, *, full: bool = False) -> None:
        super().__init__(self.print, full=full)
        self._terminal = PlainTerminal(Console(highlight=False, width=self.width))
        self.turn = self._terminal.turn
        self.forget, self.line, self.edit = self._terminal.forget, self._terminal.line, self._terminal.edit
        self._reading = anyio.CancelScope()
        self._leaves = False

    @property
    def width(self) -> int:
        return terminal_size(sys.stdout).columns

    def print(self, what: RenderableType) -> None:
        self._terminal.print(what)

    @asynccontextmanager
    async def serving(self, chat_session: ChatSession) -> AsyncIterator[None]:
        """Ctrl-C is a signal here, taken until the program ends: what is closing must not be killed by another one."""
        self.chat_session = chat_session
        loop = running_loop()

        def pressed(*_: object) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._interrupt)

        signal.signal(signal.SIGINT, pressed)
        yield

    def _interrupt(self) -> None:
        if self.chat_session is not None and self.chat_session.interrupt() >= LEAVE:
            self._leaves = True
            self._reading.cancel()

    async def read(self) -> str | None:
        """The next line; None once the person leaves."""
        line = None
        with anyio.CancelScope() as self._reading:
            if not self._leaves:
                line = await ask_line(PROMPT)
        return line

    async def ask_person(self, shown: str) -> str | None:
        """A line of the person who plays the model."""
        return await ask_line(visible(shown))


class _Keyboard(Vt100Input):
    """The person's keyboard. Nothing is lost that is typed while something is printed above the prompt.

    prompt-toolkit gives the terminal its own handling of keys back meanwhile, and that would swallow a Ctrl-D.
    """

    lent = False
    """Whether another program has the terminal."""

    def cooked_mode(self) -> AbstractContextManager[None]:
        return super().cooked_mode() if self.lent else nullcontext()


class PromptTerminal(_Shown):
    """A prompt at the bottom, with what runs now above it; everything final is printed above both."""

    reads_while_working = True

    def __init__(self, commands: Mapping[str, str], workspace: str, *, full: bool = False) -> None:
        super().__init__(self.print, full=full)
        self._question: tuple[str, float | None] | None = None
        self._answer: str | None = None
        self._answered = anyio.Event()
        self.turn = anyio.Lock()
        self._draft = ""
        self._output = Vt100_Output(
            sys.stdout, lambda: terminal_size(sys.stdout), term=os.environ.get("TERM"), enable_cpr=False
        )
        self._keyboard = _Keyboard(sys.stdin)
        self._session: PromptSession[str] = PromptSession(
            input=self._keyboard,
            history=open_history(HISTORY), completer=_Words(commands, workspace), complete_while_typing=False,
            output=self._output, multiline=True, key_bindings=self._keys(), refresh_interval=REFRESH,
            # what is drawn is no record: a copy of what ran would stay above, as often as a line is sent
            erase_when_done=True,
            message=self._message, prompt_continuation="  ",
        )  # fmt: skip

    @property
    def width(self) -> int:
        return terminal_size(sys.__stdout__ or sys.stdout).columns

    def print(self, what: RenderableType) -> None:
        """Print above the prompt; what the encoding lacks is written with plain signs."""
        sys.stdout.write(self._rendered(what))
        sys.stdout.flush()

    def _rendered(self, what: RenderableType) -> str:
        text = io.StringIO()
        Console(file=text, force_terminal=True, highlight=False, width=self.width, height=25).print(what)
        encoding = (sys.__stdout__ or sys.stdout).encoding
        return text.getvalue().encode(encoding, "handrail").decode(encoding)

    @asynccontextmanager
    async def serving(self, chat_session: ChatSession) -> AsyncIterator[None]:
        """Print above the prompt while one is on the screen."""
        self.chat_session = chat_session
        with patch_stdout(raw=True):
            yield

    async def read(self) -> str | None:
        """The next message or command; answers to questions go to those who asked."""
        while True:
            try:
                text = await self._session.prompt_async(default=self._draft if self._question is None else "")
            except EOFError:
                if self._question is None:
                    return None
                self._settle(None)
                continue
            except KeyboardInterrupt:
                return None
            if self._question is not None:
                self._record(text, self._question[0])
                self._settle(text)
                continue
            self._draft = ""
            self._record(text)
            return text

    def _record(self, text: str, question: str = "") -> None:
        """Print what the person sent in place of the erased prompt, after the question that it answers."""
        if question:
            self.print(Text(visible(question.rstrip()), style="dim"))
        if text.strip() or question:
            first, *more = visible(text).split("\n")
            self.print(Text("\n".join([f"{PROMPT}{first}", *(f"  {line}" for line in more)])))

    def _settle(self, answer: str | None) -> None:
        self._answer, self._question = answer, None
        self._answered.set()

    async def line(self, question: str, until: float | None = None) -> str | None:
        """Ask below everything else; what was typed before is kept for later."""
        self._answered = anyio.Event()
        self._question = (question, until)
        self.forget()
        try:
            await self._answered.wait()
            return self._answer
        finally:
            self._question = None
            self._session.app.invalidate()

    def forget(self) -> None:
        """Put aside what was typed before the question: it does not answer it."""
        buffer = self._session.default_buffer
        if self._session.app.is_running and buffer.text:
            self._draft = buffer.text
            buffer.reset()

    async def edit(self, text: str) -> str | None:
        """The editor has the terminal meanwhile."""
        self._keyboard.lent = True
        try:
            async with in_terminal():
                return await edit_text(text)
        finally:
            self._keyboard.lent = False

    async def ask_person(self, shown: str) -> str | None:
        """A line of the person who plays the model."""
        self.print(Text(visible(shown.removesuffix(PROMPT).rstrip("\n"))))
        return await self.line(AS_THE_MODEL)

    def _message(self) -> ANSI:
        """The calls that run now, the question if there is one, and the prompt."""
        lines = [] if self.chat_session is None else list(self._live())
        if status := self._status():
            lines.append(status)
        if self._question is not None:
            question, until = self._question
            left = "" if until is None else f"({duration(max(0.0, until - time.time()) * 1_000)} left)"
            *above, last = question.rstrip().split("\n")
            fits = len(last) + 1 + len(left) < self.width
            lines += [*above, *([f"{last} {left}".rstrip()] if fits else [last, left]), PROMPT]
        else:
            lines.append(PROMPT)
        encoding = (sys.__stdout__ or sys.stdout).encoding
        return ANSI("\n".join(lines).encode(encoding, "handrail").decode(encoding))

    def _live(self) -> Iterable[str]:
        width, printer = self.width - 1, self.printer
        for line in visible(printer.answer).rstrip().split("\n")[-ANSWER_LINES:]:
            if line.strip():
                yield set_cell_size(line, width).rstrip()
        if printer.doing and not printer.running:
            yield set_cell_size(f"… {printer.doing}", width).rstrip()
        calls = list(printer.running.values())
        for call in calls:
            state = f" · {call.state}" if call.state else ""
            text = f"{'  ' * call.depth}… {call.tool} {call.title}"
            seconds = f"{state} · {max(0.0, time.time() - call.began):.0f} s"
            yield set_cell_size(text, max(10, width - len(seconds))).rstrip() + seconds
        tail = [line for call in calls[-1:] for line in call.tail if line]
        for line in tail:
            yield set_cell_size(f"  | {line.expandtabs(4)}", width).rstrip()

    def _status(self) -> str:
        """The number of waiting messages, the tokens so far, and the model: a narrow window shows the first of it."""
        if self.chat_session is None or not self.chat_session.works:
            return ""
        queued = f"{self.queued} queued · " if self.queued else ""
        name = visible(self.chat_session.agent.model_name, lines=False)
        text = f"{queued}{tokens(self.printer.usage)} · Ctrl-C ends the call · {name}"
        return set_cell_size(text, max(1, self.width - 1)).rstrip()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        @keys.add("c-j")  # Enter, pressed before the prompt was there
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            self._interrupt(event)

        return keys

    def _interrupt(self, event: KeyPressEvent) -> None:
        """Ctrl-C: drop the line if nothing runs; otherwise end the call, then the turn; the third leaves."""
        if self.chat_session is None or self.chat_session.interrupt() >= LEAVE:
            event.app.exit(exception=KeyboardInterrupt())
        elif not self.chat_session.works and self._question is None:
            event.current_buffer.reset()


class _Words(Completer):
    """Completes commands, and after @ the files of the workspace."""

    def __init__(self, commands: Mapping[str, str], workspace: str) -> None:
        self._commands, self._workspace = commands, workspace

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        last = before.split()[-1] if before and not before[-1].isspace() else ""
        if last.startswith("/") and before.strip() == last:
            for name, about in self._commands.items():
                if name.startswith(last):
                    yield Completion(name, start_position=-len(last), display_meta=about)
        elif last.startswith("@"):
            for path in files_beginning(last[1:], self._workspace):
                yield Completion(f"@{path}", start_position=-len(last))
