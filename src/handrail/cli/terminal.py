"""Ask a person at a terminal whether a call may run."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from handrail.contract.approval import ApprovalRequest, Decision
from handrail.toolkit.threads import Work

QUESTION = "[y]es once, [a]lways, [e]dit, [n]o, [s]kip? "


class TerminalApprover:
    """Shows the request as Handrail rendered it, and waits for one of five answers."""

    wait = 300.0

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


async def _line(question: str) -> str:
    """A line from the person. Nobody at the other end means no."""

    def read() -> str:
        sys.stderr.write(question)
        sys.stderr.flush()
        return sys.stdin.readline() or "n\n"

    return str(await Work(read, lambda work: None).wait())
