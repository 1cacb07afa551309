"""The person at the terminal: approves calls, and answers the questions of tools."""

import json
import os
import sys
import termios
import textwrap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import time
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.text import Text

from handrail.cli._editor import edit_text
from handrail.contract.approval import ApprovalRequest, Decision
from handrail.contract.errors import ToolFailed
from handrail.contract.limits import TERMINAL_APPROVAL_WAIT
from handrail.contract.result import Failure, Result
from handrail.lazy import Lazy
from handrail.policy.approval import visible
from handrail.policy.described import Described, described
from handrail.sandbox.sandbox import Sandbox
from handrail.schema.prepare import prepare
from handrail.toolkit.toolbox import Toolbox

if TYPE_CHECKING:
    from rich import syntax as _syntax
else:
    _syntax = Lazy("rich.syntax")  # it loads a highlighter, which only a question needs

MAX_LINE_CHARS: Final = 1 << 16
WIDEST: Final = 100
"""Columns of a request, on a screen that has more."""
CHOICES: Final = {
    "y": ("yes", "[y]es once"),
    "a": ("always", "[a]lways"),
    "e": ("edit", "[e]dit"),
    "n": ("no", "[n]o"),
    "s": ("skip", "[s]kip"),
}
"""The whole word and how it is offered, by letter."""
CODE: Final = ("bash", "python")
"""Kinds of lines that are code, by the name that the highlighter has for them."""
STYLES: Final = {"added": "green", "removed": "red", "place": "cyan", "warning": "yellow"}
"""The colour of a line, by its kind."""
Shown = Callable[[str], Awaitable[None]]
"""Returns when everything before the request of this id is on the screen."""


def can_ask() -> bool:
    """Whether a person can be asked: what they type arrives here, and what they are asked can be read."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


class Terminal(Protocol):
    """A terminal at which a person reads and types."""

    turn: anyio.Lock
    """Serialises questions to the person."""

    @property
    def width(self) -> int:
        """Columns."""

    def print(self, what: RenderableType) -> None:
        """Show something."""

    def forget(self) -> None:
        """Drop what was typed before the question was on the screen."""

    async def line(self, question: str, until: float | None = None) -> str | None:
        """The person's answer; None for end of input. `until` is the end of the wait, by time.time."""

    async def edit(self, text: str) -> str | None:
        """The text as the person left it in their editor; None without one."""


class PlainTerminal:
    """A terminal that is read line by line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.turn = anyio.Lock()
        self.forget, self.edit = forget_typed, edit_text

    @property
    def width(self) -> int:
        return self._console.width

    def print(self, what: RenderableType) -> None:
        self._console.print(what)

    async def line(self, question: str, until: float | None = None) -> str | None:
        return await ask_line(question)


class TerminalApprover:
    """Shows a request and waits for an answer. Without `remembers`, which only a longer session needs, no [a]lways."""

    wait = TERMINAL_APPROVAL_WAIT

    def __init__(
        self, terminal: Console | Terminal, tools: Toolbox, *, remembers: bool, shown: Shown | None = None
    ) -> None:
        self._terminal: Terminal = PlainTerminal(terminal) if isinstance(terminal, Console) else terminal
        self._tools = tools
        self._remembers = remembers
        self._shown = shown
        self.editing = False
        """Whether the person is in an editor: Ctrl-C is then the editor's."""
        self.sandbox: Sandbox | None = None
        """The sandbox with the files that a call would change; set it once it is open."""

    async def __call__(self, request: ApprovalRequest) -> Decision:
        if self._shown is not None:
            await self._shown(request.id)
        async with self._terminal.turn:
            return await self._decided(request)

    async def _decided(self, request: ApprovalRequest) -> Decision:
        offered = [letter for letter in CHOICES if letter != "a" or (self._remembers and request.suggested_rule)]
        self._show(request, await described(request, self.sandbox), "a" in offered)
        draft = json.dumps(dict(request.arguments), indent=2, ensure_ascii=False) + "\n"
        self._terminal.forget()
        while True:
            offer = ", ".join(CHOICES[letter][1] for letter in offered) + "? "
            answer = await self._terminal.line(self._wrapped(offer), request.expires_at)
            letter = self._letter(answer, offered)
            if letter == "e":
                draft = await self._edited(draft)
                if (arguments := self._checked(draft, request)) is not None:
                    return Decision.edit(arguments)
            elif letter == "n":
                why = "" if answer is None else await self._terminal.line("Why not? (the model reads it) ") or ""
                return Decision.deny(why.strip())
            elif letter is not None:
                return {"y": Decision.approve, "a": Decision.remember, "s": Decision.skip}[letter]()

    def _show(self, request: ApprovalRequest, about: Described, always: bool) -> None:
        body = _drawn(about)
        for repair in about.notes:
            body.append(f"\nrepaired: {repair}", style="yellow")
        body.append(f"\n\nwhy: {visible(request.reason)}", style="dim")
        if always:
            body.append(f"\nalways means: {visible(request.suggested_rule)}", style="dim")
        body.append(f"\ntime left: {max(0.0, request.expires_at - time()) / 60:.0f} min", style="dim")
        width = min(self._terminal.width, WIDEST)
        self._terminal.print(Panel(body, title=Text(about.head), border_style="yellow", width=width))

    def _letter(self, answer: str | None, offered: Sequence[str]) -> str | None:
        """The answer that the person means: end of input denies, an empty line skips. None for other texts."""
        if answer is None:
            return "n"
        word = answer.strip().lower()
        letter = next((letter for letter in offered if word in (letter, CHOICES[letter][0])), "s" if not word else None)
        if letter is None:
            listed = ", ".join(CHOICES[letter][0] for letter in offered)
            self._say(
                f"{visible(word[:40], lines=False)!r} is not an answer; type one of {listed}, or its first letter."
            )
        return letter

    async def _edited(self, draft: str) -> str:
        self.editing = True
        try:
            edited = await self._terminal.edit(draft)
        finally:
            self.editing = False
        if edited is not None:
            return edited
        self._say("No editor was found ($VISUAL, $EDITOR, editor, nano, vi).")
        self._terminal.print(Text(visible(draft)))
        return await self._terminal.line("The new arguments, as JSON: ") or draft

    def _checked(self, draft: str, request: ApprovalRequest) -> dict[str, Any] | None:
        """The arguments, if the tool would take them; otherwise say why not, and keep what was written."""
        try:
            edited: Any = json.loads(draft)
        except ValueError as error:
            self._say(f"That is not JSON: {error}. Your text is kept; type e to go on with it.")
            return None
        if not isinstance(edited, dict):
            self._say("The arguments are an object, { … }. Your text is kept; type e to go on with it.")
            return None
        if edited == dict(request.arguments):
            self._say("Nothing was changed.")
            return None
        tool = self._tools.find(request.tool)
        ready = prepare(edited, tool.checks, own=tool.own, convert=tool.convert, tool=tool.name, artifact=lambda _: "")
        if isinstance(ready, Failure):
            self._say(f"{visible(ready.message)}\nYour text is kept; type e to go on with it.")
            return None
        return edited

    def _say(self, text: str) -> None:
        self._terminal.print(Text(text, style="red"))

    def _wrapped(self, question: str) -> str:
        return "\n".join(textwrap.wrap(question, max(20, self._terminal.width - 2))) + " "


def _drawn(about: Described) -> Text:
    """The call: code is highlighted, and a difference is coloured."""
    language = about.lines[0][0] if about.lines else "text"
    if language in CODE:
        text = _syntax.Syntax("", language, word_wrap=True).highlight(about.text)
        text.rstrip()
        return text
    return Text("\n").join(Text(line, style=STYLES.get(kind, "")) for kind, line in about.lines)


class TerminalHost:
    """Puts the questions of a tool to the person. There is no loop to end here, and no task to start."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        """The person's text, or the choice whose number they typed."""
        self._console.print(Text(visible(question), style="bold"))
        for number, choice in enumerate(choices, 1):
            self._console.print(Text(f"  {number}. {visible(choice, lines=False)}"))
        forget_typed()
        answer = await ask_line("> ")
        if answer is None:
            raise ToolFailed(Failure("user_denied", "The user did not answer. Go on without it."))
        answer = answer.strip()
        return choices[int(answer) - 1] if answer.isdecimal() and 0 < int(answer) <= len(choices) else answer

    async def spawn(
        self, prompt: str, *, role: str = "", tools: Sequence[str] | None = None, cwd: str | None = None
    ) -> Result:
        raise ToolFailed(Failure("unavailable", "No task can be started here.", retryable=False))

    def finish(self, summary: str) -> None:
        """Do nothing: one call is all there is."""

    def deferred_tools(self) -> Mapping[str, str]:
        return {}

    def load_tools(self, names: Sequence[str]) -> None:
        """Do nothing: there are none."""


def forget_typed() -> None:
    """Drop what was typed before the question was on the screen: it cannot be an answer to it."""
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


async def ask_line(question: str) -> str | None:
    """Read a line from the person; None for end of input (Ctrl-D), also in the middle of a line.

    A terminal is readable when a whole line was typed, so nobody blocks in `read`, and a cancelled question leaves
    what is typed later to the next reader.
    """
    sys.stderr.write(question)
    sys.stderr.flush()
    await anyio.wait_readable(sys.stdin)
    line = os.read(sys.stdin.fileno(), MAX_LINE_CHARS).decode("utf-8", "replace")
    if line.endswith("\n"):
        return line
    sys.stderr.write("\n")
    return None
