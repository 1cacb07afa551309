"""Check a script before it runs: its syntax, the tools that it names, and the names of their arguments."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from handrail.contract.result import Failure
from handrail.misuse import nearest
from handrail.script._calls import sentence
from handrail.script._inside_syntax import compiled, parsed
from handrail.toolkit.hosted import HostedTool, refusal
from handrail.toolkit.tool import Tool

OWN_NAMES: Final = frozenset({"gather"})
"""Names of `tools` that are not tools."""
MAX_CODE_CHARS: Final = 1 << 18
"""Characters of the longest script."""
NAMED: Final = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar,
)  # fmt: skip
"""Nodes that bind their `name`."""


@dataclass(frozen=True, slots=True)
class _Use:
    name: str
    line: int
    keywords: tuple[str, ...] = ()


def read_plan(code: str, tools: Sequence[Tool]) -> frozenset[str] | Failure:
    """The tools that the script names, or a Failure for a script that cannot work."""
    if len(code) > MAX_CODE_CHARS:
        return _not_run(f"it has {len(code):,} characters, and the limit is {MAX_CODE_CHARS:,}")
    finder = _Finder()
    try:
        tree = parsed(code)
        finder.visit(tree)
        compiled(tree)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        text = f" ({error.text.strip()[:100]})" if error.text and error.text.strip() else ""
        hint = "; tools are called without await" if "'await' outside" in str(error.msg) else ""
        return _not_run(f"{where}{error.msg}{text}{hint}")
    except (RecursionError, MemoryError):
        return _not_run("it is nested too deeply")
    except ValueError as error:
        return _not_run(str(error))
    known = {tool.name: tool for tool in tools}
    for use in finder.uses:
        if (why := _wrong(use, known)) and {"tools", "call"}.isdisjoint(_bound(tree)):
            return _not_run(f"line {use.line}: {why}")
    return frozenset(use.name for use in finder.uses)


def _bound(tree: ast.Module) -> set[str]:
    """The names that the script gives to things of its own."""
    return {name for node in ast.walk(tree) for name in _bound_by(node)}


def _bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.MatchMapping):
        yield node.rest or ""
    elif isinstance(node, NAMED):
        yield node.name or ""


def named_tools(arguments: Mapping[str, Any], tools: Sequence[Tool]) -> frozenset[str]:
    """The tools that the script in these arguments names."""
    plan = read_plan(str(arguments.get("code", "")), tools)
    return frozenset() if isinstance(plan, Failure) else plan


def _not_run(why: str) -> Failure:
    """The answer to a script that cannot be run."""
    return Failure("invalid_args", f"The script was not run: {sentence(why)} Nothing was called.", field="code")


def _wrong(use: _Use, known: Mapping[str, Tool]) -> str:
    tool = known.get(use.name)
    if tool is None:
        return f"there is no tool {use.name!r}; {nearest(use.name, sorted(known))}"
    if isinstance(tool, HostedTool):
        return refusal(tool.name).rstrip(".")
    if "script" not in tool.callable_from:
        return f"{use.name} cannot be called by a script; call it directly"
    allowed = tool.parameters.get("properties", {})
    is_open = tool.parameters.get("additionalProperties", True) is not False
    wrong = [name for name in use.keywords if name not in allowed]
    if wrong and not is_open:
        return f"{use.name} has no argument {wrong[0]!r}; {nearest(wrong[0], sorted(allowed))}"
    return ""


class _Finder(ast.NodeVisitor):
    """Collects `tools.NAME(…)`, `tools.NAME` and `call("NAME", …)`."""

    def __init__(self) -> None:
        self.uses: list[_Use] = []

    def visit_Call(self, node: ast.Call) -> None:
        name = _tool_name(node.func)
        keywords = tuple(word.arg for word in node.keywords if word.arg is not None)
        if name is not None and not _is_own(node.func):
            self.uses.append(_Use(name, node.lineno, keywords))
            self._visit_all([*node.args, *node.keywords])
        elif isinstance(node.func, ast.Name) and node.func.id == "call":
            self._planned(node, keywords)
        else:
            self.generic_visit(node)

    def _planned(self, node: ast.Call, keywords: tuple[str, ...]) -> None:
        first = node.args[0] if node.args else None
        named = _tool_name(first) if first is not None else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            named = first.value
        if named is None:
            self.generic_visit(node)
            return
        self.uses.append(_Use(named, node.lineno, keywords))
        self._visit_all([*node.args[1:], *node.keywords])

    def visit_Subscript(self, node: ast.Subscript) -> None:
        name = _tool_name(node)
        if name is None:
            self.generic_visit(node)
        else:
            self.uses.append(_Use(name, node.lineno))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = _tool_name(node)
        if name is None:
            self.generic_visit(node)
        elif not _is_own(node):
            self.uses.append(_Use(name, node.lineno))

    def _visit_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)


def _tool_name(node: ast.AST | None) -> str | None:
    """The NAME of tools.NAME and of tools["NAME"]."""
    if not isinstance(node, ast.Attribute | ast.Subscript) or not isinstance(node.value, ast.Name):
        return None
    if node.value.id != "tools":
        return None
    if isinstance(node, ast.Attribute):
        return None if node.attr.startswith("_") else node.attr
    named = node.slice
    return named.value if isinstance(named, ast.Constant) and isinstance(named.value, str) else None


def _is_own(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in OWN_NAMES
