"""Show the built-in tools to a person, or their schemas to a program."""

import json
from typing import Any

from handrail.toolkit.toolbox import Toolbox
from handrail.tools.builtin import builtin_tools


def list_tools(schema: str | None, profile: Any) -> str:
    """A line for each tool, or the schemas of one provider as JSON."""
    box = Toolbox(builtin_tools(profile))
    if schema is not None:
        return json.dumps(box.schemas(schema), indent=2, ensure_ascii=False)
    rows = [(tool.name, tool.risk, ", ".join(sorted(tool.effects)) or "-", _first(tool.description)) for tool in box]
    width = max(len(name) for name, *_ in rows)
    return "\n".join(f"{name:<{width}}  {risk:<5} {effects:<14} {about}" for name, risk, effects, about in rows)


def _first(description: str) -> str:
    return description.split("\n")[0]
