"""`handrail batch`: many tasks from a file, each in a fresh sandbox."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from handrail.cli._app import AllowWeaker, Command, new_app
from handrail.cli._app import run as run_command
from handrail.cli.run import MAX_CALLS_COUNT, MAX_ROUNDS_COUNT, Calls, Model, Rounds
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.cli import _run_batch
else:
    _run_batch = Lazy("handrail.cli._run_batch")

Out = Annotated[Path, typer.Option(metavar="DIR", help="Where results and sessions go; the same one goes on.")]
Jobs = Annotated[int, typer.Option(min=1, help="Tasks at the same time.")]
Samples = Annotated[int, typer.Option(min=1, help="How often each task is done.")]
Tries = Annotated[int, typer.Option(min=1, help="How often a task is begun whose outcome is lost.")]
Seconds = Annotated[float | None, typer.Option(min=0.001, help="How long the agent of one task may work.")]
System = Annotated[str, typer.Option(help="The system text of tasks that have none of their own.")]
Tools = Annotated[
    str | None,
    typer.Option(metavar="MODULE:FUNCTION", help="A function that returns the tools, in place of the built-in ones."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Do only the first so many tasks.")]
Only = Annotated[list[str] | None, typer.Option(metavar="ID", help="Do only this task; may be repeated.")]
Retry = Annotated[Literal["lost"] | None, typer.Option(help="lost: do again what was lost.")]
MayRepeat = Annotated[
    bool, typer.Option("--may-repeat", help="Allow tools that act outside the sandbox, though tasks may run twice.")
]
Json = Annotated[bool, typer.Option("--json", help="Print each event of the batch as a line of JSON.")]

app = new_app()


@app.command(cls=Command)
def batch(
    tasks: Annotated[Path, typer.Argument(metavar="TASKS.jsonl", help="A task on each line.")],
    out: Out,
    model: Model = None,
    jobs: Jobs = 8,
    samples: Samples = 1,
    tries: Tries = 3,
    rounds: Rounds = MAX_ROUNDS_COUNT,
    calls: Calls = MAX_CALLS_COUNT,
    seconds: Seconds = None,
    system: System = "",
    tools: Tools = None,
    allow_weaker: AllowWeaker = False,
    limit: Limit = None,
    only: Only = None,
    retry: Retry = None,
    may_repeat: MayRepeat = False,
    json: Json = False,
) -> None:
    """Do many tasks from a file, each by an agent in a fresh sandbox, and check what each did.

    DIR/results.jsonl gets a line for each task; the same command again does what has none yet. Sessions are kept in
    DIR/sessions.db. Ctrl-C lets the running tasks finish and begins no others; a second one ends them.

    The exit code is 0; 1 if tasks were lost; 2 for a mistake, and if the batch stopped by itself; 130 after Ctrl-C.

    \b
    handrail batch tasks.jsonl --out results --model anthropic:claude-opus-5 --jobs 16
    handrail batch tasks.jsonl --out results --retry lost
    """
    options = _run_batch.BatchOptions(
        tasks, out, model, jobs, samples, tries, rounds, calls, seconds, system, tools, allow_weaker, limit,
        tuple(only or ()), retry == "lost", may_repeat, json,
    )  # fmt: skip
    run_command(partial(_run_batch.run, options))
