"""Ask a person at a terminal whether a call may run."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from handrail.contract.approval import ApprovalRequest, Decision
from handrail.contract.errors import ToolFailed
from handrail.contract.limits import APPROVAL_WAIT
from handrail.contract.result import Failure, Result
from handrail.policy.approval import visible
from handrail.toolkit.threads import Work

LONGEST_LINE = 1 << 16
QUESTION = "[y]es once, [a]lways, [e]dit, [n]o, [s]kip? "


class TerminalApprover:
    """Shows the request as Handrail rendered it, and waits for one of five answers."""

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
            decision = await self._decide(await _line(QUESTION), request)
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
            given: Any = json.loads(await _line("The arguments instead, as JSON: "))
        except ValueError as error:
            self._console.print(Text(f"That is not JSON: {error}", style="red"))
            return None
        return Decision.edit(given) if isinstance(given, dict) else None


class TerminalHost:
    """The person at the terminal, to whom a tool may put a question; there is no loop to end and no task to start."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        """The person's words, or the choice whose number they typed."""
        self._console.print(Text(visible(question), style="bold"))
        for number, choice in enumerate(choices, 1):
            self._console.print(Text(f"  {number}. {visible(choice, lines=False)}"))
        answer = (await _line("> ")).strip()
        return choices[int(answer) - 1] if answer.isdecimal() and 0 < int(answer) <= len(choices) else answer

    async def spawn(self, prompt: str, *, tools: Sequence[str] | None = None, cwd: str | None = None) -> Result:
        raise ToolFailed(Failure("unavailable", "No task can be started here.", retryable=False))

    def finish(self, summary: str) -> None:
        """Nothing goes on here."""

    def deferred_tools(self) -> Mapping[str, str]:
        return {}

    def load_tools(self, names: Sequence[str]) -> None:
        """There are none."""


async def _line(question: str) -> str:
    """A line from the person. Nobody at the other end means no.

    A terminal gives line by line. Python's own reader would hold a lock that the interpreter wants when it ends.
    """

    def read() -> str:
        sys.stderr.write(question)
        sys.stderr.flush()
        return os.read(sys.stdin.fileno(), LONGEST_LINE).decode("utf-8", "replace") or "n\n"

    return str(await Work(read, lambda work: None).wait())
