"""`write` makes a file at once or not at all, shows what changed, and overwrites nothing that nobody here has seen."""

import subprocess
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import Call, Limits
from handrail.sandbox.diff import difference
from tests.tools.world import EVERY, World, in_time, world

pytestmark = pytest.mark.anyio


async def test_a_new_file_gets_its_directories_and_a_diff(anywhere: World) -> None:
    value = await anywhere.value("write", path="a/b/c.txt", content="one\nzwölf\n")
    assert (value["bytes_written"], value["created"]) == (11, True)
    assert "+zwölf" in value["diff"]
    assert await anywhere.get("a/b/c.txt") == "one\nzwölf\n".encode()


async def test_content_is_written_exactly(anywhere: World) -> None:
    for content in ("", "no newline", "crlf\r\n", "\ufeffbom\n", "  \n\t\n", "\u2028\x0c\x1b[0m", "[]", "{}", "null"):
        await anywhere.value("write", path="f", content=content)
        assert await anywhere.get("f") == content.encode()


async def test_a_file_that_changed_since_it_was_read_is_not_overwritten_unless_told(anywhere: World) -> None:
    await anywhere.put("f", "old\n")
    await anywhere.value("read", path="f")
    await anywhere.put("f", "somebody else's\n")
    failure = await anywhere.failure("write", path="f", content="mine\n")
    assert (failure.kind, failure.field) == ("rejected", "overwrite")
    assert "Read it again" in failure.message
    assert await anywhere.get("f") == b"somebody else's\n"
    assert "-somebody" in (await anywhere.value("write", path="f", content="mine\n", overwrite=True))["diff"]
    assert await anywhere.get("f") == b"mine\n"


async def test_reading_again_makes_it_known_and_what_one_wrote_oneself_is_known(anywhere: World) -> None:
    await anywhere.put("f", "old\n")
    await anywhere.value("read", path="f")
    await anywhere.put("f", "newer\n")
    await anywhere.value("read", path="f")
    await anywhere.value("write", path="f", content="mine\n")
    await anywhere.value("write", path="f", content="mine again\n")
    await anywhere.value("edit", path="f", edits=[{"old": "again", "new": "once more"}])
    await anywhere.value("write", path="f", content="the last\n")
    await anywhere.put("f", "somebody's\n")
    assert (await anywhere.failure("write", path="f", content="no\n")).kind == "rejected"


async def test_an_edit_does_not_make_somebody_elses_change_known(anywhere: World) -> None:
    await anywhere.put("f", "one\ntwo\n")
    await anywhere.value("read", path="f")
    await anywhere.put("f", "one\ntwo\nand a line of somebody's\n")
    await anywhere.value("edit", path="f", edits=[{"old": "one", "new": "ONE"}])
    assert (await anywhere.failure("write", path="f", content="ONE\ntwo\n")).kind == "rejected"
    assert await anywhere.get("f") == b"ONE\ntwo\nand a line of somebody's\n"


async def test_a_file_known_by_one_name_is_known_by_a_link_to_it(real: World) -> None:
    await real.put("f", "old\n")
    (real.root / "link").symlink_to("f")
    await real.value("read", path="link")
    await real.put("f", "somebody else's\n")
    assert (await real.failure("write", path="f", content="mine\n")).kind == "rejected"


@pytest.mark.parametrize("driver", EVERY)
async def test_edits_and_writes_of_one_file_at_once_lose_nothing(driver: str, tmp_path: Path) -> None:
    """Forty calls of one turn: each edit is in the file, or was answered with a Failure."""
    async with world(driver, tmp_path / "work") as here:
        await here.put("f", "".join(f"line {number:02}\n" for number in range(40)))
        calls = [
            Call(
                f"c{number}", "edit", {"path": "f", "edits": [{"old": f"line {number:02}", "new": f"DONE {number:02}"}]}
            )
            for number in range(40)
        ]
        calls[20] = Call("w", "write", {"path": "g", "content": "x"})
        with in_time():
            results = await here.session.call_all(calls)
        assert all(result.ok for result in results)
        left = (await here.get("f")).decode().split("\n")
    assert left[:-1] == [f"{'line' if number == 20 else 'DONE'} {number:02}" for number in range(40)]


async def test_a_reader_sees_the_old_content_or_the_new_never_part(real: World) -> None:
    texts = {letter * 300_000 for letter in "ab"}
    await real.put("f", "a" * 300_000)
    seen: set[str] = set()

    async def look() -> None:
        while True:
            seen.add((real.root / "f").read_text())
            await checkpoint()

    with in_time():
        async with anyio.create_task_group() as together:
            together.start_soon(look)
            for number in range(20):
                await real.value("write", path="f", content="ab"[number % 2] * 300_000)
            together.cancel_scope.cancel()
    assert seen == texts


async def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    async with world("jail", tmp_path / "work", limits=Limits(tmp=1 << 20)) as here:
        await here.value("write", path="/dev/shm/f", content="old\n")
        failure = await here.failure("write", path="/dev/shm/f", content="x" * (3 << 20))
        assert failure.kind == "execution_error"
        assert (await here.value("bash", command="cat /dev/shm/f; ls -A /dev/shm"))["stdout"] == "old\nf\n"


LINES = st.lists(
    st.sampled_from(["a\n", "b\n", "c\r\n", "\x0c\n", "x\u2028y\n", "@@ -1 +1 @@\n", "-a\n", "--- p\n"]), max_size=12
)


@given(before=LINES, after=LINES, ends=st.sampled_from(["", "last"]), other=st.sampled_from(["", "last", "lost"]))
@settings(max_examples=60, deadline=None)
def test_patch_can_apply_every_diff(before: list[str], after: list[str], ends: str, other: str) -> None:
    old, new = "".join(before) + ends, "".join(after) + other
    shown = difference(old, new, "f", 20_000)
    if old == new:
        assert shown == ""
        return
    assert patched(old, shown) == new


def test_patch_can_apply_a_diff_of_many_lines() -> None:
    old = "".join(f"{number}\n" for number in range(9_000))
    new = old.replace("8000\n", "changed\n").replace("40\n", "", 1)
    assert patched(old, difference(old, new, "f", 20_000)) == new
    assert patched("", difference("", "a\nb", "f", 20_000)) == "a\nb"


def patched(old: str, diff: str) -> str:
    """What the program of that name makes of it."""
    work = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    (work / "f").write_bytes(old.encode())
    command = ["patch", "--binary", "-s", "-o", "-", str(work / "f")]
    ran = subprocess.run(command, input=diff.encode(), capture_output=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr + diff.encode()
    subprocess.run(["rm", "-rf", str(work)], check=True)
    return ran.stdout.decode()
