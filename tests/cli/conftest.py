"""What the tests of the commands share: a workspace, and a home of nobody."""

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"HOME": str(tmp_path_factory.mktemp("home"))}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"
