"""Every public name has an example in its docstring, and the example runs and prints what it shows.

The form of an example, in the docstring of the class, function or assignment itself:

    Example:
        ```python
        async with open_sandbox("host", allow_weaker=True) as sandbox:
            print((await sandbox.run("echo hello")).stdout)
        #> hello
        ```

Every public name of `handrail` and `handrail.testing` is defined in an example, so it has no `from handrail import`
line. `await`, `async with` and `async for` may stand at the top level. A line that is printed follows as `#> line`,
where `…` is any text; every printed line is shown, but for empty ones. The current directory is empty and is removed
afterwards. The example mentions its name, in lower case or not.
"""

import ast
import inspect
import io
from contextlib import redirect_stdout
from pathlib import Path
from types import CodeType
from typing import Any

import anyio
import pytest

import handrail
from handrail import testing
from tests.documents import ROOT, Block, blocks_of, keeps

SOURCE = ROOT / "src"
HOMES = dict.fromkeys(handrail.__all__, "handrail") | {
    name: "handrail.testing" for name in testing.__all__ if name not in handrail.__all__
}


# Finding


def docstring(module: str, name: str, source: Path = SOURCE) -> str:
    """Return the docstring of a name at the place where it is defined, however often it is imported before."""
    path = source.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    body = [*_flat(ast.parse(path.read_text(encoding="utf-8")).body)]
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            if any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list):
                continue  # the implementation follows
            return ast.get_docstring(node) or ""
        if isinstance(node, ast.ImportFrom) and any((each.asname or each.name) == name for each in node.names):
            original = next(each.name for each in node.names if (each.asname or each.name) == name)
            return docstring(node.module or "", original, source)
        if _assigns(node, name):
            return _text(after)
    raise AssertionError(f"{module} does not define {name}")


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a module, with those of `if TYPE_CHECKING:` among them."""
    return [each for node in body for each in ([node, *_flat(node.body)] if isinstance(node, ast.If) else [node])]


def _assigns(node: ast.stmt, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _text(node: ast.stmt | None) -> str:
    found = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else ""
    return inspect.cleandoc(found) if isinstance(found, str) else ""


def example(text: str) -> Block | None:
    """The first fenced block of Python under `Example:`."""
    _, found, below = text.partition("\nExample:\n")
    return next(iter(blocks_of(below, "python")), None) if found else None


# Running


def complaint(block: Block) -> str:
    """Run an example; "" if it prints what it shows."""
    code = compile(block.text, "<example>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    names: dict[str, Any] = {"__name__": "example"}
    names |= {name: getattr(handrail if home == "handrail" else testing, name) for name, home in HOMES.items()}
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            anyio.run(_run, code, names)
    except Exception as error:  # noqa: BLE001 - an example may raise anything
        return f"raised {type(error).__name__}: {error}"
    lines = [line.rstrip() for line in printed.getvalue().splitlines() if line.strip()]
    return "" if keeps(block.promised, lines) else f"shows {block.promised}, printed {lines}"


async def _run(code: CodeType, names: dict[str, Any]) -> None:
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)
    else:
        exec(code, names)


EXAMPLES = {name: found for name, home in HOMES.items() if (found := example(docstring(home, name)))}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_public_name_runs_and_uses_the_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert complaint(EXAMPLES[name]) == ""
    assert name.lower() in EXAMPLES[name].text.lower()


def test_every_public_name_has_an_example() -> None:
    assert set(HOMES) == set(EXAMPLES)


# The test itself


BROKEN = {
    "raises": "1 / 0",
    "prints something else": "print(1)\n#> 2",
    "prints more": "print(1)\nprint(2)\n#> 1",
    "awaits and prints nothing": "await run_sync(print)\n#> 1",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_example_is_caught(text: str) -> None:
    block = example(f"A thing.\n\nExample:\n    ```python\n    {text.replace(chr(10), chr(10) + '    ')}\n    ```\n")
    assert block is not None
    assert complaint(block) != ""


def test_the_docstring_is_found_behind_imports_and_below_assignments(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "__init__.py").write_text("if True:\n    from room.a import One as One, two as Two\n")
    (tmp_path / "room" / "a.py").write_text(
        'class One:\n    """One."""\ntwo: int = 2\n"""Two\n    lines."""\nx = 3\ny = 1\n'
    )
    assert docstring("room", "One", tmp_path) == "One."
    assert docstring("room", "Two", tmp_path) == "Two\nlines."
    assert docstring("room.a", "x", tmp_path) == ""
    with pytest.raises(AssertionError, match="does not define z"):
        docstring("room.a", "z", tmp_path)
