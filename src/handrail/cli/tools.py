"""`handrail tools`: show the built-in tools to a person, or their schemas to a program."""

import json
from typing import Annotated, Any

import typer

from handrail.cli._app import app, or_exit
from handrail.toolkit.toolbox import Toolbox
from handrail.tools.builtin import builtin_tools


@app.command()
def tools(
    schema: Annotated[str | None, typer.Option(help="Print the schemas for this provider as JSON.")] = None,
    profile: Annotated[str, typer.Option(help="coding, read_only or all.")] = "all",
) -> None:
    """List the built-in tools, or print their schemas."""
    or_exit(lambda: print(list_tools(schema, profile), flush=True))


def list_tools(schema: str | None, profile: Any) -> str:
    """A line for each tool, or the schemas of one provider as JSON."""
    box = Toolbox(builtin_tools(profile))
    if schema is not None:
        return json.dumps(box.schemas(schema), indent=2, ensure_ascii=False)
    rows = [
        (tool.name, tool.risk, ", ".join(sorted(tool.effects)) or "-", tool.description.split("\n")[0]) for tool in box
    ]
    width = max(len(name) for name, *_ in rows)
    return "\n".join(f"{name:<{width}}  {risk:<5} {effects:<14} {summary}" for name, risk, effects, summary in rows)
