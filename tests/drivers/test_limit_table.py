"""The table of limits is complete: each row names a limit, a check, a broken driver and attacks that exist."""

from dataclasses import fields
from typing import get_args

import pytest

from handrail.contract.driver import Feature
from handrail.contract.limits import Limits
from handrail.drivers.guard import frames
from handrail.drivers.guard.build import HERE
from handrail.drivers.limit_table import LIMIT_TABLE, MAX_NUMBER, numbers_for_guard, size_text
from handrail.testing.conformance import CHECKS
from tests.broken import BROKEN


def test_each_limit_has_a_row_and_each_feature_of_a_limit_too() -> None:
    assert {row.name for row in LIMIT_TABLE} == {field.name for field in fields(Limits)}
    assert {row.feature for row in LIMIT_TABLE} == {it for it in get_args(Feature) if it.startswith("limit_")}


@pytest.mark.parametrize("row", LIMIT_TABLE, ids=lambda row: row.name)
def test_a_row_names_what_exists(row: object) -> None:
    row = next(each for each in LIMIT_TABLE if each is row)
    assert row.check in {check.name for check in CHECKS if check.feature == row.feature}
    broken = next(it for it in BROKEN if it.name == row.broken)
    assert broken.feature == row.feature
    assert row.check in broken.must_fail, "the check catches it"
    program = (HERE / "attempt_limits.c").read_text()
    assert row.attempts
    assert all(f'{{"{name}", ' in program for name, _, _ in row.attempts)


def test_the_guard_is_told_every_limit_that_it_sets_in_its_own_order() -> None:
    told = numbers_for_guard(Limits(1, 2, 3.5, 4, 5, 6, 7), frames.NO_LIMIT)
    assert told == [2, 4, 5, 4, 1], "processes, open files, file size, cpu rounded up, memory"
    assert numbers_for_guard(Limits(memory=1 << 80), frames.NO_LIMIT)[4] == MAX_NUMBER
    assert numbers_for_guard(Limits(None, None, None, None, None, None, None), frames.NO_LIMIT) == [frames.NO_LIMIT] * 5


@pytest.mark.parametrize(
    ("size", "text"), [(1, "1 bytes"), (200 << 20, "200 MiB"), (3 << 29, "1.5 GiB"), (1 << 60, "1.049e+06 TiB")]
)
def test_a_size_is_told_in_the_largest_unit(size: int, text: str) -> None:
    assert size_text(size) == text
