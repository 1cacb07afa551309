"""What Monty's part of Python does not have, as far as that can be seen before a script runs."""

import ast
import builtins
from collections.abc import Iterator
from typing import Final

from handrail.tools._script_checked import checked
from handrail.tools._script_engine import CannotRun
from handrail.tools._script_plan import bound
from handrail.tools._script_syntax import parsed

MODULES: Final = frozenset((
    "base64", "binascii", "bisect", "collections", "copy", "csv", "dataclasses", "datetime", "decimal",
    "functools", "hashlib", "itertools", "json", "math", "random", "re", "time", "tomllib", "typing", "unicodedata",
))  # fmt: skip
"""What can be imported. Monty also has event loops, and os, pathlib and sys, without the machine behind them."""
NAMES: Final = frozenset((
    "BaseExceptionGroup", "BlockingIOError", "BrokenPipeError", "BufferError", "BytesWarning", "ChildProcessError",
    "ConnectionAbortedError", "ConnectionError", "ConnectionRefusedError", "ConnectionResetError",
    "DeprecationWarning", "EOFError", "EncodingWarning", "EnvironmentError", "ExceptionGroup", "FloatingPointError",
    "FutureWarning", "GeneratorExit", "IOError", "ImportWarning", "IndentationError", "InterruptedError",
    "PendingDeprecationWarning", "ProcessLookupError", "PythonFinalizationError", "ReferenceError",
    "ResourceWarning", "RuntimeWarning", "_IncompleteInputError",
    "StopAsyncIteration", "SyntaxWarning", "SystemError", "TabError", "UnicodeError", "UnicodeTranslateError",
    "UnicodeWarning", "UserWarning", "Warning", "__build_class__", "__import__", "__loader__", "aiter", "anext",
    "ascii", "breakpoint", "bytearray", "callable", "classmethod", "compile", "copyright", "credits", "delattr",
    "dir", "exit", "globals", "help", "input", "issubclass", "license", "memoryview", "quit", "staticmethod",
    "super", "vars", "eval", "exec", "locals", "object", "open",
))  # fmt: skip
"""Built-in names that Monty lacks; it has the last five, but they do not do what those of Python do."""
ERROR_PARTS: Final = frozenset({"kind", "message", "field", "retryable"})


def text_for_monty(code: str) -> str:
    """The script as Monty reads it; its lines keep their numbers. Raises CannotRun."""
    tree = parsed(code)
    nodes = list(ast.walk(tree))
    own = bound(tree)
    for line, what in sorted(_lacking(nodes, own)):
        raise CannotRun(f"line {line}: Monty does not have {what}")
    text = _outdented(code, tree)
    return checked(text if text != code and _means(text) == ast.dump(tree) else code, own)


def _outdented(code: str, tree: ast.Module) -> str:
    """The script without the indentation that all its lines share; strings of many lines are not touched."""
    code = code.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    first = next(ast.iter_child_nodes(tree), None)
    lines = code.split("\n")
    indent = lines[first.lineno - 1][: first.col_offset] if isinstance(first, ast.stmt) else ""
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)]
    inside = {line for node in strings for line in range(node.lineno + 1, (node.end_lineno or 0) + 1)}
    return "\n".join(line if at in inside else line.removeprefix(indent) for at, line in enumerate(lines, start=1))


def _means(text: str) -> str:
    try:
        return ast.dump(parsed(text))
    except SyntaxError:
        return ""


def _lacking(nodes: list[ast.AST], own: set[str]) -> Iterator[tuple[int, str]]:
    catches = any(isinstance(node, ast.Name) and node.id == "ToolError" for node in nodes)
    catches |= any(isinstance(node, ast.keyword) and node.arg == "return_exceptions" for node in nodes)
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((node.lineno, f"the module {name}") for name in _modules(node) if name not in MODULES)
            yield from ((node.lineno, "import *") for alias in node.names if alias.name == "*")
        elif isinstance(node, ast.Name) and node.id in NAMES - own:
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and node.attr in ERROR_PARTS and catches:
            yield node.lineno, f"the .{node.attr} of a ToolError; str(error) is 'kind: message'"
        elif isinstance(node, ast.Subscript) and _is_tools(node.value) and "tools" not in own:
            yield node.lineno, "tools[…]; use getattr(tools, name)"
        elif isinstance(node, ast.Call):
            yield from _calls_back(node)
            yield from _odd_errors(node, own)
            if catches and _reads_a_part(node):
                yield node.lineno, "attributes of a ToolError"


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return ["." if node.level else str(node.module).partition(".")[0]]
    return [alias.name.partition(".")[0] for alias in node.names]


def _is_tools(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "tools"


def _calls_back(node: ast.Call) -> Iterator[tuple[int, str]]:
    """A tool that is given to a function, as in `map(tools.read, …)` and `sorted(…, key=lambda …)`."""
    if isinstance(node.func, ast.Name) and node.func.id == "call":
        return
    if isinstance(node.func, ast.Attribute) and _is_tools(node.func.value):
        return
    for given in (*node.args, *(word.value for word in node.keywords)):
        inside = ast.walk(given) if isinstance(given, ast.Lambda) else (given,)
        if any(isinstance(each, ast.Attribute) and _is_tools(each.value) for each in inside):
            yield node.lineno, "tools that other functions call, as in map(tools.read, …); write a loop"


def _odd_errors(node: ast.Call, own: set[str]) -> Iterator[tuple[int, str]]:
    """An error that is made of anything but one text."""
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    known = getattr(builtins, name, None) if name not in own else None
    if name != "ToolError" and not (isinstance(known, type) and issubclass(known, BaseException)):
        return
    is_text = all(not isinstance(each, ast.Constant) or isinstance(each.value, str) for each in node.args)
    if node.keywords or len(node.args) > 1 or not is_text:
        yield node.lineno, f"a {name} of anything but one text"


def _reads_a_part(node: ast.Call) -> bool:
    return (
        isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and any(isinstance(each, ast.Constant) and each.value in ERROR_PARTS for each in node.args)
    )
