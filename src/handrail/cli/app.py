"""The commands of `handrail`, each a few lines; what they do is in the file of its name."""

import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, TypeVar

import anyio
import typer

from handrail.cli.call import CallOptions, call_tool
from handrail.cli.demo import DemoOptions, run_demo
from handrail.cli.doctor import as_json, examine, render
from handrail.cli.tools import list_tools
from handrail.contract.errors import HandrailError

T = TypeVar("T")
app = typer.Typer(
    name="handrail",
    help="The tool runtime between a language model and the side effects it causes. "
    "Begin with `handrail demo`; `handrail tools` lists what `handrail call` can use.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Driver = Annotated[str, typer.Option(help="auto, jail, host, or the name of an installed driver.")]
AllowWeaker = Annotated[bool, typer.Option("--allow-weaker", help="Run without isolation where no jail can be made.")]
MODES = (
    "What needs your approval: contained, whatever leaves the sandbox; ask, also writes and commands; strict, "
    "everything that is not safe; open, nothing."
)
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve what would be asked, and never wait for input.")]


@app.command()
def demo(yes: Yes = False, driver: Driver = "auto", allow_weaker: AllowWeaker = False) -> None:
    """Watch a scripted model use live tools in a real sandbox. Needs no key and no network."""
    _run(partial(run_demo, DemoOptions(yes=yes, driver=driver, allow_weaker=allow_weaker)))


@app.command()
def call(
    tool: Annotated[str, typer.Argument(help="The tool's name; `handrail tools` lists them.")],
    arguments: Annotated[str, typer.Argument(help="Its arguments as JSON; - reads them from standard input.")] = "{}",
    workspace: Annotated[str, typer.Option(help="The directory the tool may work in.")] = ".",
    driver: Driver = "auto",
    allow_weaker: AllowWeaker = False,
    network: Annotated[str, typer.Option(help="none or full.")] = "none",
    mode: Annotated[str, typer.Option(help=MODES)] = "contained",
    yes: Yes = False,
) -> None:
    """Use one tool by hand, in a jail on the current directory.

    The result envelope goes to standard output, live output to standard error. Ctrl-C ends the running command with
    everything it started; a second one ends at once.

        handrail call bash '{"command": "pytest -q", "timeout": 60}'
        handrail call read '{"path": "README.md", "limit": 20}'
    """
    text = sys.stdin.read() if arguments == "-" else arguments
    options = CallOptions(workspace, driver, allow_weaker, network, mode, yes)
    _run(partial(call_tool, tool, text, options))


@app.command()
def tools(
    schema: Annotated[str | None, typer.Option(help="Print the schemas for this provider as JSON.")] = None,
    profile: Annotated[str, typer.Option(help="coding, read_only or all.")] = "all",
) -> None:
    """List the built-in tools, or print their schemas."""
    _or_fail(lambda: print(list_tools(schema, profile), flush=True))


@app.command()
def doctor(json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """Tell what each sandbox driver enforces on this machine, found by trying."""
    reports = anyio.run(examine)
    print(as_json(reports) if json else render(reports))


def _run(work: Callable[[], Awaitable[int]]) -> None:
    """Run an async command; its exit code becomes ours, and a person's mistake is one line, not a traceback."""
    raise typer.Exit(_or_fail(lambda: anyio.run(work)))


def _or_fail(work: Callable[[], T]) -> T:
    try:
        return work()
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except (HandrailError, OSError) as error:
        typer.echo(f"handrail: {error}".replace("allow_weaker=True", "--allow-weaker"), err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
