"""Read a tree of sources, the real one or a planted one, for the rules of the house."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOMS = ("src", "tests", "docs", "bench", "examples", ".github")
TEXTS = ("*.md", "*.py", "*.toml", ".ci/*", *(f"{name}/**/*" for name in ROOMS))
READABLE = {".py", ".md", ".c", ".h", ".toml", ".txt", ".yml", ""}


def package(root: Path) -> Path:
    return root / "src" / "handrail"


def sources(root: Path) -> list[Path]:
    """Every Python file of the package."""
    return sorted(package(root).rglob("*.py"))


def room(root: Path, path: Path) -> str:
    """The first directory below the package; empty for the package's own files."""
    parts = path.relative_to(package(root)).parts
    return parts[0] if len(parts) > 1 else ""


def tree(path: Path) -> ast.Module:
    return parse(path.read_text(encoding="utf-8"), str(path))


@cache
def parse(text: str, name: str) -> ast.Module:
    return ast.parse(text, name)


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def texts(root: Path) -> Iterator[tuple[Path, str]]:
    """Every text file of the project, with its content."""
    found = {path for pattern in TEXTS for path in root.glob(pattern)}
    for path in sorted(found):
        if path.is_file() and path.suffix in READABLE and "__pycache__" not in path.parts:
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:  # a compiled program has no suffix either
                continue


def functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def imported(node: ast.AST) -> list[str]:
    """The dotted names of the modules that an import statement names; empty for any other node."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
