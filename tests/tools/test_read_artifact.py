"""read_artifact: every part of an artifact can be read, in whole characters, and the result says how to go on."""

from collections.abc import AsyncIterator

import pytest

from handrail import Session
from handrail.tools.read_artifact import read_artifact

pytestmark = pytest.mark.anyio
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with Session([read_artifact]) as session:
        yield session


@pytest.mark.parametrize("data", ["text", PNG])
async def test_every_page_of_an_incomplete_artifact_says_that_it_is(session: Session, data: str | bytes) -> None:
    cut = await session.artifacts.put(data, incomplete=True)
    for start in (0, 2):
        result = await session.call("read_artifact", {"ref": cut.ref, "start": start})
        assert result.value["incomplete"] is True
        assert any("incomplete" in warning for warning in result.warnings)
    whole = await session.artifacts.put("whole")
    control = await session.call("read_artifact", {"ref": whole.ref})
    assert ("incomplete" in control.value, control.warnings) == (False, ())


async def test_every_part_of_a_long_text_can_be_read_and_says_where_to_go_on(session: Session) -> None:
    whole = "".join(f"{n} é🎉\n" for n in range(12_000))
    kept = await session.artifacts.put(whole)
    text, start, pages = "", 0, 0
    while True:
        result = await session.call("read_artifact", {"ref": kept.ref, "start": start})
        value = result.value
        assert value["start"] == start
        text += value["text"]
        pages += 1
        if "next_start" not in value:
            break
        assert f"start={value['next_start']}" in result.warnings[0]
        start = value["next_start"]
    assert text == whole
    assert 2 < pages < 10


@pytest.mark.parametrize("length", [1, 2, 3, 5, 7])
async def test_pages_of_any_size_hold_whole_characters(session: Session, length: int) -> None:
    whole = "aé€🎉" * 5
    kept = await session.artifacts.put(whole)
    text, start = "", 0
    for _ in range(100):
        value = (await session.call("read_artifact", {"ref": kept.ref, "start": start, "length": length})).value
        text += value["text"]
        start = value.get("next_start")
        if start is None:
            break
    assert text == whole


async def test_a_start_inside_a_character_begins_with_that_character(session: Session) -> None:
    kept = await session.artifacts.put("€uro")
    value = (await session.call("read_artifact", {"ref": kept.ref, "start": 2})).value
    assert (value["start"], value["text"]) == (0, "€uro")


async def test_the_length_is_what_is_read_and_too_much_of_it_is_less(session: Session) -> None:
    kept = await session.artifacts.put("x" * 200_000)
    assert len((await session.call("read_artifact", {"ref": kept.ref, "length": 10})).value["text"]) == 10
    assert len((await session.call("read_artifact", {"ref": kept.ref})).value["text"]) == 51_200
    most = await session.call("read_artifact", {"ref": kept.ref, "length": 150_000})
    assert (len(most.value["text"]), most.value["next_start"]) == (51_200, 51_200)
    session.tokens_left = 10_000
    small = await session.call("read_artifact", {"ref": kept.ref, "start": 7})
    assert (len(small.value["text"]), small.value["next_start"]) == (5_120, 5_127)


async def test_binary_content_is_described_and_not_dumped(session: Session) -> None:
    kept = await session.artifacts.put(PNG, media_type="image/png")
    result = await session.call("read_artifact", {"ref": kept.ref})
    assert result.value["kind"] == "binary"
    assert (result.value["size"], result.value["media_type"]) == (len(PNG), "image/png")
    assert "text" not in result.value
    assert kept.ref in result.warnings[0]
    damaged = await session.artifacts.put(b"mostly text \xff\n" + b"fine\n" * 100, media_type="text/plain")
    assert "mostly text \ufffd" in (await session.call("read_artifact", {"ref": damaged.ref})).value["text"]


async def test_an_unknown_reference_and_a_start_past_the_end_are_told_apart(session: Session) -> None:
    unknown = await session.call("read_artifact", {"ref": "../../etc/passwd"})
    assert not unknown.ok
    assert (unknown.kind, unknown.field) == ("invalid_args", "ref")
    kept = await session.artifacts.put("abc")
    past = await session.call("read_artifact", {"ref": kept.ref, "start": 3})
    assert not past.ok
    assert (past.kind, past.field) == ("invalid_args", "start")
    empty = await session.artifacts.put("")
    assert (await session.call("read_artifact", {"ref": empty.ref})).value["text"] == ""


def test_its_risk_effects_and_needs_are_what_a_policy_judges_by() -> None:
    assert (read_artifact.risk, read_artifact.effects, read_artifact.needs) == ("safe", {"reads"}, set())
