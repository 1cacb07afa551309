"""Values that leave a script in Monty are checked there: what has no JSON form would come out as its text."""

import ast
import re
from collections.abc import Iterator, Set
from typing import Final

from handrail.tools._script_child import ADVICE, DEEPEST
from handrail.tools._script_syntax import results

PRELUDE: Final = f"""
from binascii import Incomplete as ToolError
def _json_(value, path, known=None, depth=0, advice={ADVICE!r}, dict=dict, enumerate=enumerate,
           float=float, id=id, int=int, isinstance=isinstance, list=list, str=str, tuple=tuple,
           type=type, TypeError=TypeError):
    if value is None or isinstance(value, (str, int, float)) or type(value).__name__ == 'Ref':
        return value
    known = {{}} if known is None else known
    if known.get(id(value)):
        return value
    if depth > {DEEPEST} or id(value) in known:
        raise TypeError(path[:80] + ' contains itself, or is nested too deeply')
    known[id(value)] = False
    if isinstance(value, dict):
        for key, held in value.items():
            if not isinstance(held, (str, int, float)):
                _json_(held, f'{{path}}[{{key!r}}]', known, depth + 1)
    elif isinstance(value, (list, tuple)):
        for at, held in enumerate(value):
            if not isinstance(held, (str, int, float)):
                _json_(held, f'{{path}}[{{at}}]', known, depth + 1)
    else:
        kind = type(value).__name__.replace('Incomplete', 'ToolError')
        instead = advice.get(kind, 'use plain data: dict, list, str, int, float, bool or None')
        raise TypeError(f'{{path}} is a {{kind}}, which has no JSON form; {{instead}}')
    known[id(value)] = True
    return value
def _argument_(value, path, check=_json_, TypeError=TypeError, ToolError=ToolError):
    try:
        return check(value, path)
    except TypeError as error:
        raise ToolError(f'invalid_args: {{error}}')
"""
"""What every script can use. No class of Monty's can be raised; this one stands for ToolError, and nothing else raises
it. A value that contains itself would come out with the text "[...]" in its place, a function as its name. A script may
give the names of built-in functions to other things: the functions here keep their own."""
Change = tuple[int, int, int, str]


def checked(text: str, own: Set[str]) -> str:
    """The script with its result and the arguments of its calls checked, but for calls of names that are its `own`.

    Its lines keep their numbers.
    """
    data = text.encode("utf-8", "surrogatepass")
    starts = [0, *(found.end() for found in re.finditer(b"\n", data))]
    try:
        made = _changed(data, sorted(_changes(ast.parse(text), starts, own))).decode("utf-8", "surrogatepass")
        ast.parse(made)
    except (SyntaxError, ValueError):
        return text
    return made


def _changes(tree: ast.Module, starts: list[int], own: Set[str]) -> Iterator[Change]:
    """What is inserted, at which byte: first what ends there, the inner one before the outer one."""
    found = ((node, "_json_", "the result") for node in results(tree))
    for node, function, path in (*found, *_arguments(tree, own)):
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        yield first, 1, -last, f"{function}(("
        yield last, 0, -first, f"), {path!r})"


def _changed(data: bytes, changes: list[Change]) -> bytes:
    ends = [*(at for at, *_ in changes), len(data)]
    pieces = [data[: ends[0]]]
    for (at, _, _, text), end in zip(changes, ends[1:], strict=True):
        pieces += [text.encode(), data[at:end]]
    return b"".join(pieces)


def _arguments(node: ast.AST, own: Set[str]) -> Iterator[tuple[ast.expr, str, str]]:
    if isinstance(node, ast.JoinedStr):  # before 3.12, Python does not tell where its parts are
        return
    if isinstance(node, ast.Call) and (name := called(node)) and name.partition(".")[0] not in own:
        for word in node.keywords:
            yield word.value, "_argument_", f"{name}: {word.arg}" if word.arg else name
    for inner in ast.iter_child_nodes(node):
        yield from _arguments(inner, own)


def called(node: ast.Call) -> str:
    """`tools.NAME` or `call`, if it is a call of these."""
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "tools":
        return "" if node.func.attr == "gather" else f"tools.{node.func.attr}"
    return "call" if isinstance(node.func, ast.Name) and node.func.id == "call" else ""
