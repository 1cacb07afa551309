"""How a script is read: its last expression or its `return` is its result. Used before it runs, and where it runs.

It imports nothing of Handrail, and works with Python 3.8 and later: its text is part of the program in the sandbox.
"""

import ast
from typing import Any

NAME = "<script>"


def parsed(code: str) -> ast.Module:
    """The script's own lines keep their numbers. Raises SyntaxError and others."""
    try:
        return ast.parse(code, NAME)
    except IndentationError:
        try:  # the whole script may be indented; its strings must stay as they are
            tree = ast.parse("if True:\n" + code, NAME)
        except SyntaxError:
            tree = None
        if tree is None:
            raise
        tree.body = tree.body[0].body  # type: ignore[attr-defined]
        for node in ast.walk(tree):
            for name in ("lineno", "end_lineno"):
                if getattr(node, name, None) is not None:
                    setattr(node, name, max(1, getattr(node, name) - 1))
        return tree


def compiled(code: str) -> "tuple[Any, Any]":
    """Two code objects: what to run, and the expression whose value is the result, if there is one."""
    tree = parsed(code)
    if any(map(returns, tree.body)):
        body: list[ast.stmt] = list(tree.body)
        function: Any = ast.parse("def script(): pass", NAME)
        function.body[0].body = as_value(body)
        return compile(function, NAME, "exec"), compile("script()", NAME, "eval")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    expression = None if last is None else compile(ast.Expression(last.value), NAME, "eval")  # type: ignore[attr-defined]
    return compile(tree, NAME, "exec"), expression


def as_value(body: "list[ast.stmt]") -> "list[ast.stmt]":
    """With a return for a last expression, as in a script without one."""
    last = body[-1]
    if isinstance(last, ast.Expr):
        body[-1] = ast.copy_location(ast.Return(last.value), last)
    return body


def returns(node: ast.AST) -> bool:
    """Whether it has a `return` that belongs to no function."""
    if isinstance(node, ast.Return):
        return True
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
        return False
    return any(map(returns, ast.iter_child_nodes(node)))
