"""Files go in and come out exactly as they are, and relative paths begin where the view stands."""

from time import monotonic

import anyio
import pytest

from handrail.contract.errors import Unavailable
from handrail.drivers.memory import MemoryDriver, Script
from handrail.sandbox import Sandbox
from handrail.sandbox.views import identity

pytestmark = pytest.mark.anyio


async def test_bytes_and_text_come_back_exactly() -> None:
    sandbox = Sandbox(MemoryDriver())
    await sandbox.write_text("a/b/c.txt", "línea\r\nno end", mode=0o600)
    assert await sandbox.read_text("a/b/c.txt") == "línea\r\nno end"
    assert await sandbox.read_bytes("/workspace/a/b/c.txt") == "línea\r\nno end".encode()
    assert (await sandbox.stat("a/b/c.txt")).mode == 0o600
    await sandbox.write_text("l", "é", encoding="latin-1")
    assert await sandbox.read_bytes("l") == b"\xe9"
    assert await sandbox.read_text("l", encoding="latin-1") == "é"
    with pytest.raises(UnicodeDecodeError):
        await sandbox.read_text("l")


async def test_a_range_is_read_and_a_wrong_one_refused() -> None:
    sandbox = Sandbox(MemoryDriver({"n": b"0123456789"}))
    assert await sandbox.read_bytes("n", start=3, length=4) == b"3456"
    assert await sandbox.read_bytes("n", start=8) == b"89"
    assert await sandbox.read_bytes("n", start=80) == b""
    for start, length in ((-1, None), (0, -1)):
        with pytest.raises(ValueError, match="from 0 upwards"):
            await sandbox.read_bytes("n", start=start, length=length)


async def test_a_new_write_keeps_the_old_mode() -> None:
    sandbox = Sandbox(MemoryDriver())
    await sandbox.write_bytes("x", b"1", mode=0o755)
    await sandbox.write_bytes("x", b"2")
    assert (await sandbox.stat("x")).mode == 0o755


async def test_directories_are_listed_made_and_removed() -> None:
    sandbox = Sandbox(MemoryDriver({"b": "1", "a/x": "2"}))
    assert [(entry.path, entry.type, entry.size) for entry in await sandbox.list()] == [
        ("/workspace/a", "directory", 0),
        ("/workspace/b", "file", 1),
    ]
    await sandbox.make_dir("deep/er")
    await sandbox.make_dir("deep/er")
    assert await sandbox.exists("deep/er")
    await sandbox.remove("deep")
    await sandbox.remove("a")
    await sandbox.remove("b")
    assert await sandbox.list("/workspace") == []
    assert not await sandbox.exists("a/x")


async def test_each_wrong_path_raises_its_own_error() -> None:
    sandbox = Sandbox(MemoryDriver({"file": "1", "dir/x": "2"}))
    with pytest.raises(FileNotFoundError):
        await sandbox.read_bytes("gone")
    with pytest.raises(FileNotFoundError):
        await sandbox.remove("gone")
    with pytest.raises(FileNotFoundError):
        await sandbox.list("gone")
    with pytest.raises(IsADirectoryError):
        await sandbox.read_bytes("dir")
    with pytest.raises(IsADirectoryError):
        await sandbox.write_bytes("dir", b"")
    with pytest.raises(NotADirectoryError):
        await sandbox.read_bytes("file/x")
    with pytest.raises(NotADirectoryError):
        await sandbox.list("file")
    with pytest.raises(FileExistsError):
        await sandbox.make_dir("file")
    assert not await sandbox.exists("file/x")


@pytest.mark.parametrize("path", ["", "a\0b", "\0"])
async def test_an_impossible_path_is_refused_before_the_driver_sees_it(path: str) -> None:
    sandbox = Sandbox(MemoryDriver())
    for refused in (sandbox.read_bytes, sandbox.read_text, sandbox.stat, sandbox.exists, sandbox.list, sandbox.remove):
        with pytest.raises(ValueError, match="path"):
            await refused(path)
    with pytest.raises(ValueError, match="path"):
        await sandbox.write_text(path, "x")
    with pytest.raises(ValueError, match="path"):
        sandbox.at(path)


async def test_wrong_content_and_modes_are_refused() -> None:
    sandbox = Sandbox(MemoryDriver())
    with pytest.raises(ValueError, match="write_text"):
        await sandbox.write_bytes("a", "text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="write_bytes"):
        await sandbox.write_text("a", b"bytes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mode"):
        await sandbox.write_bytes("a", b"", mode=0o10000)


async def test_names_with_spaces_newlines_and_unicode_work() -> None:
    sandbox = Sandbox(MemoryDriver())
    for name in ("a b", "a\nb", "ünï/😀", "-rf", "~"):
        await sandbox.write_text(name, name)
        assert await sandbox.read_text(name) == name


async def test_a_view_begins_elsewhere_and_bounds_nothing() -> None:
    driver = MemoryDriver({"src/a": "inner", "a": "outer"}, {"ls": Script("x")})
    sandbox = Sandbox(driver)
    view = sandbox.at("src")
    assert await view.read_text("a") == "inner"
    assert await view.read_text("../a") == await view.read_text("/workspace/a") == "outer"
    assert (view.cwd, view.at("deeper").cwd, view.at("/").cwd) == ("/workspace/src", "/workspace/src/deeper", "/")
    assert await view.at("..").read_text("a") == "outer"
    assert (await view.run("ls")).cwd == "/workspace/src"
    assert (await view.run("ls", cwd="..", env={"A": "1"}, timeout=3)).cwd == "/workspace"
    assert (driver.started[0].cwd, driver.started[1].env, driver.started[1].timeout) == (
        "/workspace/src",
        {"A": "1"},
        3,
    )
    job = await view.start("ls")
    assert sandbox.job(job.id) is job
    assert job.cwd == "/workspace/src"
    await job.wait()


async def test_dots_and_slashes_never_change_what_a_path_means_and_only_directories_have_a_parent() -> None:
    sandbox = Sandbox(MemoryDriver({"/data2/x": "2", "/data/x": "1"}, workspace="/data"))
    assert sandbox.workspace == "/data"
    await sandbox.make_dir("b")
    assert await sandbox.read_text("./b/..//x/") == "1"
    for path, error in (("missing/../x", FileNotFoundError), ("x/../x", NotADirectoryError)):
        with pytest.raises(error):
            await sandbox.read_text(path)
        with pytest.raises(error):
            await sandbox.write_text(path, "never")
    assert await sandbox.read_text("../data2/x") == "2"
    assert await sandbox.read_text("//data2///x") == "2"
    assert await sandbox.read_text("../../../../data2/x") == "2"
    assert Sandbox(MemoryDriver(), workspace="/elsewhere").cwd == "/elsewhere"


class Silent(MemoryDriver):
    """Never answers a file operation, not even when it is cancelled."""

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(6)
        return b"late"


async def test_a_driver_that_never_answers_a_file_operation_is_given_up() -> None:
    sandbox = Sandbox(Silent({"file": "here"}))
    identity(sandbox).file_wait = 0.2
    began = monotonic()
    with pytest.raises(Unavailable, match=r"did not answer a file operation within 0.2 s. It may be dead"):
        await sandbox.read_bytes("file")
    assert monotonic() - began < 5
    assert await sandbox.exists("file"), "the control: others are answered"


async def test_a_driver_that_never_answers_does_not_hold_up_a_cancellation() -> None:
    sandbox = Sandbox(Silent({"file": "here"}))
    began = monotonic()
    with anyio.move_on_after(0.1) as scope:
        await sandbox.read_bytes("file")
    assert scope.cancelled_caught
    assert monotonic() - began < 5
