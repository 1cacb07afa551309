"""`handrail tools`: show the built-in tools and those of plugins to a person, or their schemas to a program."""

import json
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from handrail.cli._app import Command, new_app, or_exit
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.toolkit import toolbox as _toolbox
    from handrail.tools import builtin as _builtin
    from handrail.tools import plugins as _plugins
else:
    _toolbox = Lazy("handrail.toolkit.toolbox")
    _builtin = Lazy("handrail.tools.builtin")
    _plugins = Lazy("handrail.tools.plugins")

NARROW: Final = 72
"""Columns below which a summary has lines of its own."""


app = new_app()


@app.command(cls=Command)
def tools(
    schema: Annotated[str | None, typer.Option(help="Print the schemas for this provider as JSON.")] = None,
    profile: Annotated[str, typer.Option(help="coding, read_only or all.")] = "all",
) -> None:
    """List the built-in tools and those of plugins, with where each comes from, or print their schemas."""
    or_exit(lambda: print(list_tools(schema, profile), flush=True))


def list_tools(schema: str | None, profile: Any) -> str:
    """A line for each tool, or the schemas of one provider as JSON. A plugin that is left out has a line too."""
    own, found = _builtin.builtin_tools(profile), _plugins.plugins() if profile == "all" else []
    box = _toolbox.Toolbox([*own, *(tool for plugin in found for tool in plugin.tools)])
    if schema is not None:
        return json.dumps(box.schemas(schema), indent=2, ensure_ascii=False)
    source = {tool.name: plugin.source for plugin in found for tool in plugin.tools}
    rows = [
        (
            (tool.name, tool.risk, ", ".join(sorted(tool.effects)) or "-", source.get(tool.name, "built in")),
            tool.description.split("\n")[0],
        )
        for tool in box
    ]
    width, home = max(len(row[0][0]) for row in rows), max(len(row[0][3]) for row in rows)
    head = [f"{name:<{width}}  {risk:<5} {effects:<14} {come:<{home}}  " for (name, risk, effects, come), _ in rows]
    lines = [_fit(*pair) for pair in zip(head, (row[-1] for row in rows), strict=True)]
    broken = [f"! {plugin.name} ({plugin.source}) is left out: {plugin.problem}" for plugin in found if plugin.problem]
    return "\n".join([*lines, *broken])


def _fit(head: str, summary: str) -> str:
    """One line, or in a terminal as many as it needs, none of them broken within a word."""
    if not sys.stdout.isatty():
        return head + summary
    columns = shutil.get_terminal_size().columns - 1
    if columns < NARROW:
        short = " ".join(head.split())  # where every column counts, the columns of the table are given up
        parts = [textwrap.fill(text, columns, initial_indent="  ", subsequent_indent="  ") for text in (short, summary)]
        return "\n".join([parts[0][2:], parts[1]])
    return textwrap.fill(summary, columns, initial_indent=head, subsequent_indent=" " * len(head))
