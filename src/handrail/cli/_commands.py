"""The table of commands: each is the file of its name, loaded when it is typed (docs/decisions/005)."""

import shutil
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from handrail.cli._app import WIDEST_HELP, Command
from handrail.cli._installed import version_line

if TYPE_CHECKING:
    from handrail.cli.batch import app as batch
    from handrail.cli.call import app as call
    from handrail.cli.chat import app as chat
    from handrail.cli.conform import app as conform
    from handrail.cli.demo import app as demo
    from handrail.cli.doctor import app as doctor
    from handrail.cli.init import app as init
    from handrail.cli.mcp import app as mcp
    from handrail.cli.run import app as run
    from handrail.cli.sessions import app as sessions
    from handrail.cli.shell import app as shell
    from handrail.cli.tools import app as tools
    from handrail.cli.trust import app as trust

COMMANDS: Final = {
    "batch": "Do many tasks from a file, each by an agent in a fresh sandbox, and check what each did.",
    "call": "Use one tool by hand, in a jail on the current directory.",
    "chat": "Talk with a model that uses the built-in tools, in a jail on the current directory.",
    "conform": "Put a driver through the conformance kit.",
    "demo": "Watch a scripted model use live tools in a real sandbox. Needs no key and no network.",
    "doctor": "Tell what each sandbox driver enforces on this machine, found by trying.",
    "init": "Write a commented handrail.toml into the workspace, or your own; one that exists stays as it is.",
    "mcp": "Serve the built-in tools to a client of the Model Context Protocol.",
    "run": "Let a model do one task with the built-in tools, in a jail on the current directory.",
    "sessions": "List, show, check, export, replay, go on with, branch and remove conversations.",
    "shell": "Use tools by hand, one call per line, in one session.",
    "tools": "List the built-in tools and those of plugins, with where each comes from, or print their schemas.",
    "trust": "Accept the handrail.toml of a workspace, and [tool.handrail] of its pyproject.toml, as they are now.",
}
"""The first sentence of each command's help, by the command's name."""
HELP: Final = """The tool runtime between a language model and the side effects it causes.

Begin with `handrail demo`. `handrail chat` talks with a model that uses the tools, `handrail run` lets one do a task,
and `handrail mcp` serves the tools to an editor or an assistant. `handrail tools` lists them; `handrail call` and
`handrail shell` use them by hand. Each command says more: `handrail chat --help`.
"""


class Commands(TyperGroup):
    """The commands of the table. The help shows the table; a command's file is loaded once its name is typed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update({name: Command(name, help=summary) for name, summary in COMMANDS.items()})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Load the command that was typed, in place of its row."""
        name, _, rest = super().resolve_command(ctx, args)
        if name is not None:
            self.commands[name] = get_command(import_module(f"handrail.cli.{name}").app)
        return name, None if name is None else self.commands[name], rest


app = typer.Typer(
    name="handrail",
    cls=Commands,
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "terminal_width": min(shutil.get_terminal_size().columns - 1, WIDEST_HELP),
    },
    rich_markup_mode=None,  # plain help starts three times as fast, and fits every terminal
)


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
