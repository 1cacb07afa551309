"""`handrail run`: one task for a model, from the command line or a program."""

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from handrail.cli._app import Command, Options, new_app, with_options
from handrail.cli._app import run as run_command
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.cli import _run_task
else:
    _run_task = Lazy("handrail.cli._run_task")

Model = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="PROVIDER:NAME", help="The model; without it, one whose key is set here."),
]
Resume = Annotated[
    str | None, typer.Option("--resume", metavar="ID", help="Go on with a stored session; `last` is the newest.")
]
Rounds = Annotated[int, typer.Option(min=1, help="How often the model may be asked.")]
Calls = Annotated[int, typer.Option(min=1, help="How many calls it may make.")]
MAX_ROUNDS_COUNT: Final = 64
MAX_CALLS_COUNT: Final = 500


app = new_app()


@app.command(cls=Command)
@with_options
def run(
    prompt: Annotated[str | None, typer.Argument(help="The task; what is piped in is added to it.")] = None,
    model: Model = None,
    resume: Resume = None,
    rounds: Rounds = MAX_ROUNDS_COUNT,
    calls: Calls = MAX_CALLS_COUNT,
    *,
    options: Options,
) -> None:
    """Let a model do one task with the built-in tools, in a jail on the current directory.

    The answer goes to standard output, and a line for each call to standard error; with --json, every event is a line
    of JSON on standard output. The session is stored: `handrail sessions` lists it. Ctrl-C ends the task.

    The exit code is 0 when it is done; 1 after an error of the model, or an answer that was cut, refused or missing;
    2 for a mistake in the options; 3 if the model asks you something; 4 if rounds or calls were used up; 130 after
    Ctrl-C.

    \b
    handrail run 'Why does the test fail?'
    git diff | handrail run 'Review this.' --model anthropic:claude-opus-5
    handrail run --json --yes 'Add a test for it' --resume last
    """
    run_command(partial(_run_task.run_task, prompt, model, resume, rounds, calls, options, sys.stdin))
