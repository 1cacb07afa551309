"""Parse and compile a script, whose last expression or `return` is its result: before it runs, and where it runs.

It imports nothing of Handrail, and works with Python 3.8 and later: its text is part of the program in the sandbox.
"""

from __future__ import annotations
import __future__

import ast
import re
import warnings

TYPE_CHECKING = False  # importing typing would cost each interpreter memory, and time at its end
if TYPE_CHECKING:
    from typing import Any

NAME = "<script>"
ANNOTATIONS = __future__.annotations.compiler_flag


def parsed(code: str) -> ast.Module:
    """Parse the script; its lines keep their numbers. Raises SyntaxError, ValueError or RecursionError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an escape such as "\d"
        code = code.lstrip("\ufeff")  # the mark at the beginning of some files
        try:
            return ast.parse(code, NAME)
        except IndentationError as error:
            return indented(code, error)


def indented(code: str, error: SyntaxError) -> ast.Module:
    """Parse a script all of whose lines are indented; its strings stay as they are. Raises the later of both errors."""
    try:
        tree = ast.parse("if True:\n" + code, NAME)
    except SyntaxError as inner:
        inner.lineno = (inner.lineno or 1) - 1
        inner.msg = re.sub(r"(?<=line )\d+", lambda found: str(int(found.group()) - 1), inner.msg)
        raise (inner if inner.lineno > (error.lineno or 0) else error) from None
    tree.body = tree.body[0].body  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        for name in ("lineno", "end_lineno"):
            if getattr(node, name, None) is not None:
                setattr(node, name, max(1, getattr(node, name) - 1))
    return tree


def compiled(tree: ast.Module) -> tuple[Any, Any]:
    """Two code objects: what to run, and the expression whose value is the result, if there is one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if any(of_script(tree, (ast.Return,))):
            for node in of_script(tree, (ast.Yield, ast.YieldFrom)):  # it would be a generator, which does not run
                raise SyntaxError("'yield' outside function", (NAME, node.lineno, None, None))
            return code_of(as_function(tree)), compile("script()", "<string>", "eval")
        last: Any = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        body = code_of(tree)
        return body, None if last is None else code_of(ast.Expression(last.value), body.co_flags & ANNOTATIONS)


def code_of(tree: Any, flags: int = 0) -> Any:
    """Compile the tree without this file's own `from __future__`."""
    return compile(tree, NAME, "eval" if isinstance(tree, ast.Expression) else "exec", flags, dont_inherit=True)


def read(code: str) -> Any:
    """The compiled script; or the error of compiling it, which is raised where the script would run."""
    try:
        return compiled(parsed(code))
    except BaseException as error:  # noqa: BLE001 - nobody is told yet
        return error


def as_function(tree: ast.Module) -> ast.Module:
    """The script as the body of a function, which returns its last expression as a script without `return` does."""
    first = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    body = [InFunction().visit(node) for node in tree.body if node not in first]
    last = body[-1]
    if isinstance(last, ast.Expr):
        body[-1] = ast.copy_location(ast.Return(last.value), last)
    made: Any = ast.parse("def script(): pass", NAME)
    made.body[0].body = body
    made.body[:0] = first
    if names := own_names(made):  # its functions may say `global`, and its classes can be found by their names
        body.insert(0, ast.fix_missing_locations(ast.Global(names)))
    return made  # type: ignore[no-any-return]


class InFunction(ast.NodeTransformer):
    """Rewrites what a function may not do with global names: `from x import *`, and `x: int = 1`."""

    def visit(self, node: ast.AST) -> Any:
        """Leave functions and classes of the script as they are: there, Python calls these an error."""
        inner = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef))
        return node if inner else super().visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if not isinstance(node.target, ast.Name):
            return node
        made = ast.Pass() if node.value is None else ast.Assign([node.target], node.value)
        return ast.fix_missing_locations(ast.copy_location(made, node))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        if [alias.name for alias in node.names] != ["*"]:
            return node
        text = f"exec('from {'.' * node.level}{node.module or ''} import *', globals())"
        made = ast.copy_location(ast.parse(text).body[0], node)
        for inner in ast.walk(made):
            ast.copy_location(inner, node)
        return made


def own_names(tree: Any) -> list[str]:
    """The names that the script gives to something, but for those that Python does not let be global here."""
    script = next(each for each in code_of(tree).co_consts if getattr(each, "co_name", "") == "script")
    kept = {name for node in ast.walk(tree) if isinstance(node, ast.Nonlocal) for name in node.names}
    return sorted(name for name in {*script.co_varnames, *script.co_cellvars} - kept if name.isidentifier())


def of_script(node: ast.AST, kinds: tuple[Any, ...]) -> Any:
    """The nodes of these kinds that belong to no function."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, kinds):
            yield inner
        elif not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield from of_script(inner, kinds)
