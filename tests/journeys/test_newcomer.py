"""The first hour of an ordinary user with an empty home: the wheel, the README's code, and a project of one's own."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drivers.test_ordinary_user import PACKAGES, USER, entered, missing
from tests.installing import ROOT, SYSTEM, add_required, wheel  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
BASE = Path(sys.base_prefix)
PYTHON = BASE / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
BESIDE = sorted(path for path in BASE.parent.glob("*/bin/python3.[1-9][0-9]") if path.name != PYTHON.name)
"""Pythons of other versions, where pyenv or uv keeps them together with Handrail's."""
SHOWN = BASE.parent if BESIDE else BASE


class Person:
    """An ordinary user: what they type runs as them, in their home, with their environment active."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.home = place / "home"
        self.project = self.home / "project"
        self.env = self.home / "env"
        for name in ("python", PACKAGES, "venv/bin", "bin"):
            (place / name).mkdir(parents=True)
        self.project.mkdir(parents=True)
        self.own()

    def own(self) -> None:
        subprocess.run(["chown", "-R", f"{USER}:{USER}", str(self.home)], check=True)

    def type(self, line: str) -> "subprocess.CompletedProcess[str]":
        nothing = str(self.place / "bin")
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
        path = f"{self.env}/bin:{self.home}/.local/bin:{self.place}/bin:{SYSTEM}"
        env = {**kept, "HOME": str(self.home), "PATH": path, "LANG": "C.UTF-8", "VIRTUAL_ENV": str(self.env)}
        return subprocess.run(
            [*entered(self.place, SHOWN, nothing, nothing), "bash", "-c", line],
            cwd=self.project,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def get(self, line: str, code: int = 0) -> str:
        done = self.type(line)
        assert done.returncode == code, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def person() -> Iterator[Person]:
    """Below directories that everybody can enter."""
    place = Path("/var/tmp") / f"handrail-newcomer-{os.getpid()}"
    yield Person(place)
    shutil.rmtree(place)


def test_an_ordinary_user_installs_the_wheel_and_pastes_the_readme(
    person: Person,
    wheel: Path,  # noqa: F811 - the fixture
) -> None:
    """The packages that the wheel needs are copied, so that no index is needed; the next test has one."""
    shutil.copy(wheel, person.home)
    person.own()
    assert person.get("id -u").strip() == str(USER), "the control"
    person.get(f"{PYTHON} -m venv ../env")
    add_required("handrail[cli]", person.env / "bin" / "python")
    person.own()
    person.get("pip install -q --no-index --no-deps ../*.whl")
    paste_and_call(person)


def paste_and_call(person: Person) -> None:
    """Run the code of the README, and the command in a directory of their own."""
    program = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    (person.home / "pasted.py").write_text(program)
    said = person.get("python -W error ../pasted.py")
    assert said.splitlines() == re.findall(r"#> (.*)", program) != []
    assert "auto takes jail." in person.get("handrail doctor")
    written = "handrail call write path=mine.txt content=mine && cat mine.txt && stat -c %u mine.txt"
    assert person.get(written).endswith(f"mine{USER}\n")
    (person.home / "secret").write_text("key")
    looked = person.get("handrail call bash 'cat ../secret; ls -A ..; exit 3'", 3)
    assert "key" not in looked
    assert "No such file" in looked


@pytest.mark.long
def test_an_ordinary_user_works_on_a_project_from_an_index_with_another_python(
    person: Person,
    wheel: Path,  # noqa: F811 - the fixture
) -> None:
    """Its environment was made by uv with another version of Python than the one that runs Handrail."""
    other = (BESIDE or [Path("/usr/bin/python3").resolve()])[-1]
    assert other.exists(), "the project needs another Python: pyenv install 3.13, or apt-get install python3"
    assert other.name != PYTHON.name
    shutil.copy(wheel, person.home)
    person.own()
    person.get(f"{PYTHON} -m venv ../env && pip install -q uv ../*.whl")
    person.get(person.type("handrail").stderr.splitlines()[-1])
    paste_and_call(person)

    person.get("pip download -q --no-binary :all: --no-deps itsdangerous==2.2.0 && tar xf *.gz --strip-components 1")
    person.get(f"uv venv -q --python {other} .venv && uv pip install -q --python .venv -e . pytest freezegun")
    version = person.get("handrail call bash 'python --version; python3 -m pytest --version'")
    assert f"Python {other.name.removeprefix('python')}." in version
    mend(person)
    serve(person)


def mend(person: Person) -> None:
    """List, search, break, test, mend and test again, each by one call in the jail."""
    assert "pyproject.toml" in person.get("handrail call read path=.")
    assert '"line": 11' in person.get("handrail call grep pattern='def want_bytes' path=src")
    assert f"{person.project}/.venv/bin/pytest" in person.get("handrail call bash 'which pytest'")
    assert " passed" in person.get("handrail call bash 'pytest -q' timeout=100")
    edit = "handrail call edit path=src/itsdangerous/encoding.py old='{}' new='{}'"
    person.get(edit.format("isinstance(s, str)", "isinstance(s, int)"))
    assert " failed" in person.get("handrail call bash command='pytest -q' timeout=100", 1)
    person.get(edit.format("isinstance(s, int)", "isinstance(s, str)"))
    assert " passed" in person.get("handrail call bash 'pytest -q' timeout=100")


SHELL = """
bash command="python -m http.server 8123 --bind 127.0.0.1" background=true
bash until (: < /dev/tcp/127.0.0.1/8123) 2>/dev/null; do sleep 0.1; done
bash python -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:8123/README.md").read(14))'
process action=tail job=job-1
"""


def serve(person: Person) -> None:
    """A server of the project in the background, asked by a later command of the same session."""
    (person.home / "lines").write_text(SHELL)
    _, _, page, log = person.get("handrail shell < ../lines").splitlines()
    assert "ItsDangerous" in page
    assert "GET /README.md" in log
