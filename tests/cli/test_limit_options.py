"""Limits are typed with units or set in handrail.toml; a file that is not accepted lowers them and never raises one."""

from pathlib import Path

import pytest

from handrail.cli._app import Options
from handrail.cli._limit_options import memory_for_model, read_limit, read_limits
from handrail.cli._settings import read_settings
from handrail.contract.errors import HandrailError
from handrail.contract.limits import Limits
from handrail.drivers.limit_table import machine_memory


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("memory", "2G", 2 << 30), ("memory", "512m", 512 << 20), ("memory", "1.5GiB", 3 << 29), ("memory", "none", None),
     ("processes", "256", 256), ("processes", "None", None), ("workspace_size", "1T", 1 << 40), ("cpu", "0.5", 0.5)],
)  # fmt: skip
def test_a_limit_is_read_with_its_unit(name: str, text: str, value: float | None) -> None:
    assert read_limit(name, text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [("memory", "0"), ("memory", "0G"), ("memory", "-1G"), ("memory", "2000"), ("memory", "G"), ("memory", ""),
     ("memory", "2X"), ("memory", "1e3G"), ("memory", "nan"), ("memory", "inf"), ("processes", "0"),
     ("processes", "-5"), ("processes", "1.5"), ("processes", "2G"), ("cpu", "0"), ("cpu", "-1"), ("cpu", "60s"),
     ("workspace_size", "1"), ("workspace_size", "big")],
)  # fmt: skip
def test_a_limit_that_cannot_be_read_is_refused_with_what_to_write(name: str, text: str) -> None:
    with pytest.raises(HandrailError, match=rf"^--{name.replace('_', '-')} .*cannot be read: write a"):
        read_limit(name, text)


def test_a_size_larger_than_any_machine_is_taken() -> None:
    assert read_limits({"memory": "9999999999999T"})["limits"].memory == 9999999999999 << 40


def test_without_an_option_the_sandbox_has_its_own_defaults() -> None:
    assert "limits" not in Options().for_sandbox()
    assert Options(memory="2G", processes="9").for_sandbox()["limits"] == Limits(memory=2 << 30, processes=9)


def test_where_a_model_works_memory_is_three_quarters_of_the_machine() -> None:
    limits = Options().for_model().for_sandbox()["limits"]
    assert limits == Limits(memory=(machine_memory() * 3 // 4 >> 20) << 20)
    assert Options(memory="none").for_model().for_sandbox()["limits"].memory is None
    assert memory_for_model("1G", "jail") == "1G"
    assert memory_for_model(None, "another") is None, "an installed driver may take no limits"


def write(directory: Path, text: str) -> str:
    (directory / "handrail.toml").write_text(f"[sandbox]\n{text}")
    return str(directory)


def test_a_file_that_is_not_accepted_only_lowers(tmp_path: Path) -> None:
    settings = read_settings(write(tmp_path, 'memory = "64M"\nprocesses = 9999\nworkspace_size = "1G"\ncpu = 1.5'))
    assert (settings.memory, settings.processes) == ("64M", None)
    assert (settings.workspace_size, settings.cpu) == ("1G", "1.5")
    assert any("processes" in note and "not accepted" in note for note in settings.notes)
    more = read_settings(write(tmp_path, 'memory = "99999T"'))
    assert more.memory is None
    assert read_settings(write(tmp_path, 'memory = "none"')).memory is None


def test_a_persons_own_file_sets_limits_and_what_they_type_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "XDG_CONFIG_HOME" / "handrail"
    own.mkdir(parents=True)
    write(own, 'memory = "1G"\nprocesses = 600')
    settings = read_settings(str(tmp_path))
    assert settings.applied(Options(), frozenset()).for_sandbox()["limits"] == Limits(memory=1 << 30, processes=600)
    typed = settings.applied(Options(memory="2G"), frozenset({"memory"}))
    assert typed.for_sandbox()["limits"].memory == 2 << 30


@pytest.mark.parametrize("line", ["memory = 2", 'memory = "2000"', 'processes = "x"', "cpu = -1", "cpu = true"])
def test_a_wrong_limit_in_a_file_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    own = tmp_path / "XDG_CONFIG_HOME" / "handrail"
    own.mkdir(parents=True)
    write(own, line)
    with pytest.raises(HandrailError, match=r"line 2: .*write a"):
        read_settings(str(tmp_path))
