"""`handrail call`: use one tool by hand, with live output, approval in the terminal, and Ctrl-C for the whole tree."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from handrail.cli._app import MISTAKE, NOT_RUN, Command, Options, new_app, run, with_options
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.cli import _argument_syntax, _call_session
    from handrail.toolkit import toolbox as _toolbox
    from handrail.tools import alone as _alone
    from handrail.tools import builtin as _builtin
    from handrail.tools import plugins as _plugins
else:
    _argument_syntax = Lazy("handrail.cli._argument_syntax")
    _call_session = Lazy("handrail.cli._call_session")
    _toolbox = Lazy("handrail.toolkit.toolbox")
    _alone = Lazy("handrail.tools.alone")
    _builtin = Lazy("handrail.tools.builtin")
    _plugins = Lazy("handrail.tools.plugins")

ARGUMENTS = (
    "Its arguments: name=value, name=@file for what is in a file, JSON, or one text for a tool that requires one; "
    "- reads JSON from standard input."
)


class CallCommand(Command):
    """A wrong option exits with 125 too: 2 would be taken for the command's own code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "exit_code", None) == MISTAKE:
                error.exit_code = NOT_RUN  # type: ignore[attr-defined]
            raise


app = new_app()


@app.command(cls=CallCommand)
@with_options
def call(
    tool: Annotated[str, typer.Argument(help="The tool's name; `handrail tools` lists them.")],
    arguments: Annotated[list[str] | None, typer.Argument(help=ARGUMENTS)] = None,
    *,
    options: Options,
) -> None:
    """Use one tool by hand, in a jail on the current directory.

    In a terminal, output is shown as it comes, then one line. Otherwise the result envelope goes to standard output,
    and live output to standard error. Ctrl-C stops the running command and everything it started; a second Ctrl-C
    stops without waiting.

    The exit code is the command's; 124 after a timeout, 130 after Ctrl-C, 125 if the call did not run, and 1 if a tool
    that runs no command failed.

    \b
    handrail call bash 'pytest -q'
    handrail call bash command='pytest -q' timeout=60
    handrail call write path=copy.txt content=@README.md
    handrail call read '{"path": "README.md", "limit": 20}'
    """
    run(partial(call_tool, tool, arguments or [], options), mistake=NOT_RUN)


async def call_tool(tool: str, words: list[str], options: Options) -> int:
    """Make the call and show its result. Returns the code to exit with."""
    notes: list[str] = []
    alone = _alone.tool_alone(tool)
    tools = _toolbox.Toolbox([alone] if alone is not None else _builtin.builtin_tools("all"))
    if tool not in tools:  # loading plugins takes a while
        tools = _toolbox.Toolbox(_plugins.every_tool(notes.append))
    arguments = _argument_syntax.read_words(tools.get(tool), words)
    async with _call_session.open_call_session(options, tools, lasting=False) as session:
        for note in notes:
            session.say(note)
        return await session.call(tool, arguments)
