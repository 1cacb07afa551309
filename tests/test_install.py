"""What the README says to type installs Handrail, and the command says what is missing."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from handrail import __version__
from tests.installing import (  # noqa: F401 - a fixture
    ROOT,
    SYSTEM,
    add_required,
    copy_project,
    install_wheel,
    make_environment,
    must,
    run,
    wheel,
)

LIBRARY_ONLY = "import handrail, pathlib; assert (pathlib.Path(handrail.__file__).parent / 'py.typed').exists()"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811 - the fixture
    """An environment with the wheel, without its extra."""
    home = tmp_path_factory.mktemp("installed")
    install_wheel(wheel, make_environment(home / "env"))
    return home / "env"


README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[0]


# A wheel, in a fresh environment


def test_a_wheel_made_from_the_source_archive_runs_the_code_of_the_readme(installed: Path, tmp_path: Path) -> None:
    python = installed / "bin" / "python"
    must(python, "-c", LIBRARY_ONLY, cwd=tmp_path)
    (tmp_path / "pasted.py").write_text(PROGRAM)
    said = must(python, "-W", "error", "pasted.py", cwd=tmp_path, PATH=SYSTEM)
    assert said.splitlines() == re.findall(r"#> (.*)", PROGRAM) != []


@pytest.fixture(scope="module")
def whole(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and its extra."""
    whole = tmp_path_factory.mktemp("whole") / "env"
    shutil.copytree(installed, whole, symlinks=True)
    add_required("handrail[cli]", whole / "bin" / "python")
    (whole / "bin" / "handrail").write_text(
        (installed / "bin" / "handrail").read_text().replace(str(installed), str(whole))
    )
    return whole


def test_the_command_of_a_wheel_works_with_its_extra_and_so_does_the_module(whole: Path, tmp_path: Path) -> None:
    for words in ([whole / "bin" / "handrail"], [whole / "bin" / "python", "-m", "handrail"]):
        assert must(*words, "--version", cwd=tmp_path) == f"handrail {__version__}\n"
        for asked in ("-h", "--help"):
            assert "doctor" in must(*words, asked, cwd=tmp_path)
        said = must(*words, "call", "bash", '{"command": "echo from the wheel"}', cwd=tmp_path)
        assert "from the wheel" in said


def test_a_command_that_needs_another_extra_says_what_to_type_for_the_way_it_was_installed(
    whole: Path,
    wheel: Path,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    for extra, words in {"mcp": ["mcp"], "local": ["run", "hello"], "models": ["run", "-m", "openai:x", "hi"]}.items():
        said = run(whole / "bin" / "handrail", *words, cwd=tmp_path, HOME=str(tmp_path), OPENAI_API_KEY="").stderr
        wanted = f"uv pip install --python {whole}/bin/python '{wheel}[cli,{extra}]'"
        assert wanted in said.replace("\n", " "), said


# Without the extra


def told(env: Path, cwd: Path, *words: str, **variables: str) -> str:
    """The line to type, from the message of the command and of the module, which say the same."""
    said = [
        run(*start, *words, cwd=cwd, **variables)
        for start in ([env / "bin" / "python", env / "bin" / "handrail"], [env / "bin" / "python", "-m", "handrail"])
    ]
    assert [done.returncode for done in said] == [1, 1]
    assert [done.stdout for done in said] == ["", ""]
    assert said[0].stderr == said[1].stderr
    found = re.fullmatch(r"The command line needs \w+, which is not installed\. Type:\n    (.*)\n", said[0].stderr)
    assert found, said[0].stderr
    return found[1]


def test_without_its_extra_the_command_still_tells_its_version(installed: Path, tmp_path: Path) -> None:
    assert must(installed / "bin" / "handrail", "--version", cwd=tmp_path) == f"handrail {__version__}\n"


@pytest.mark.parametrize("words", [(), ("-h",), ("call", "bash", "{}"), ("--version", "demo")])
def test_without_its_extra_every_command_gets_the_same_answer(
    installed: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    assert told(installed, tmp_path, *words).startswith("uv pip install")


WAYS = {
    "uv-tool": ("env", ["uv-receipt.toml"], "uv tool install --force {wheel}"),
    "uvx": ("archive-v0/abc", [], "uvx --from {wheel} handrail"),
    "pipx": ("venvs/handrail", ["pipx_metadata.json"], "pipx install --force {wheel}"),
    "pipx-run": ("cache/abc", ["pipx_metadata.json"], "pipx run --spec {wheel} handrail"),
    "uv": ("env", [], "uv pip install --python {python} {wheel}"),
    "pip": ("env", ["lib/{lib}/site-packages/pip.py", "bin/pip"], "pip install {wheel}"),
    "module": ("env", ["lib/{lib}/site-packages/pip.py"], "{python} -m pip install {wheel}"),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_message_says_what_to_type_for_the_way_it_was_installed(
    installed: Path,
    wheel: Path,  # noqa: F811 - the fixture
    tmp_path: Path,
    way: str,
) -> None:
    """With the files by which each installer is known; the long tests below have the installers themselves."""
    name, marks, wanted = WAYS[way]
    env = tmp_path / name
    shutil.copytree(installed, env, symlinks=True)
    lib = next(env.glob("lib/python*")).name
    for mark in marks:
        (env / mark.format(lib=lib)).touch(mode=0o755)
    found = told(env, tmp_path, PATH=f"{env}/bin:{SYSTEM}")
    assert found == wanted.format(wheel=f"'{wheel}[cli]'", python=env / "bin" / "python")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A Python that is no virtual environment: a program of its own over the standard library of these tests."""
    standard = Path(os.__file__).parent
    python, library = tmp_path / "base" / "bin" / "python3", tmp_path / "base" / "lib" / standard.name
    python.parent.mkdir(parents=True)
    library.mkdir(parents=True)
    shutil.copy(Path(sys.executable).resolve(), python)
    for entry in standard.iterdir():
        if entry.name not in ("site-packages", "dist-packages", "EXTERNALLY-MANAGED"):
            (library / entry.name).symlink_to(entry)
    return python


@pytest.mark.parametrize("managed", [False, True])
def test_the_message_to_a_user_of_the_systems_python_keeps_to_their_own_packages(
    installed: Path,
    wheel: Path,  # noqa: F811 - the fixture
    base: Path,
    tmp_path: Path,
    *,
    managed: bool,
) -> None:
    """`pip install --user`; where the system manages the packages, with the option that lets pip write at all."""
    packages = next(installed.glob("lib/python*"))
    shutil.copytree(packages, tmp_path / "user" / "lib" / packages.name)
    (tmp_path / "user" / "lib" / packages.name / "site-packages" / "pip.py").touch()
    if managed:
        (base.parent.parent / "lib" / packages.name / "EXTERNALLY-MANAGED").touch()
    done = run(base, "-m", "handrail", cwd=tmp_path, PYTHONUSERBASE=str(tmp_path / "user"))
    options = "--user --break-system-packages" if managed else "--user"
    assert done.stderr.splitlines()[-1:] == [f"    {base} -m pip install {options} '{wheel}[cli]'"], done.stderr


def test_the_message_names_uv_where_uv_installed_it_beside_pip(
    installed: Path,
    wheel: Path,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    env = tmp_path / "env"
    shutil.copytree(installed, env, symlinks=True)
    (record,) = env.glob("lib/python*/site-packages/handrail-*.dist-info/INSTALLER")
    record.write_text("uv\n")
    for mark in (record.parents[1] / "pip.py", env / "bin" / "pip", tmp_path / "uv"):
        mark.touch(mode=0o755)
    there, gone = (f"{at}:{env}/bin:{SYSTEM}" for at in (tmp_path, tmp_path / "nowhere"))
    assert told(env, tmp_path, PATH=there) == f"uv pip install --python {env}/bin/python '{wheel}[cli]'"
    assert told(env, tmp_path, PATH=gone) == f"pip install '{wheel}[cli]'", "there is no uv to type"


ORIGINS = {
    "an index": ("", "'handrail[cli]'"),
    "a directory": ('{{"url": "file://{here}/a%20b", "dir_info": {{}}}}', "'{here}/a b[cli]'"),
    "an editable directory": (
        '{{"url": "file://{here}/a%20b", "dir_info": {{"editable": true}}}}',
        "--editable '{here}/a b[cli]'",
    ),
    "a file that is gone": ('{{"url": "file://{here}/gone.whl", "archive_info": {{}}}}', "'handrail[cli]'"),
    "a repository": (
        '{{"url": "https://example.org/h.git", "vcs_info": {{"vcs": "git", "commit_id": "abc"}}}}',
        "'handrail[cli] @ git+https://example.org/h.git@abc'",
    ),
    "an address": (
        '{{"url": "https://example.org/h.whl", "archive_info": {{}}}}',
        "'handrail[cli] @ https://example.org/h.whl'",
    ),
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_message_names_the_place_it_was_installed_from(installed: Path, tmp_path: Path, origin: str) -> None:
    direct_url, wanted = (text.format(here=tmp_path) if text else text for text in ORIGINS[origin])
    (tmp_path / "a b").mkdir()
    env = tmp_path / "env"
    shutil.copytree(installed, env, symlinks=True)
    (record,) = env.glob("lib/python*/site-packages/handrail-*.dist-info/direct_url.json")
    record.unlink()
    if direct_url:
        record.write_text(direct_url)
    assert told(env, tmp_path) == f"uv pip install --python {env}/bin/python {wanted}"


# With the installers themselves, as the README says; they need a package index

TYPED = re.findall(r"^\| .* \| `(.*)` \|$", README.partition("| to get | type |")[2].partition("\n\n")[0], re.MULTILINE)
assert len(TYPED) >= 6


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with uv, uvx and pipx, and nothing else."""
    here = tmp_path_factory.mktemp("installers")
    must(sys.executable, "-m", "venv", here / "env", cwd=here)
    must(here / "env" / "bin" / "pip", "install", "-q", "pipx", "uv", cwd=here)
    (here / "bin").mkdir()
    for name in ("uv", "uvx", "pipx"):
        (here / "bin" / name).symlink_to(here / "env" / "bin" / name)
    return here / "bin"


class Newcomer:
    """Somebody with an empty home directory, a clone, and a fresh environment that is active."""

    def __init__(self, place: Path, installers: Path) -> None:
        self.clone = copy_project(place / "clone")
        self.env = place / "env"
        home = place / "home"
        home.mkdir()
        must(sys.executable, "-m", "venv", self.env, cwd=place)
        path = f"{self.env}/bin:{home}/.local/bin:{installers}:{SYSTEM}"
        self._variables = {"HOME": str(home), "PATH": path, "VIRTUAL_ENV": str(self.env)}

    def type(self, line: str) -> "subprocess.CompletedProcess[str]":
        return run("bash", "-c", line, cwd=self.clone, **self._variables)

    def get(self, line: str) -> str:
        done = self.type(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def newcomer(tmp_path: Path, installers: Path) -> Newcomer:
    return Newcomer(tmp_path, installers)


@pytest.mark.long
@pytest.mark.parametrize("line", TYPED)
def test_a_line_of_the_readme_installs_what_it_says(newcomer: Newcomer, line: str) -> None:
    said = newcomer.get(line)
    if line.startswith("uvx"):
        assert said.endswith("Nothing is left running.\n")
        return
    if line.startswith("pip wheel"):
        newcomer.get("rm -r src && pip install -q dist/handrail-*.whl")
        assert "'handrail[cli]'" not in newcomer.type("handrail").stderr, "the wheel is named"
        newcomer.get(newcomer.type("handrail").stderr.splitlines()[-1])
    if "[cli]" in line or line.startswith("pip wheel"):
        assert newcomer.get("handrail --version") == f"handrail {__version__}\n"
        assert "from a jail" in newcomer.get("""handrail call bash '{"command": "echo from a jail"}'""")
    else:
        assert newcomer.get("python -c 'import handrail; print(handrail.Session)'")
        assert newcomer.type("handrail").returncode == 1


BASE = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
INSTALLED = {
    "pip install .": "pip install '",
    "pip install -e .": "pip install --editable '",
    "pip wheel -q --no-deps -w dist . && pip install dist/*.whl": "pip install '{clone}/dist/handrail-",
    f"PIP_BREAK_SYSTEM_PACKAGES=1 {BASE} -m pip install --user .": f"{BASE} -m pip install --user ",
    f"PIP_BREAK_SYSTEM_PACKAGES=1 {BASE} -m pip install --user -e .": f"{BASE} -m pip install --user ",
    "uv pip install .": "uv pip install --python {env}/bin/python ",
    "uv venv -q --clear $VIRTUAL_ENV && uv pip install -e .": "uv pip install --python {env}/bin/python --editable ",
    "uv tool install .": "uv tool install --force ",
    "pipx install .": "pipx install --force ",
    "uvx --from . handrail": "uvx --from ",
    "pipx run --spec . handrail": "pipx run --spec ",
}
"""How somebody may install it, and how what they are told to type begins."""


@pytest.mark.long
@pytest.mark.parametrize("line", INSTALLED)
def test_what_the_message_says_to_type_makes_the_command_work(newcomer: Newcomer, line: str) -> None:
    runs_it = line.endswith(" handrail")
    first = newcomer.type(line) if runs_it else newcomer.type(f"({line}) >&2 && handrail")
    assert first.returncode == 1, first.stdout + first.stderr
    assert "The command line needs typer" in first.stderr
    advice = first.stderr.splitlines()[-1].strip()
    assert advice.startswith(INSTALLED[line].format(clone=newcomer.clone, env=newcomer.env))
    said = newcomer.get(f"{advice} --version" if runs_it else f"({advice}) >&2 && handrail --version")
    assert said == f"handrail {__version__}\n"
