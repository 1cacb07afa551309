"""A copy of the project, its source archive and wheel, and fresh environments for them, all without a network."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ("src", "docs", "examples", "pyproject.toml", "hatch_build.py", "constraints.txt", "dev.py", "LICENSE")
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"


def run(*words: str | Path, cwd: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run it as somebody would who is not in this checkout: none of its variables, and no input."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**kept, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def must(*words: str | Path, cwd: Path, **env: str) -> str:
    """What it printed; it must end well."""
    done = run(*words, cwd=cwd, **env)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def copy_project(to: Path) -> Path:
    """The sources as a newcomer has them: nothing built, nothing installed."""
    to.mkdir()
    for name in (*PROJECT, *(path.name for path in ROOT.glob("*.md"))):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=_made)
        else:
            shutil.copy(ROOT / name, to)
    return to


def _made(at: str, names: list[str]) -> set[str]:
    program = r"guard(\.\d+)?|__pycache__" if Path(at).name == "guard" else "__pycache__"
    return {name for name in names if re.fullmatch(program, name)}


def build_archive(project: Path) -> Path:
    """The source archive of a project."""
    must(sys.executable, "-m", "hatchling", "build", "-t", "sdist", cwd=project)
    (archive,) = (project / "dist").glob("*.tar.gz")
    return archive


def build_wheel(archive: Path, to: Path) -> Path:
    """The wheel that is made from the source archive alone."""
    with tarfile.open(archive) as packed:
        packed.extractall(to, filter="data")
    (unpacked,) = to.iterdir()
    must(sys.executable, "-m", "hatchling", "build", "-t", "wheel", cwd=unpacked)
    (wheel,) = (unpacked / "dist").glob("*.whl")
    return wheel


def make_environment(at: Path) -> Path:
    """A fresh virtual environment without anything in it. Returns its Python."""
    must(sys.executable, "-m", "venv", "--without-pip", at, cwd=at.parent)
    return at / "bin" / "python"


def install_wheel(wheel: Path, python: Path) -> None:
    """Install a wheel with pip, and what it requires from the environment of these tests, because it is there."""
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--no-deps", wheel]
    must(*pip, cwd=wheel.parent)
    add_required("handrail", python)


def add_required(requirement: str, python: Path) -> None:
    """Copy the packages that a requirement needs, and those that they need, into another environment."""
    packages = next(python.parent.parent.glob("lib/python*/site-packages"))
    for found in _required(Requirement(requirement), set()):
        for file in found.files or ():
            source, target = Path(str(file.locate())), packages / file
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)


def _required(requirement: Requirement, seen: set[str]) -> Iterator[Distribution]:
    found = distribution(requirement.name)
    for line in found.requires or ():
        inner = Requirement(line)
        wanted = any(inner.marker is None or inner.marker.evaluate({"extra": it}) for it in ("", *requirement.extras))
        key = f"{canonicalize_name(inner.name)}{sorted(inner.extras)}"
        if wanted and key not in seen:
            seen.add(key)
            yield distribution(inner.name)
            yield from _required(inner, seen)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source archive, which was built from a copy of the project."""
    archive = build_archive(copy_project(tmp_path_factory.mktemp("copy") / "handrail"))
    return build_wheel(archive, tmp_path_factory.mktemp("unpacked"))


def with_extras(wheel: Path, at: Path, extras: str) -> Path:
    """The Python of a fresh environment with the wheel and some of its extras, from the registry."""
    python = make_environment(at)
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q"]
    must(*pip, "-c", ROOT / "constraints.txt", f"{wheel}[{extras}]", cwd=at.parent)
    return python
