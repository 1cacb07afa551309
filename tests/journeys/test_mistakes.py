"""Each typical mistake is answered: the message says what happened and what to write."""

import pytest

from tests.journeys.mistakes import MISTAKES, Mistake, message_of

pytestmark = pytest.mark.anyio
UNHELPFUL = (
    "object has no attribute", "not iterable", "not callable", "unsupported operand", "unexpected keyword",
    "required positional argument", "not supported between instances", "has no len()", "unhashable", "KeyError",
)  # fmt: skip
"""Python's own words for a mistake that nobody looked for."""


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.sentence)
async def test_a_mistake_is_answered_with_what_to_write(mistake: Mistake) -> None:
    told = await message_of(mistake.code)
    assert [part for part in mistake.says if part not in told] == [], told
    assert [words for words in UNHELPFUL if words in told] == [], told
    assert len(told) < 700


def test_the_table_has_at_least_63_mistakes_each_with_its_own_code_and_words() -> None:
    assert len(MISTAKES) >= 63
    assert (
        len({mistake.code for mistake in MISTAKES}) == len({mistake.sentence for mistake in MISTAKES}) == len(MISTAKES)
    )
    assert all(mistake.says for mistake in MISTAKES)


async def test_code_without_a_mistake_has_no_message() -> None:
    with pytest.raises(KeyError):
        await message_of("async with Session([add]) as session:\n    pass")
