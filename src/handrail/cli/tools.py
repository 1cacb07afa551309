"""`handrail tools`: show the built-in tools to a person, or their schemas to a program."""

import json
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from handrail.cli._app import Command, app, or_exit
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.toolkit import toolbox as _toolbox
    from handrail.tools import builtin as _builtin
else:
    _toolbox = Lazy("handrail.toolkit.toolbox")
    _builtin = Lazy("handrail.tools.builtin")

NARROW: Final = 72
"""Columns below which a summary has lines of its own."""


@app.command(cls=Command)
def tools(
    schema: Annotated[str | None, typer.Option(help="Print the schemas for this provider as JSON.")] = None,
    profile: Annotated[str, typer.Option(help="coding, read_only or all.")] = "all",
) -> None:
    """List the built-in tools, or print their schemas."""
    or_exit(lambda: print(list_tools(schema, profile), flush=True))


def list_tools(schema: str | None, profile: Any) -> str:
    """A line for each tool, or the schemas of one provider as JSON."""
    box = _toolbox.Toolbox(_builtin.builtin_tools(profile))
    if schema is not None:
        return json.dumps(box.schemas(schema), indent=2, ensure_ascii=False)
    rows = [
        (tool.name, tool.risk, ", ".join(sorted(tool.effects)) or "-", tool.description.split("\n")[0]) for tool in box
    ]
    width = max(len(name) for name, *_ in rows)
    head = [f"{name:<{width}}  {risk:<5} {effects:<14} " for name, risk, effects, _ in rows]
    return "\n".join(_fit(*pair) for pair in zip(head, (row[-1] for row in rows), strict=True))


def _fit(head: str, summary: str) -> str:
    """One line, or in a terminal as many as it needs, none of them broken within a word."""
    if not sys.stdout.isatty():
        return head + summary
    columns = shutil.get_terminal_size().columns - 1
    if columns < NARROW:
        return f"{head.rstrip()}\n{textwrap.fill(summary, columns, initial_indent='  ', subsequent_indent='  ')}"
    return textwrap.fill(summary, columns, initial_indent=head, subsequent_indent=" " * len(head))
