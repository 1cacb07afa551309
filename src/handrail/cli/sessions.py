"""`handrail sessions`: list, show, check, export, replay, go on with, branch and remove stored conversations."""

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from handrail.cli._app import Command, Full, Options, new_app, or_exit, run, with_options
from handrail.cli.run import MAX_CALLS_COUNT, MAX_ROUNDS_COUNT, Model
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.cli import _chat, _run_task, _sessions
else:
    _chat = Lazy("handrail.cli._chat")
    _run_task = Lazy("handrail.cli._run_task")
    _sessions = Lazy("handrail.cli._sessions")

Id = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A session, by the beginning of its id; `last` is the newest of this directory, or of all."
    ),
]
Store = Annotated[
    str | None, typer.Option("--store", metavar="DIR", help="The directory of a batch; your own store without it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
app = new_app(
    no_args_is_help=True, help="List, show, check, export, replay, go on with, branch and remove conversations."
)


@app.command("list", cls=Command)
def list_sessions(json: Json = False, store: Store = None) -> None:
    """List the stored conversations, the one that changed last first."""
    or_exit(lambda: _sessions.list_sessions(json, store))


@app.command(cls=Command)
def show(id: Id, json: Json = False, full: Full = False, store: Store = None) -> None:
    """Show a conversation: prompts, answers, calls and what they did; with --json, its events."""
    or_exit(lambda: _sessions.show(id, json, full, store))


@app.command(cls=Command)
def check(
    id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="As for the other commands; all of them without it.")
    ] = None,
    json: Json = False,
) -> None:
    """Look for damage: compare conversations with their digests, end marks and artifacts. Exits with 1 if there is."""
    raise typer.Exit(0 if or_exit(lambda: _sessions.check(id, json)) else 1)


@app.command(cls=Command)
def replay(
    id: Id, speed: Annotated[float, typer.Option(min=0, help="How many times faster; 0 does not wait.")] = 1.0
) -> None:
    """Show the stored events again, in the time that they took, with long pauses cut. Nothing runs."""
    or_exit(lambda: _sessions.replay(id, speed))


@app.command(cls=Command)
def export(
    id: Id,
    file: Annotated[str | None, typer.Argument(help="Where to; standard output without it.")] = None,
    form: Annotated[
        Literal["handrail", "chat", "atif"],
        typer.Option("--as", help="handrail, with artifacts, to load again; chat, OpenAI's messages; or atif."),
    ] = "handrail",
    store: Store = None,
) -> None:
    """Write a conversation as lines of JSON, with its artifacts; or as a trajectory for evaluation and training."""
    or_exit(lambda: _sessions.export(id, file, form, store))


@app.command(cls=Command)
@with_options
def resume(
    id: Id,
    prompt: Annotated[str | None, typer.Argument(help="What the model should do next; without it, chat.")] = None,
    model: Model = None,
    *,
    options: Options,
) -> None:
    """Go on with a conversation, in a chat, or with a prompt as `handrail run` does. What had begun is not repeated."""
    if prompt is None:
        run(partial(_chat.run_chat, model, id, options))
    run(partial(_run_task.run_task, prompt, model, id, MAX_ROUNDS_COUNT, MAX_CALLS_COUNT, options, sys.stdin))


@app.command(cls=Command)
def fork(
    id: Id,
    at: Annotated[int | None, typer.Option(min=0, help="The last event that the copy has; all if absent.")] = None,
) -> None:
    """Copy a conversation, or the beginning of it, and print the id of the copy."""
    or_exit(lambda: _sessions.fork(id, at))


@app.command(cls=Command)
def rm(ids: Annotated[list[str], typer.Argument(metavar="ID…", help="As for the other commands.")]) -> None:
    """Remove conversations, with the artifacts that no other has."""
    or_exit(lambda: _sessions.remove(ids))
