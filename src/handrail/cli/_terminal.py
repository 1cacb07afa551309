"""The person at the terminal: approves calls, and answers the questions of tools."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from handrail.contract.approval import ApprovalRequest, Approver, Decision
from handrail.contract.errors import ToolFailed
from handrail.contract.limits import APPROVAL_WAIT
from handrail.contract.result import Failure, Result
from handrail.policy.approval import visible
from handrail.policy.approvers import approve_all
from handrail.toolkit.threads import Work

LONGEST_LINE: Final = 1 << 16
APPROVAL_CHOICES: Final = "[y]es once, [a]lways, [e]dit, [n]o, [s]kip? "


def approver(yes: bool) -> Approver | None:
    """The approver for this run: one that always agrees, the person at the terminal, or none."""
    if yes:
        return approve_all
    return TerminalApprover(Console(stderr=True)) if sys.stdin.isatty() else None


class TerminalApprover:
    """Shows a request and waits for one of five answers."""

    wait = APPROVAL_WAIT

    def __init__(self, console: Console) -> None:
        self._console = console

    async def __call__(self, request: ApprovalRequest) -> Decision:
        body = Text(request.text)
        for repair in request.repairs:
            body.append(f"\nrepaired: {repair}", style="yellow")
        body.append(f"\n\nwhy: {request.reason}\nalways means: {request.suggested_rule}", style="dim")
        self._console.print(Panel(body, title=f"May {request.tool} run?", border_style="yellow"))
        while True:
            decision = await self._decide(await _line(APPROVAL_CHOICES), request)
            if decision is not None:
                return decision

    async def _decide(self, answer: str, request: ApprovalRequest) -> Decision | None:
        match answer.strip().lower():
            case "y" | "yes":
                return Decision.approve()
            case "a" | "always":
                return Decision.remember()
            case "n" | "no":
                return Decision.deny(await _line("Why not? (the model reads it) "))
            case "s" | "skip" | "":
                return Decision.skip()
            case "e" | "edit":
                return await self._edit(request)
        return None

    async def _edit(self, request: ApprovalRequest) -> Decision | None:
        self._console.print(Text(json.dumps(dict(request.arguments), ensure_ascii=False)))
        try:
            edited: Any = json.loads(await _line("The new arguments, as JSON: "))
        except ValueError as error:
            self._console.print(Text(f"That is not JSON: {error}", style="red"))
            return None
        return Decision.edit(edited) if isinstance(edited, dict) else None


class TerminalHost:
    """Puts the questions of a tool to the person. There is no loop to end here, and no task to start."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        """What the person typed, or the choice whose number they typed."""
        self._console.print(Text(visible(question), style="bold"))
        for number, choice in enumerate(choices, 1):
            self._console.print(Text(f"  {number}. {visible(choice, lines=False)}"))
        answer = (await _line("> ")).strip()
        return choices[int(answer) - 1] if answer.isdecimal() and 0 < int(answer) <= len(choices) else answer

    async def spawn(self, prompt: str, *, tools: Sequence[str] | None = None, cwd: str | None = None) -> Result:
        raise ToolFailed(Failure("unavailable", "No task can be started here.", retryable=False))

    def finish(self, summary: str) -> None:
        """Do nothing: one call is all there is."""

    def deferred_tools(self) -> Mapping[str, str]:
        return {}

    def load_tools(self, names: Sequence[str]) -> None:
        """Do nothing: there are none."""


async def _line(question: str) -> str:
    """Read a line from the person; end of input means no.

    It reads the descriptor, because a thread blocked in `sys.stdin` holds a lock that the interpreter needs to exit.
    """

    def read() -> str:
        sys.stderr.write(question)
        sys.stderr.flush()
        return os.read(sys.stdin.fileno(), LONGEST_LINE).decode("utf-8", "replace") or "n\n"

    return str(await Work(read, lambda work: None).wait())
