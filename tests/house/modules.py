"""Modules: what a room holds, which are helpers (`_x.py`), that none is a scrap, and that none imports in a circle."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.house.reading import functions, imported, lines, package, room, sources, tree

SMALLEST = 30
TIED_ROOMS = {"sandbox", "session"}
"""Rooms inside which modules still import each other in a circle, for type checkers."""

Holds = Callable[[Path], bool]


def is_gate(path: Path) -> bool:
    return any(
        node.name == path.stem and [argument.arg for argument in node.args.args] == ["step", "proceed"]
        for node in functions(tree(path))
    )


def is_tool(path: Path) -> bool:
    return any(node.name == path.stem and "tool" in _decorators(node) for node in functions(tree(path)))


def is_command(path: Path) -> bool:
    """A command, or a group of them: its functions join the app of the file."""
    return any("app.command" in _decorators(node) for node in functions(tree(path))) or "app.callback" in {
        each for node in functions(tree(path)) for each in _decorators(node)
    }


def is_driver(path: Path) -> bool:
    return any(node.name == f"open_{path.stem}" for node in functions(tree(path)))


def is_model(path: Path) -> bool:
    return any(node.name in ("ask", "connect") for node in functions(tree(path)))


def is_shown(path: Path) -> bool:
    """Whether its package's `__init__` exports something of it."""
    door = path.with_name("__init__.py")
    return door.exists() and any(name.endswith(f".{path.stem}") for name in _imports(door))


def always(path: Path) -> bool:
    return True


HOLDS: dict[str, Holds] = {
    "agent": always,  # the parts of the loop
    "cli": is_command,
    "contract": always,
    "drivers": is_driver,
    "gates": is_gate,
    "models": is_model,
    "testing": is_shown,
    "tools": is_tool,
}
"""What a room exists to hold; for the others it is the modules that another room imports."""


def helpers_have_a_leading_underscore(root: Path) -> list[str]:
    """A helper is a module that only its own package imports, and that is not what the package exists to hold."""
    importers = _importers(root)
    return [
        f"{path}: only {path.parent.name}/ imports it; call it _{path.name}"
        for path in _modules(root)
        if not path.name.startswith("_") and not _is_held(root, path, importers) and not is_shown(path)
        if (users := importers.get(_dotted(root, path))) and all(path.parent in user.parents for user in users)
    ]


def modules_with_an_underscore_stay_in_their_room(root: Path) -> list[str]:
    importers = _importers(root)
    return [
        f"{path}: {importer.relative_to(package(root))} imports it, so it is not a helper; call it {path.name[1:]}"
        for path in _modules(root)
        if path.name.startswith("_")
        for importer in importers.get(_dotted(root, path), ())
        if room(root, importer) != room(root, path)
    ]


def no_module_is_a_scrap(root: Path) -> list[str]:
    """A module that a room exists to hold may be short; any other belongs in the module that uses it."""
    importers = _importers(root)
    return [
        f"{path}: {lines(path)} lines; merge it into the module that uses it"
        for path in _modules(root)
        if lines(path) < SMALLEST and not _is_held(root, path, importers)
    ]


def no_module_imports_in_a_circle(root: Path) -> list[str]:
    """Imports for type checkers and lazy ones count too: a circle of types is a circle of ideas."""
    known = {_dotted(root, path).removesuffix(".__init__"): path for path in sources(root)}
    door = package(root).name  # it names everything, and rooms_do_not_use_the_front_door
    graph = {name: _inside(path, known) - {name, door} for name, path in known.items() if name != door}
    return [
        f"{known[circle[0]]}: imports in a circle: {' > '.join(sorted(circle))}"
        for circle in _circles(graph)
        if not all(name.split(".")[1] in TIED_ROOMS for name in circle)
    ]


def _inside(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of the package that a module imports: of `from a import b` the module a.b, or else a."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom):
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else str(node.module) for name in named}
    return found & known.keys()


def _circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other."""
    reached = {name: _reached(graph, name) for name in graph}
    groups = {frozenset({name, *(other for other in reached[name] if name in reached[other])}) for name in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    found, waiting = set[str](), [start]
    while waiting:
        fresh = graph[waiting.pop()] - found
        found |= fresh
        waiting += fresh
    return found - {start}


def _modules(root: Path) -> Iterator[Path]:
    return (path for path in sources(root) if room(root, path) and path.name != "__init__.py")


def _is_held(root: Path, path: Path, importers: dict[str, list[Path]]) -> bool:
    if holds := HOLDS.get(room(root, path)):
        return holds(path)
    return any(room(root, user) != room(root, path) for user in importers.get(_dotted(root, path), ()))


def _importers(root: Path) -> dict[str, list[Path]]:
    """The modules that import each module."""
    importers: dict[str, list[Path]] = {}
    for path in sources(root):
        for name in _imports(path):
            importers.setdefault(name, []).append(path)
    return importers


def _imports(path: Path) -> set[str]:
    """What a module imports, by dotted names; `from a import b` may mean the module a or the module a.b."""
    names = set()
    for node in ast.walk(tree(path)):
        names |= set(imported(node))
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _dotted(root: Path, path: Path) -> str:
    return ".".join(path.relative_to(package(root).parent).with_suffix("").parts)


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {ast.unparse(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list}
