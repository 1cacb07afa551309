"""Tools of other packages, which offer them through the entry point group `handrail.tools`."""

import importlib.metadata
import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, Final

from handrail.contract.errors import HandrailError, describe_error
from handrail.toolkit.as_tool import as_tool
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import RESERVED, Toolbox
from handrail.tools.builtin import ALL

GROUP: Final = "handrail.tools"


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point: what it offers, or why it is left out."""

    name: str
    source: str
    """The package that it comes from, and its version."""
    tools: tuple[Tool, ...] = ()
    problem: str = ""
    """Reason why none of its tools are offered; empty if they are."""


def plugins() -> list[Plugin]:
    """Every plugin, sorted by name. A broken one is there with its problem, and does not stop the rest."""
    taken = {tool.name: "Handrail" for tool in ALL} | dict.fromkeys(RESERVED, "Handrail")
    found = []
    for point in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda each: (each.name, each.value)):
        plugin = _loaded(point, taken)
        taken |= dict.fromkeys((tool.name for tool in plugin.tools), plugin.source)
        found.append(plugin)
    return found


def every_tool(say: Callable[[str], object]) -> list[Tool]:
    """The built-in tools and those of every plugin; `say` is told of a plugin that is left out."""
    found = plugins()
    for plugin in found:
        if plugin.problem:
            say(f"the tools of {plugin.name} ({plugin.source}) are left out: {plugin.problem}")
    return [*ALL, *(tool for plugin in found for tool in plugin.tools)]


def plugin_tools() -> list[Tool]:
    """The tools of every installed plugin. One that is broken is left out with a warning.

    Example:
        ```python
        tools = [*builtin_tools(), *plugin_tools()]
        print("bash" in Toolbox(tools).names())
        #> True
        ```
    """
    found = plugins()
    for plugin in found:
        if plugin.problem:
            warnings.warn(f"the tools of {plugin.name} ({plugin.source}) are left out: {plugin.problem}", stacklevel=2)
    return [tool for plugin in found for tool in plugin.tools]


def _loaded(point: importlib.metadata.EntryPoint, taken: dict[str, str]) -> Plugin:
    source = _source(point)
    if point.pattern.match(point.value) is None:
        return Plugin(point.name, source, problem=f"its entry point names {point.value!r}; write MODULE:NAME")
    try:
        with redirect_stdout(sys.stderr):  # stdout may carry a protocol, or what another program reads
            tools = tuple(_tools(point.load()))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - it is another package's code; a panic of Rust is not an Exception
        return Plugin(point.name, source, problem=f"{point.value} cannot be loaded: {describe_error(error)}")
    for tool in tools:
        if tool.name in taken:
            return Plugin(point.name, source, problem=f"its tool {tool.name} has the name of one of {taken[tool.name]}")
    return Plugin(point.name, source, tools)


def _source(point: importlib.metadata.EntryPoint) -> str:
    """The package and its version; what the entry point names, where the package does not tell."""
    try:
        about = point.dist.metadata if point.dist is not None else None
        told = [about[key] for key in ("Name", "Version") if about is not None and key in about]  # never a missing one
    except Exception:  # noqa: BLE001 - how Python answers for damaged metadata differs by its version
        told = []
    return " ".join(told) if len(told) == 2 and all(told) else point.value


def _tools(given: Any) -> Iterable[Tool]:
    """The tools that an entry point names: one, or a list."""
    if isinstance(given, Toolbox | list | tuple):
        return Toolbox(given)
    if given is None or isinstance(given, type):
        raise HandrailError(f"it names {given!r}, which is neither a tool nor a list of tools")
    return [as_tool(given)]
