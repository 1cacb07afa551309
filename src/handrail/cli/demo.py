"""Show what Handrail does: a scripted model, live tools, a real sandbox, no key and no network."""

import sys
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from handrail.agent.loop import Agent
from handrail.cli.call import approver
from handrail.cli.comparison import compare_timeouts
from handrail.cli.screen import Screen, report_lines
from handrail.cli.story import Outside, model, surprises, tools
from handrail.policy.policy import Policy
from handrail.session.open import open_sandbox
from handrail.session.session import Session


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the person typed."""

    yes: bool = False
    driver: str = "auto"
    allow_weaker: bool = False


async def run_demo(options: DemoOptions) -> int:
    """0 when every scene came out as it must; 1, saying which did not, otherwise."""
    console = Console(highlight=False, soft_wrap=True)
    async with open_sandbox(options.driver, allow_weaker=options.allow_weaker) as sandbox, Outside() as outside:
        console.print(Text(f"Handrail demo · sandbox {sandbox.report.driver} · network {sandbox.report.network} · "
                           "model scripted", style="bold"))  # fmt: skip
        for line in report_lines(sandbox.report):
            console.print(Text(f"  {line}", style="dim"))
        # a sandbox that confines nothing would ask before every command
        policy = Policy() if "file_isolation" in sandbox.features else Policy(mode="open")
        session = Session(tools(), sandbox=sandbox, policy=policy, approver=approver(options.yes))
        async with session:
            screen = Screen(console, asks=sys.stdin.isatty() and not options.yes)
            agent = Agent(model(outside), session=session)
            async for event in agent.stream("Show me what you can do, and what you cannot."):
                screen.show(event)
        console.print()
        survived = await compare_timeouts(console, sandbox)
    wrong = surprises(outside, screen.results, sandbox.features)
    if survived:
        wrong.append("the setsid child outlived its timeout in the sandbox")
    for line in wrong:
        console.print(Text(f"NOT AS IT SHOULD BE: {line}", style="bold red"))
    console.print(Text("Nothing is left running." if not wrong else "The demo found a broken promise.", style="bold"))
    return 1 if wrong else 0
