"""What the commands share: the app they join, common options, and one line on stderr for a person's mistake."""

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, TypeVar

import anyio
import typer

from handrail.cli._installed import version_line
from handrail.contract.errors import HandrailError

T = TypeVar("T")
MISTAKE: Final = 2
INTERRUPTED: Final = 130
"""Exit codes, as shells use them."""
app = typer.Typer(
    name="handrail",
    help="The tool runtime between a language model and the side effects it causes. "
    "Begin with `handrail demo`; `handrail tools` lists what `handrail call` can use.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Driver = Annotated[str, typer.Option(help="auto, jail, host, or the name of an installed driver.")]
AllowWeaker = Annotated[bool, typer.Option("--allow-weaker", help="Run without isolation where no jail can be made.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve every request, and never wait for input.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_line())
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before a command."""


def run(work: Callable[[], Awaitable[int]]) -> None:
    """Run an async command and exit with the code it returns."""
    raise typer.Exit(or_exit(lambda: anyio.run(work)))


def or_exit(work: Callable[[], T]) -> T:
    """Do the work. A person's mistake ends the program with one line on stderr, not with a traceback."""
    try:
        return work()
    except BrokenPipeError:  # the reader of our output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except (HandrailError, OSError) as error:
        typer.echo(f"handrail: {error}".replace("allow_weaker=True", "--allow-weaker"), err=True)
        raise typer.Exit(MISTAKE) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
