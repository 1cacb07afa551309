"""The rule of the house about words: a docstring begins with a noun or an imperative, not with a riddle."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.reading import sources, tree

RIDDLE = re.compile(r"(?:What|Who|Where|One whose|Of|By|As)\b")


def docstrings_begin_with_their_subject(root: Path) -> list[str]:
    """Applies to modules, classes and functions, and to the string after a constant or a field."""
    return [
        f"{path}:{line}: a docstring begins with {first[0]!r}; begin with a noun or an imperative verb"
        for path in sources(root)
        for line, text in _docstrings(tree(path))
        if (first := RIDDLE.match(text))
    ]


def _docstrings(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Every string that is a statement of its own, with its line."""
    for node in ast.walk(module):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()
