"""No sequence of bytes makes the guard's parser read what it must not."""

import random
import re
from pathlib import Path

import pytest

from fuzz.parser import build_parser, run_parser


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_parser(tmp_path_factory.mktemp("fuzz"))


def test_the_parser_survives_hostile_frames_under_the_sanitizers(program: Path) -> None:
    seed = random.randrange(1 << 30)
    ran = run_parser(program, 3, seed)
    assert ran.returncode == 0, f"seed {seed}\n{ran.stderr}"
    counts = [int(number) for number in re.findall(r"\d+", ran.stdout)]
    assert min(counts) > 1000, "the control: good, bad and incomplete frames were all among them"


def test_the_sanitizers_report_a_planted_mistake(program: Path) -> None:
    ran = run_parser(program, 1, 1, planted=True)
    assert ran.returncode != 0
    assert "heap-buffer-overflow" in ran.stderr
