"""`read` gives lines, listings and pictures within its limits, and always says how to go on."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail import Image, Success, run_sync
from handrail.contract.limits import DEFAULT_CAPS as CAPS
from handrail.toolkit.images import MAX_IMAGE_BYTES
from tests.tools.world import REAL, World, in_time, world

pytestmark = pytest.mark.anyio
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


async def test_a_file_reads_as_lines_with_where_they_are(anywhere: World) -> None:
    await anywhere.put("a.txt", "one\ntwo\nthree")
    assert await anywhere.value("read", path="a.txt", offset=2, limit=1) == {
        "kind": "file", "text": "two\n", "path": "a.txt", "start_line": 2, "end_line": 2, "total_lines": 3, "size": 13,
        "truncated": True,
    }  # fmt: skip
    whole = await anywhere.value("read", path="a.txt")
    assert (whole["text"], whole["end_line"], whole["truncated"]) == ("one\ntwo\nthree", 3, False)


async def test_a_directory_reads_as_a_listing_whose_paths_can_be_read(anywhere: World) -> None:
    await anywhere.put("sub/deep/a.txt", "apple\n")
    await anywhere.put("sub/b.txt", "berry\n")
    listing = await anywhere.value("read", path="sub")
    assert [(entry["name"], entry["type"]) for entry in listing["entries"]] == [
        ("b.txt", "file"),
        ("deep", "directory"),
    ]
    assert (listing["kind"], listing["entry_count"], listing["truncated"]) == ("listing", 2, False)
    inner = await anywhere.value("read", path=listing["entries"][1]["path"])
    assert (await anywhere.value("read", path=inner["entries"][0]["path"]))["text"] == "apple\n"


async def test_a_long_listing_says_how_to_go_on(tmp_path: Path) -> None:
    async with world("memory", tmp_path) as here:
        for number in range(CAPS.entries + 5):
            await here.put(f"f{number:04}", "")
        first = await here.call("read", path=".")
        assert isinstance(first, Success)
        assert (len(first.value["entries"]), first.value["truncated"]) == (CAPS.entries, True)
        assert f"offset={CAPS.entries + 1}" in first.warnings[0]
        rest = await here.value("read", path=".", offset=CAPS.entries + 1)
    assert [entry["name"] for entry in rest["entries"]] == [
        f"f{number:04}" for number in range(CAPS.entries, CAPS.entries + 5)
    ]


async def test_a_missing_path_lists_what_is_there_instead(anywhere: World) -> None:
    await anywhere.put("src/handler.py", "")
    await anywhere.put("src/model.py", "")
    failure = await anywhere.failure("read", path="src/handlers.py")
    assert (failure.kind, failure.field) == ("not_found", "path")
    assert "Did you mean src/handler.py?" in failure.message
    deeper = await anywhere.failure("read", path="src/nowhere/x.py")
    assert "handler.py, model.py" in deeper.message


async def test_a_picture_comes_as_a_picture_and_other_bytes_are_described(anywhere: World) -> None:
    await anywhere.put("p.png", PNG)
    await anywhere.put("x.bin", b"\x7fELF\0\0rest")
    picture = await anywhere.value("read", path="p.png")
    assert (picture, picture.media_type) == (Image(PNG, "image/png"), "image/png")
    binary = await anywhere.value("read", path="x.bin")
    assert (binary["kind"], binary["size"], binary["begins_with"][:11]) == ("binary", 10, "7f 45 4c 46")


IMAGES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF\0" + bytes(50),
    "image/gif": b"GIF89a" + bytes(50),
    "image/webp": b"RIFF\x40\0\0\0WEBPVP8 " + bytes(50),
}


@pytest.mark.parametrize("kind", IMAGES)
async def test_an_image_is_known_by_its_content_not_by_its_name(anywhere: World, kind: str) -> None:
    await anywhere.put("picture.txt", IMAGES[kind])
    await anywhere.put("text.png", "not a picture\n")
    result = await anywhere.call("read", path="picture.txt")
    assert result.value == Image(IMAGES[kind], kind)
    wire = result.to_envelope("read")["result"]
    assert await anywhere.session.artifacts.read(wire.pop("$artifact")) == IMAGES[kind]
    assert wire == {"kind": "image", "media_type": kind, "size": len(IMAGES[kind])}, "the bytes travel beside the text"
    assert (await anywhere.value("read", path="text.png"))["text"] == "not a picture\n"


@pytest.mark.parametrize("size", [MAX_IMAGE_BYTES, MAX_IMAGE_BYTES + 1])
async def test_an_image_that_is_too_large_is_described_with_what_to_do(anywhere: World, size: int) -> None:
    await anywhere.put("p.png", PNG + bytes(size - len(PNG)))
    result = await anywhere.call("read", path="p.png")
    if size <= MAX_IMAGE_BYTES:
        assert (type(result.value), len(result.value.data), result.warnings) == (Image, size, ())
    else:
        assert (result.value["kind"], result.value["size"], result.value["shown"]) == ("image", size, False)
        assert "larger than 5 MiB" in result.warnings[0]
        assert "smaller copy" in result.warnings[0]


async def test_long_lines_are_cut_between_characters_and_that_is_said(anywhere: World) -> None:
    line = "ä" * CAPS.line + "!"
    await anywhere.put("long.txt", f"x{line}\nshort\n")
    result = await anywhere.call("read", path="long.txt")
    assert isinstance(result, Success)
    shown, short = result.value["text"].splitlines()
    kept, mark = shown.split(" [… ")
    assert f"x{line}".startswith(kept)
    assert len(kept.encode()) + int(mark.split()[0].replace(",", "")) == len(f"x{line}".encode())
    assert (short, "\ufffd" in shown) == ("short", False)
    assert "cut" in " ".join(result.warnings)


async def test_bytes_that_are_not_utf8_are_shown_and_told(anywhere: World) -> None:
    await anywhere.put("latin.txt", "caf\xe9\n".encode("latin-1"))
    result = await anywhere.call("read", path="latin.txt")
    assert isinstance(result, Success)
    assert result.value["text"] == "caf\ufffd\n"
    assert any("UTF-8" in warning for warning in result.warnings)


async def test_an_empty_file_is_said_to_be_empty(anywhere: World) -> None:
    await anywhere.put("empty", "")
    result = await anywhere.call("read", path="empty")
    assert isinstance(result, Success)
    assert (result.value["text"], result.value["total_lines"], result.warnings) == ("", 0, ("empty is empty.",))


@pytest.mark.parametrize("driver", REAL)
async def test_a_file_that_never_ends_its_line_is_read_in_bounded_time(driver: str, tmp_path: Path) -> None:
    async with world(driver, tmp_path) as here:
        with (tmp_path / "log").open("wb") as file:
            file.write(b"line\n" * 5_000)
            file.truncate(5 << 30)
        with in_time():
            result = await here.value("read", path="log", limit=10)
            assert (result["text"], result["truncated"]) == ("line\n" * 10, True)
            last = await here.call("read", path="log", offset=5_001)
    assert last.ok
    assert "more bytes" in json.dumps(last.to_envelope("read"))


@given(
    lines=st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=60), max_size=60),
    limit=st.integers(min_value=1, max_value=40),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_page_by_page_a_file_comes_out_exactly_as_it_is(lines: list[str], limit: int, tmp_path: Path) -> None:
    async def read_all() -> tuple[str, str]:
        text = "\n".join(lines)
        async with world("memory", tmp_path) as here:
            await here.put("f", text)
            pages, offset = [], 1
            while True:
                page = await here.value("read", path="f", offset=offset, limit=limit)
                pages.append(page["text"])
                offset = page["end_line"] + 1
                if not page["truncated"]:
                    return text, "".join(pages)

    text, read = run_sync(read_all())
    assert read == text


async def test_a_page_is_never_more_than_its_limits_and_the_next_one_goes_on(tmp_path: Path) -> None:
    text = "".join(f"{number:>30}\n" for number in range(10_000))
    async with world("memory", tmp_path) as here:
        await here.put("f", text)
        pages, offset = [], 1
        while offset <= 10_000:
            result = await here.call("read", path="f", offset=offset)
            assert isinstance(result, Success)
            page = result.value
            assert page["end_line"] - page["start_line"] < CAPS.lines
            assert len(page["text"]) <= CAPS.file
            assert not page["truncated"] or f"offset={page['end_line'] + 1}" in " ".join(result.warnings)
            pages.append(page["text"])
            offset = page["end_line"] + 1
    assert "".join(pages) == text
    assert len(pages) > 5, "the control: it was cut"
