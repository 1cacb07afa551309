"""What people read of a time."""

import pytest

from handrail.cli._console import duration


@pytest.mark.parametrize(
    ("milliseconds", "read"),
    [(0.4, "0 ms"), (999, "999 ms"), (59_940, "59.9 s"), (59_960, "1 min 0 s"), (3_599_600, "60 min 0 s")],
)
def test_a_time_never_has_sixty_seconds(milliseconds: float, read: str) -> None:
    assert duration(milliseconds) == read
