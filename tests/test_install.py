"""What the README says to type installs Handrail, and the command says what is missing."""

import re
import shutil
from pathlib import Path

import pytest

from handrail import __version__
from tests.installing import ROOT, SYSTEM, add_required, install_wheel, make_environment, must, run, wheel  # noqa: F401

LIBRARY_ONLY = "import handrail, pathlib; assert (pathlib.Path(handrail.__file__).parent / 'py.typed').exists()"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811 - the fixture
    """An environment with the wheel, without its extra."""
    home = tmp_path_factory.mktemp("installed")
    install_wheel(wheel, make_environment(home / "env"))
    return home / "env"


def paste(name: str) -> list[str]:
    """The programs in the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{name}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


# A wheel, in a fresh environment


def test_a_wheel_made_from_the_source_archive_runs_the_code_of_the_readme(installed: Path, tmp_path: Path) -> None:
    python = installed / "bin" / "python"
    must(python, "-c", LIBRARY_ONLY, cwd=tmp_path)
    program = paste("python")[0]
    (tmp_path / "pasted.py").write_text(program)
    said = must(python, "-W", "error", "pasted.py", cwd=tmp_path, PATH=SYSTEM)
    assert said.splitlines() == re.findall(r"#> (.*)", program) != []


def test_the_command_of_a_wheel_works_with_its_extra_and_so_does_the_module(installed: Path, tmp_path: Path) -> None:
    whole = tmp_path / "env"
    shutil.copytree(installed, whole, symlinks=True)
    add_required("handrail[cli]", whole / "bin" / "python")
    (whole / "bin" / "handrail").write_text(
        (installed / "bin" / "handrail").read_text().replace(str(installed), str(whole))
    )
    for words in ([whole / "bin" / "handrail"], [whole / "bin" / "python", "-m", "handrail"]):
        assert must(*words, "--version", cwd=tmp_path) == f"handrail {__version__}\n"
        for asked in ("-h", "--help"):
            assert "doctor" in must(*words, asked, cwd=tmp_path)
        said = must(*words, "call", "bash", '{"command": "echo from the wheel"}', cwd=tmp_path)
        assert "from the wheel" in said


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
