"""Large things pass from tool to tool by reference: past the transcript, past the model, and through bounded memory."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from handrail import Caps, Context, Session, open_sandbox, tool
from handrail.testing import approve_all
from handrail.tools.bash import bash
from handrail.tools.read_artifact import read_artifact
from handrail.tools.share_artifact import share_artifact

pytestmark = pytest.mark.anyio
MB = 1_000_000
SIZE = 200 * MB


@tool
async def make(size: int, context: Context) -> Any:
    """Make a large value, piece by piece."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(size // MB):
            yield b"0123456789" * (MB // 10)

    return await context.artifacts.put_stream(pieces(), media_type="text/plain")


@tool
async def write(size: int) -> str:
    """Write a long text."""
    return "0123456789" * (size // 10)


@tool
async def digest(data: bytes) -> str:
    """Its sha256."""
    return sha256(data).hexdigest()


@tool
async def count(text: str) -> int:
    """How many characters it has."""
    return len(text)


def most_memory() -> int:
    """Bytes that this program ever had in memory at once; what its parent had does not count."""
    (found,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found) * 1024


async def pass_on(name: str, maker: str = "make") -> dict[str, Any]:
    """In a process of its own: what came out, how large the transcript is, and how much memory it took."""
    async with Session([make, write, digest, count]) as session:
        await session.call(maker, {"size": MB})
        await session.call(name, {next(iter(session.toolbox.find(name).parameters["properties"])): "x"})
        before = most_memory()
        made = await session.call(maker, {"size": SIZE})
        grown = most_memory() - before
        argument = {"digest": "data", "count": "text"}[name]
        kept = made.value if maker == "make" else made.value.whole
        used = await session.call(name, {argument: kept.to_wire()})
        memory = most_memory() - before
        told = sum(len(json.dumps(event.data, default=str)) for event in session.trace)
    return {"value": used.value, "told": told, "making": grown, "memory": memory}


def in_a_process_of_its_own(name: str, maker: str = "make") -> dict[str, Any]:
    program = (
        "import anyio, json\n"
        "from tests.journeys.test_by_reference import pass_on\n"
        f"print(json.dumps(anyio.run(pass_on, {name!r}, {maker!r})))\n"
    )
    root = Path(__file__).parents[2]
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, cwd=root, timeout=120)
    assert ended.returncode == 0, ended.stderr.decode()
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_200_megabytes_reach_another_tool_as_bytes_and_are_in_memory_once() -> None:
    found = in_a_process_of_its_own("digest")
    assert found["value"] == sha256(b"0123456789" * (SIZE // 10)).hexdigest()
    assert found["told"] < 10_000
    assert found["making"] < 40 * MB
    assert SIZE * 0.9 < found["memory"] < SIZE * 1.3


def test_200_megabytes_reach_another_tool_as_text() -> None:
    found = in_a_process_of_its_own("count")
    assert found["value"] == SIZE
    assert found["told"] < 10_000
    assert found["memory"] < SIZE * 3.3


def test_200_megabytes_that_a_tool_returned_reach_another_tool_whole_and_past_the_context() -> None:
    found = in_a_process_of_its_own("digest", "write")
    assert found["value"] == sha256(b"0123456789" * (SIZE // 10)).hexdigest()
    assert found["told"] < 110_000, "the ends of two texts, as the model is shown them"
    assert found["making"] < SIZE * 1.3, "the text itself, which the tool made, and no copy of it"
    assert found["memory"] < SIZE * 2.3


async def printed(tmp_path: Path, size: int, caps: Caps) -> tuple[Any, Any, Any, int]:
    """The answer of a command of so many bytes, what another tool makes of it, a page of it, the transcript's size."""
    command = f"head -c {size} /dev/zero | tr '\\0' x"
    async with (
        open_sandbox("host", workspace=str(tmp_path), allow_weaker=True) as sandbox,
        Session([bash, count, read_artifact], sandbox=sandbox, approver=approve_all, caps=caps) as session,
    ):
        ran = await session.call("bash", {"command": command, "timeout": 600})
        assert ran.ok, ran
        kept = ran.value["stdout"].whole
        used = await session.call("count", {"text": kept.to_wire()})
        page = await session.call("read_artifact", {"ref": kept.ref, "length": 100})
        told = sum(len(json.dumps(event.data, default=str)) for event in session.trace if event.type != "output")
    return ran, used, page, told


async def test_200_megabytes_from_bash_reach_another_tool_where_the_spool_holds_them(tmp_path: Path) -> None:
    ran, used, page, told = await printed(tmp_path, SIZE, Caps(spool=256 << 20))
    assert used.value == SIZE
    assert told < 300_000
    assert not ran.value["stdout"].whole.incomplete
    assert "incomplete" not in page.value


async def test_what_bash_printed_beyond_its_spool_is_marked_and_refused_as_an_argument(tmp_path: Path) -> None:
    ran, used, page, told = await printed(tmp_path, SIZE, Caps())
    assert ran.value["stdout"].whole.incomplete
    assert "incomplete output: a_" in ran.value["stdout"]
    assert any("a part of the rest was discarded" in warning for warning in ran.warnings)
    assert (used.ok, used.kind, used.field) == (False, "invalid_args", "text")
    assert "incomplete" in used.message
    assert page.value["incomplete"] is True
    assert any("incomplete" in warning for warning in page.warnings)
    assert told < 300_000


async def test_a_file_of_the_sandbox_is_shared_and_read_by_another_tool(tmp_path: Path) -> None:
    size = 40 * MB
    (tmp_path / "large.bin").write_bytes(b"0123456789" * (size // 10))
    async with (
        open_sandbox("host", workspace=str(tmp_path), allow_weaker=True) as sandbox,
        Session([share_artifact, digest], sandbox=sandbox, approver=approve_all) as session,
    ):
        shared = await session.call("share_artifact", {"path": "large.bin"})
        assert shared.ok, shared
        used = await session.call("digest", {"data": {"$artifact": shared.value["artifact"].ref}})
        assert used.value == sha256(b"0123456789" * (size // 10)).hexdigest()
        assert sum(len(json.dumps(event.data, default=str)) for event in session.trace) < 10_000


async def test_any_part_of_a_commands_output_that_was_left_out_can_be_read(tmp_path: Path) -> None:
    async with (
        open_sandbox("host", workspace=str(tmp_path), allow_weaker=True) as sandbox,
        Session([bash, read_artifact], sandbox=sandbox, approver=approve_all) as session,
    ):
        ran = await session.call("bash", {"command": "seq -f 'line %09.0f' 1 100000; exit 3"})
        assert ran.ok, ran
        stdout = ran.value["stdout"]
        assert ran.value["exit_code"] == 3
        assert stdout.startswith("line 000000001\n")
        assert stdout.endswith("line 000100000\n")
        assert "line 000050000\n" not in stdout
        ref = stdout.partition("full output: ")[2].partition("]")[0]
        part = await session.call("read_artifact", {"ref": ref, "start": 15 * 49_999, "length": 15})
        assert part.value["text"] == "line 000050000\n"
        assert part.value["size"] == 15 * 100_000
