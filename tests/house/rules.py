"""The rules of the house: each takes the root of a tree and returns every violation, as path, line and reason."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.house.modules import (
    helpers_have_a_leading_underscore,
    modules_with_an_underscore_stay_in_their_room,
    no_module_imports_in_a_circle,
    no_module_is_a_scrap,
)
from tests.house.reading import functions, imported, lines, package, room, sources, texts, tree
from tests.house.words import docstrings_begin_with_their_subject

Rule = Callable[[Path], list[str]]

CEILING = 400
FUNCTION_CEILING = 40
NO_ROOM_FOR = {"util", "utils", "helper", "helpers", "common", "misc"}
NO_NAMES = {"Manager", "Helper", "Util", "Utils", "Base", "Impl", "Handler", "Processor"}
NO_HIGHER_THAN_TOOLS = {"toolkit", "policy", "sandbox", "schema", "artifacts", "contract"}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
EXTRAS = {"typer", "rich"}
ELSEWHERE = re.compile(
    r"(?<![\w/.~])/(?:root/\w|work\b|home/\w+/)"  # paths of somebody's machine; every machine has a /root
    r"|\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|deb\.debian\.org)\b"  # where packages come from
    r"|\b(?:ACCEPTANCE|FACTS|STYLE|DESIGN)\.md\b"  # documents that are not in this project
)
CONSTRUCTORS = {"__init__", "__new__", "__post_init__"}
STARTS = {"in_background", "create_task", "ensure_future", "start_soon", "call_on", "call_soon_threadsafe"}
TABLE = "cli/_commands.py"
LOADS = {"Lazy", "import_module", "__import__"}
CODE = re.compile(r"^```python\n.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"\b[A-Z][a-z]\w*")
NAME_IN_PROSE = re.compile(r"(?<=[a-z,(] )[A-Z][a-z]\w*|\b[A-Z][a-z]\w*(?=[.(]\w)|\b[A-Z][a-z]+[A-Z]\w*")
LEFTOVER = re.compile(r"\b(?:TODO|FIXME|XXX)\b|\braise NotImplementedError\b")


def files_stay_under_their_ceiling(root: Path) -> list[str]:
    return [*_long_python(root), *_long_c(root)]


def functions_stay_under_forty_lines(root: Path) -> list[str]:
    return [
        f"{path}:{node.lineno}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path in sources(root)
        for node in functions(tree(path))
        if node.end_lineno and node.end_lineno - node.lineno >= FUNCTION_CEILING
    ]


def names_are_plain_words(root: Path) -> list[str]:
    found = [f"{path}: no room is called {path.stem}" for path in package(root).rglob("*") if path.stem in NO_ROOM_FOR]
    for path in sources(root):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and NO_NAMES & set(re.findall(r"[A-Z][a-z0-9]*", node.name)):
                found.append(f"{path}:{node.lineno}: {node.name} is not a plain word")
    return found


def the_environment_is_read_in_cli_alone(root: Path) -> list[str]:
    outside = [path for path in sources(root) if room(root, path) != "cli"]
    return [f"{path}:{line}: reads the environment" for path in outside for line in _environment(tree(path))]


def functions_import_nothing_but_extras(root: Path) -> list[str]:
    return [
        f"{path}:{function.lineno}: imports {name} inside {function.name}"
        for path in sources(root)
        for function in functions(tree(path))
        for node in ast.walk(function)
        for name in imported(node)
        if name.split(".")[0] not in EXTRAS
    ]


def asyncio_is_said_in_aio_alone(root: Path) -> list[str]:
    """Whether by import, by name, or as text that names the module."""
    found = []
    for path in sources(root):
        if path.relative_to(package(root)).as_posix() == "aio.py":
            continue
        for node in ast.walk(tree(path)):
            said = [*imported(node), getattr(node, "id", ""), getattr(node, "value", "")]
            if any(isinstance(word, str) and word.split(".")[0] == "asyncio" for word in said):
                found.append(f"{path}:{getattr(node, 'lineno', 0)}: says asyncio; aio.py does that for everybody")
    return found


def constructors_start_no_task(root: Path) -> list[str]:
    """The owner of an object starts it, in a line that a reader can see."""
    return [
        f"{path}:{node.lineno}: a constructor starts a task; give the class a method that its owner calls"
        for path in sources(root)
        for function in functions(tree(path))
        if function.name in CONSTRUCTORS
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and _called(node) in STARTS
    ]


def modules_open_with_their_promise(root: Path) -> list[str]:
    found = []
    for path in sources(root):
        guarantee = (ast.get_docstring(tree(path)) or "").split("\n")[0]
        if not guarantee.endswith(".") or len(guarantee.split()) < 3:
            found.append(f"{path}:1: does not open with one sentence that says what it promises")
    return found


def a_body_is_called_from_invoke_alone(root: Path) -> list[str]:
    """Nobody else calls `.body`; above toolkit/, which makes tools, nobody even refers to one."""
    invoke = package(root) / "gates" / "invoke.py"
    found = []
    for path in sources(root):
        if path != invoke:
            found += [f"{path}:{line}: calls a tool's body" for line in _body_calls(tree(path))]
            if room(root, path) not in NO_HIGHER_THAN_TOOLS and path.name != "_inside_syntax.py":  # the body of an ast
                found += [f"{path}:{line}: refers to a tool's body" for line in _body_loads(tree(path))]
    return found


def nobody_calls_a_tool_as_its_function(root: Path) -> list[str]:
    """Only a test of the function may, because such a call passes no gate; our own calls go through a session."""
    return [
        f"{path}:{line}: calls a tool as its plain function"
        for path in sources(root)
        if path != package(root) / "toolkit" / "tool.py"
        for line in _tool_calls(tree(path))
    ]


def the_contract_stands_on_the_standard_library(root: Path) -> list[str]:
    return _imports_outside(root, "contract", {"handrail.contract", "handrail.misuse"})


def models_know_the_contract_schemas_and_secrets_alone(root: Path) -> list[str]:
    found = []
    for path in sources(root):
        names = [name for node in ast.walk(tree(path)) for name in imported(node) if name.startswith("handrail")]
        if room(root, path) == "models":
            found += [f"{path}: imports {name}" for name in names if name.split(".")[1:2] not in _MODEL_FLOORS]
    return found


def rooms_do_not_use_the_front_door(root: Path) -> list[str]:
    """`from handrail import X` inside a room would hide which room it stands on."""
    return [
        f"{path}:{node.lineno}: imports handrail itself instead of the room below"
        for path in sources(root)
        if room(root, path)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        if "handrail" in imported(node) and not _only_rooms(root, node)
    ]


def modules_named_as_text_have_a_typed_twin(root: Path) -> list[str]:
    """mypy and import-linter see no module that is named as text, so the other branch of TYPE_CHECKING imports it."""
    ways = {package(root) / name for name in ("lazy.py", "__init__.py", TABLE)}  # what lazy loading itself is made of
    return [
        f"{path}:{line}: loads a module by its name, and no import under TYPE_CHECKING binds the same"
        for path in sources(root)
        if path not in ways
        for line in _untyped_loads(tree(path))
    ]


def a_row_of_the_table_of_commands_has_a_typed_twin(root: Path) -> list[str]:
    """A command is named once as text and once as an import; mypy and import-linter see the import."""
    table = package(root) / TABLE
    if not table.exists():
        return []
    named: set[str | None] = set()
    typed: set[str | None] = set()
    for node in ast.walk(tree(table)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("handrail.cli."):
            typed |= {
                alias.asname for alias in node.names if alias.asname and node.module == f"handrail.cli.{alias.asname}"
            }
        elif isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
            named |= {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
    return [f"{table}: {name} is not named both as text and as an import" for name in sorted(map(str, named ^ typed))]


def what_is_mentioned_can_be_imported(root: Path) -> list[str]:
    """A class that a document or a message names is public: from handrail or from one of its doors, or somebody else's.

    Each adapter is a door of its own: its framework is loaded with it.
    """
    doors = [package(root) / door / "__init__.py" for door in ("", "batch/", "mcp/", "models/", "otel/", "testing/")]
    public = {bound for door in doors for bound in _exported(door)}
    adapters = (package(root) / "adapters").glob("[a-z]*.py")
    public |= {node.name for path in adapters for node in tree(path).body if isinstance(node, ast.ClassDef)}
    ours = {
        node.name
        for path in sources(root)
        if path.name not in ("_inside_channel.py", "_inside_tools.py")  # a script has these names, without an import
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    } | _aliases(root)
    documents = [
        (path, set(CODE.findall(text)))
        for path, text in texts(root)
        if path.suffix == ".md" and path.parent.name != "decisions"  # which are about what is inside
    ]
    named = [
        (path, {name for code in found for name in NAME.findall(code)} - _of_others(found)) for path, found in documents
    ]
    named += [(path, _named_in_messages(tree(path))) for path in sources(root)]
    return [f"{path}: mentions {name}" for path, names in named for name in sorted(names & ours - public)]


def _of_others(codes: set[str]) -> set[str]:
    """The names that the code of a page imports from another package."""
    lines = [line for code in codes for line in re.findall(r"^from (?!handrail)\S+ import (.+)$", code, re.MULTILINE)]
    return {name.strip() for line in lines for name in line.split(",")}


def every_event_type_is_emitted(root: Path) -> list[str]:
    """A type that nobody writes promises something to every reader of events."""
    path = package(root) / "contract" / "event.py"
    if not path.exists():
        return []
    named = [node for node in tree(path).body if isinstance(node, ast.Assign) and _assigns(node, "EventType")]
    types = {word.value for node in named for word in ast.walk(node.value) if isinstance(word, ast.Constant)}
    emitted = {
        word.value
        for source in sources(root)
        for node in ast.walk(tree(source))
        if isinstance(node, ast.Call) and _called(node) in ("emit", "write") and node.args
        for word in ast.walk(node.args[0])
        if isinstance(word, ast.Constant)
    }
    return [f"{path}: nobody emits {name}" for name in sorted(types - emitted)]


def texts_speak_of_the_project_alone(root: Path) -> list[str]:
    rules = Path("tests", "house")  # only these have to name what they forbid
    return [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for path, text in texts(root)
        if rules not in path.relative_to(root).parents and path != root / "tests" / "test_house.py"
        for match in ELSEWHERE.finditer(text)
    ]


def nothing_is_left_for_later(root: Path) -> list[str]:
    return [
        f"{path}: {match.group()}"
        for path in sources(root)
        for match in LEFTOVER.finditer(path.read_text(encoding="utf-8"))
    ]


def tests_use_fakes_and_not_mocks(root: Path) -> list[str]:
    found = []
    for path in sorted((root / "tests").rglob("*.py")):
        for node in ast.walk(tree(path)):
            if any(name.split(".")[:2] == ["unittest", "mock"] for name in imported(node)) or _replaces(node):
                found.append(f"{path}:{getattr(node, 'lineno', 0)}: mocks or patches")
    return found


_MODEL_FLOORS = (["contract"], ["misuse"], ["schema"], ["models"], ["lazy"], ["scrub"])


def _long_python(root: Path) -> Iterator[str]:
    for path in sources(root):
        if lines(path) > CEILING:
            yield f"{path}: {lines(path)} lines; the ceiling is {CEILING}"


def _long_c(root: Path) -> Iterator[str]:
    for path in sorted([*package(root).rglob("*.c"), *package(root).rglob("*.h")]):
        if lines(path) > CEILING:
            yield f"{path}: {lines(path)} lines; the ceiling is {CEILING}"


def _environment(module: ast.Module) -> Iterator[int]:
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT and getattr(node.value, "id", "") == "os":
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "os" and ENVIRONMENT & {a.name for a in node.names}:
            yield node.lineno


def _body_calls(module: ast.Module) -> Iterator[int]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "body":
            yield node.lineno


def _body_loads(module: ast.Module) -> Iterator[int]:
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr == "body" and isinstance(node.ctx, ast.Load):
            yield node.lineno
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
            if any(isinstance(word, ast.Constant) and word.value == "body" for word in node.args[1:2]):
                yield node.lineno


def _tool_calls(module: ast.Module) -> Iterator[int]:
    """Calls of `x.tool` and `x.function`, of what `@tool` made here, and of what a tool's own module is named for."""
    names = {node.name for node in functions(module) if any(_is_tool_maker(each) for each in node.decorator_list)}
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("handrail.tools."):
            last = str(node.module).rpartition(".")[2]
            names |= {alias.asname or alias.name for alias in node.names if alias.name == last}
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            by_name = isinstance(node.func, ast.Name) and node.func.id in names
            if by_name or (isinstance(node.func, ast.Attribute) and node.func.attr in ("tool", "function")):
                yield node.lineno


def _is_tool_maker(decorator: ast.expr) -> bool:
    return getattr(decorator.func if isinstance(decorator, ast.Call) else decorator, "id", "") == "tool"


def _imports_outside(root: Path, name: str, allowed: set[str]) -> list[str]:
    return [
        f"{path}:{node.lineno}: imports {module}"
        for path in sources(root)
        if room(root, path) == name
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in imported(node)
        if module.split(".")[0] not in sys.stdlib_module_names and ".".join(module.split(".")[:2]) not in allowed
    ]


def _untyped_loads(module: ast.Module) -> Iterator[int]:
    """`name = Lazy("a.b")` is typed in the else branch of an `if TYPE_CHECKING:` that imports a.b as this name."""
    typed = set()
    for node in ast.walk(module):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            twins = {(bound, name) for each in node.body for bound, name in _bound(each)}
            typed |= {id(each.value) for each in node.orelse if isinstance(each, ast.Assign) and _names(each) & twins}
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _called(node) in LOADS and id(node) not in typed:
            yield node.lineno


def _bound(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import binds, each with the module it stands for."""
    if isinstance(node, ast.ImportFrom):
        yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
    elif isinstance(node, ast.Import):
        yield from ((alias.asname or alias.name, alias.name) for alias in node.names)


def _names(node: ast.Assign) -> set[tuple[str, str]]:
    """What `name = Lazy("a.b")` binds, and to which module; empty for any other assignment."""
    call, target = node.value, node.targets[0]
    if isinstance(call, ast.Call) and _called(call) == "Lazy" and isinstance(target, ast.Name):
        return {(target.id, word.value) for word in call.args if isinstance(word, ast.Constant)}
    return set()


def _assigns(node: ast.Assign, name: str) -> bool:
    return any(getattr(target, "id", "") == name for target in node.targets)


def _called(node: ast.Call) -> str:
    return str(getattr(node.func, "id", "") or getattr(node.func, "attr", ""))


def _exported(door: Path) -> set[str]:
    """The names that a package's `__init__` imports, including those for type checkers only."""
    return {bound for node in ast.walk(tree(door)) for bound, _ in _bound(node)} if door.exists() else set()


def _aliases(root: Path) -> set[str]:
    """Types of the contract that are not classes: `Feature = Literal[…]`."""
    return {
        target.id
        for path in sources(root)
        if room(root, path) == "contract"
        for node in tree(path).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and NAME.fullmatch(target.id)
    }


def _named_in_messages(module: ast.Module) -> set[str]:
    """Capitalised words inside sentences, in strings that are neither docstrings nor annotations."""
    apart: set[int] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Expr):
            apart.add(id(node.value))
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            apart |= {id(each) for each in ast.walk(part)} if isinstance(part, ast.AST) else set()
    said = [node.value for node in ast.walk(module) if isinstance(node, ast.Constant) and id(node) not in apart]
    return {name for text in said if isinstance(text, str) and " " in text for name in NAME_IN_PROSE.findall(text)}


def _only_rooms(root: Path, node: ast.AST) -> bool:
    """`from handrail import schema` names a room, like `import handrail.schema`."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else [""]
    return all(name and (package(root) / name).is_dir() for name in names)


def _replaces(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    return node.func.attr == "setattr" and getattr(node.func.value, "id", "") == "monkeypatch"


RULES: tuple[Rule, ...] = (
    files_stay_under_their_ceiling,
    functions_stay_under_forty_lines,
    names_are_plain_words,
    the_environment_is_read_in_cli_alone,
    functions_import_nothing_but_extras,
    asyncio_is_said_in_aio_alone,
    constructors_start_no_task,
    modules_open_with_their_promise,
    a_body_is_called_from_invoke_alone,
    nobody_calls_a_tool_as_its_function,
    the_contract_stands_on_the_standard_library,
    models_know_the_contract_schemas_and_secrets_alone,
    rooms_do_not_use_the_front_door,
    modules_named_as_text_have_a_typed_twin,
    a_row_of_the_table_of_commands_has_a_typed_twin,
    what_is_mentioned_can_be_imported,
    every_event_type_is_emitted,
    texts_speak_of_the_project_alone,
    nothing_is_left_for_later,
    tests_use_fakes_and_not_mocks,
    helpers_have_a_leading_underscore,
    modules_with_an_underscore_stay_in_their_room,
    no_module_imports_in_a_circle,
    no_module_is_a_scrap,
    docstrings_begin_with_their_subject,
)
