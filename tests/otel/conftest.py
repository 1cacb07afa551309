"""A provider for each test."""

from collections.abc import Iterator

import pytest

from tests.otel.spans import Seen


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    made.provider.shutdown()
