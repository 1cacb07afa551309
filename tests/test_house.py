"""The rules of the house hold here, and each of them catches a planted violation."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import handrail
from tests.house import rules
from tests.house.planted import PLANTED, PROMISE, Planted
from tests.house.reading import package, sources
from tests.house.rules import RULES, Rule

ROOT = Path(__file__).resolve().parents[1]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_its_rules(rule: Rule) -> None:
    found = rule(ROOT)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_a_planted_violation_is_caught_and_a_near_miss_is_not(planted: Planted, tmp_path: Path) -> None:
    path = tmp_path / planted.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(planted.text)
    if planted.importer:
        module = ".".join(path.relative_to(tmp_path / "src").with_suffix("").parts)
        plant(tmp_path, {planted.importer: f"import {module}\n" + "x = 1\n" * 30})
    found = planted.rule(tmp_path)
    assert found == [] if planted.kept else any(str(path.parent) in line for line in found)


def test_every_rule_has_a_planted_violation_and_a_near_miss() -> None:
    assert {planted.rule for planted in PLANTED if not planted.kept} == set(RULES)
    assert {planted.rule for planted in PLANTED if planted.kept} == set(RULES)


def test_the_rules_read_the_sources_that_are_imported() -> None:
    read = {str(path) for path in sources(ROOT)}
    assert str(package(ROOT) / "contract" / "call.py") in read
    assert str(Path(handrail.__file__).resolve()) in read


def lint_layers(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def copied_house(tmp_path: Path) -> Path:
    """The sources and the contracts about them, to be broken."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_mypy_catches_a_misspelt_attribute_behind_every_lazy_import(copied_house: Path) -> None:
    """All of them at once: each line on which something of a lazily loaded module is used gets a letter too many."""
    misspelt = {}
    for path in sources(copied_house):
        lines = path.read_text().splitlines()
        names = {words[1] for line in lines if (words := re.match(r"    (\w+) = Lazy\(", line))}
        for number, line in enumerate(lines, 1):
            if used := [name for name in names if re.search(rf"(?<![\w.]){name}\.\w", line)]:
                lines[number - 1] = re.sub(rf"(?<![\w.])({'|'.join(used)})\.(\w+)", r"\1.\2x", line)
                misspelt[f"{path.relative_to(copied_house)}:{number}"] = used
        path.write_text("\n".join(lines) + "\n")
    said = check_types(copied_house)
    assert misspelt
    assert [where for where in misspelt if not re.search(rf"{where}: error: .*(attr|name)-defined", said)] == [], said


def test_mypy_catches_a_misspelt_public_name(copied_house: Path) -> None:
    plant(copied_house, {"cli/planted.py": "from handrail import Sesion\n"})
    assert 'cli/planted.py:2: error: Module "handrail" has no attribute "Sesion"' in check_types(copied_house)


def test_mypy_catches_a_misspelt_command_in_the_table(copied_house: Path) -> None:
    table = package(copied_house) / "cli/_commands.py"
    table.write_text(table.read_text().replace("handrail.cli.chat import app", "handrail.cli.chta import app"))
    assert 'Cannot find implementation or library stub for module named "handrail.cli.chta"' in check_types(
        copied_house
    )


def check_types(root: Path) -> str:
    """What mypy says; a copy of the cache that `dev.py check` keeps makes it quick."""
    if (ROOT / ".mypy_cache").exists():
        shutil.copytree(ROOT / ".mypy_cache", root / ".mypy_cache", dirs_exist_ok=True)
    argv = [sys.executable, "-m", "mypy", "src"]
    return subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=110, check=False).stdout


def plant(root: Path, files: dict[str, str]) -> None:
    for name, code in files.items():
        path = package(root) / name
        path.parent.mkdir(exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(PROMISE + code)


def lazily(name: str, module: str) -> str:
    room, _, last = module.rpartition(".")
    twin = f"if TYPE_CHECKING:\n    from {room} import {last} as {name}\nelse:\n    {name} = Lazy({module!r})\n"
    return f"from typing import TYPE_CHECKING\n\nfrom handrail.lazy import Lazy\n\n{twin}"


PROVIDERS_BROKEN = "Provider words stop at the door of models/ and of the adapters BROKEN"
LAYERS_BROKEN = "A room imports only rooms below it; rooms on one line do not import each other BROKEN"


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({}, "0 broken"),
        ({"agent/up.py": "", "contract/planted.py": "import handrail.agent.up\n"}, LAYERS_BROKEN),
        ({"agent/up.py": "", "contract/planted.py": lazily("_up", "handrail.agent.up")}, LAYERS_BROKEN),
        ({"tools/beside.py": "", "gates/planted.py": "import handrail.tools.beside\n"}, LAYERS_BROKEN),
        ({"attic/planted.py": ""}, "attic"),
        ({"contract/planted.py": "import anyio\n"}, "The contract stands on the standard library alone BROKEN"),
        ({"agent/planted.py": "import openai\n"}, PROVIDERS_BROKEN),
        ({"models/planted.py": "import openai\n"}, "0 broken"),
    ],
    ids=[
        "nothing",
        "upward",
        "upward-lazily",
        "sideways",
        "unknown-room",
        "contract",
        "provider",
        "provider-at-its-door",
    ],
)
def test_import_linter_catches_planted_imports(copied_house: Path, files: dict[str, str], complaint: str) -> None:
    plant(copied_house, files)
    done = lint_layers(copied_house)
    assert complaint in done.stdout, done.stdout + done.stderr
    assert (done.returncode == 0) == (complaint == "0 broken")


PUBLIC = [
    "Agent", "ApprovalRequest", "Approver", "ArtifactRef", "Artifacts", "Attached", "BadEnvelope", "BadSchema",
    "Behaviour", "HeldApprovals", "first_of",
    "Blobs",
    "BrokenDriver", "Budget", "Call", "CallDelta", "Caps", "Chunk", "Clock", "CodeResult", "Command",
    "CommandStream", "Completed", "Context", "Decision", "Driver", "Event", "Truncated", "Failure", "Feature",
    "FileExists", "FileStat", "Gate", "HandrailError", "Host", "HostedTool", "Image", "Job", "Limits", "ListFiles",
    "Listing", "Message", "Model", "ModelEvent", "ModelFailed", "Mount", "NameConflict", "Next", "Outcome",
    "Pending", "Policy", "Process", "Guarantee", "ReadFile", "Report", "Result", "Rule", "RunCode", "STANDARD",
    "Sandbox", "Scrubber", "Session", "SessionCheck", "Step", "Store", "StreamMark", "Success", "Summary", "TaskState",
    "TextDelta", "ThinkingDelta", "Tool", "ToolFailed", "Toolbox", "Turn", "Unavailable", "Usage", "WeakerThanAsked",
    "WriteFile", "Written", "builtin_tools", "open_sandbox", "plugin_tools", "read_envelope", "run_sync", "tool",
]  # fmt: skip


def test_the_public_surface_is_what_was_agreed() -> None:
    assert sorted(handrail.__all__) == sorted(PUBLIC)
    assert sorted(dir(handrail)) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(handrail, name) is not None


def test_a_public_name_that_only_a_document_mentions_is_caught(copied_house: Path) -> None:
    rule = rules.what_is_mentioned_can_be_imported
    shutil.copytree(ROOT / "docs", copied_house / "docs")
    assert rule(copied_house) == []
    door = package(copied_house) / "__init__.py"
    door.write_text("".join(line for line in door.read_text().splitlines(True) if "Completed" not in line))
    assert [line for line in rule(copied_house) if "design.md: mentions Completed" in line]


def test_the_design_lists_exactly_the_public_names() -> None:
    block = next(block for block in blocks("docs/design.md", "python") if block.startswith("from handrail import ("))
    assert sorted(alias.name for alias in ast.parse(block).body[0].names) == sorted(handrail.__all__)  # type: ignore[attr-defined]


@pytest.mark.parametrize("document", ["AGENTS.md", "docs/design.md"])
def test_every_file_that_a_map_names_exists(document: str) -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.\w+)`", read(document)))
    assert named
    assert {name for name in named if not (ROOT / name).exists() and not (package(ROOT) / name).exists()} == set()


def test_importing_handrail_imports_no_room() -> None:
    code = "import sys, handrail; print([m for m in sys.modules if m.startswith(('handrail.', 'pydantic', 'anyio'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "['handrail.contract', 'handrail.contract.version']"


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", read(document), re.MULTILINE | re.DOTALL)


def dev_commands() -> set[str]:
    """The words that dev.py itself knows."""
    tables = [node for node in ast.walk(ast.parse(read("dev.py"))) if isinstance(node, ast.Dict)]
    keys = [[str(key.value) for key in table.keys if isinstance(key, ast.Constant)] for table in tables]
    return next(set(words) for words in keys if "demo" in words)


def test_every_dev_command_in_the_readme_exists() -> None:
    shown = {word for block in blocks("README.md", "sh") for word in re.findall(r"python3 dev\.py (\w+)", block)}
    assert {"demo", "test"} <= shown <= dev_commands()


def test_the_map_for_newcomers_is_short_and_names_every_room() -> None:
    text = read("AGENTS.md")
    rooms = {path.name for path in package(ROOT).iterdir() if (path / "__init__.py").exists()}
    assert len(text.splitlines()) < 60
    assert {room for room in rooms if f"{room}/" not in text} == set()


def test_continuous_integration_runs_what_developers_run() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line for line in read(".ci/run").splitlines() if line and not line.startswith("#")]
    assert commands[-1].startswith("exec python3 dev.py test")


def run_dev(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(ROOT / "dev.py"), *words]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)


def test_an_unknown_dev_command_is_refused_with_the_list_of_commands() -> None:
    refused = run_dev("nonsense")
    assert refused.returncode == 2
    assert {word for word in dev_commands() if f"dev.py {word}" not in refused.stdout} == set()
    assert run_dev("--help").returncode == 0


def test_an_older_python_is_told_what_is_needed() -> None:
    code = "import sys, runpy; sys.version_info = (3, 10, 9); runpy.run_path(sys.argv[1], run_name='__main__')"
    argv = [sys.executable, "-c", code, str(ROOT / "dev.py")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr


@pytest.mark.parametrize(("option", "outcome"), [((), "1 passed, 1 deselected"), (("--long",), "2 passed")])
def test_long_tests_wait_until_they_are_asked_for(tmp_path: Path, option: tuple[str, ...], outcome: str) -> None:
    for name in ("pyproject.toml", "tests/conftest.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(read(name), encoding="utf-8")
    code = "import pytest\n\n@pytest.mark.long\ndef test_long(): ...\n\ndef test_short(): ...\n"
    (tmp_path / "tests" / "test_two.py").write_text(code)
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *option]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert outcome in done.stdout, done.stdout + done.stderr
