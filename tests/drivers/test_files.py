"""Files are read by range and written whole or not at all, and no path leads outside or hangs."""

import errno
import os
import socket
from pathlib import Path

import anyio
import pytest

from handrail.contract.driver import Mount
from handrail.drivers._guarded import GuardedDriver
from tests.drivers.conftest import Open
from tests.drivers.watching import PATIENCE, run

pytestmark = pytest.mark.anyio


@pytest.fixture
def home(driver: GuardedDriver) -> Path:
    """The workspace, as seen from outside too: it keeps its path."""
    return Path(driver.workspace)


async def test_bytes_come_back_as_written_and_by_range(driver: GuardedDriver, home: Path) -> None:
    data = os.urandom(3 << 20) + b"\r\nno newline at the end"
    await driver.write(f"{home}/deep/er/file", data)
    assert (home / "deep/er/file").read_bytes() == data
    assert await driver.read(f"{home}/deep/er/file") == data
    assert await driver.read(f"{home}/deep/er/file", start=1 << 20, length=5) == data[1 << 20 : (1 << 20) + 5]
    assert await driver.read(f"{home}/deep/er/file", start=len(data) - 3) == data[-3:]
    assert await driver.read(f"{home}/deep/er/file", start=1 << 62) == b""
    assert await driver.read(f"{home}/deep/er/file", length=0) == b""
    await driver.write(f"{home}/empty", b"")
    assert await driver.read(f"{home}/empty") == b""


async def test_the_mode_is_the_one_asked_for_else_the_old_one(driver: GuardedDriver, home: Path) -> None:
    await driver.write(f"{home}/file", b"1")
    assert (await driver.stat(f"{home}/file")).mode == 0o644
    await driver.write(f"{home}/file", b"2", mode=0o755)
    await driver.write(f"{home}/file", b"3")
    assert (home / "file").stat().st_mode & 0o7777 == 0o755
    with pytest.raises(PermissionError):
        await driver.write(f"{home}/file", b"4", mode=0o4755)
    assert (home / "file").read_bytes() == b"3"


async def test_a_file_that_a_command_may_not_write_is_not_overwritten(driver: GuardedDriver, home: Path) -> None:
    await driver.write(f"{home}/sealed", b"old", mode=0o444)
    shell = await run(driver, "echo new > sealed")
    if shell.code == 0:
        assert driver.name == "host", "the control: only without a guard may root's commands write it"
        assert os.geteuid() == 0
        await driver.write(f"{home}/sealed", b"new\n")
        return
    for mode in (None, 0o644):
        with pytest.raises(PermissionError):
            await driver.write(f"{home}/sealed", b"new", mode=mode)
    assert (home / "sealed").read_bytes() == b"old"
    assert os.listdir(home) == ["sealed"]
    await driver.remove(f"{home}/sealed")


async def test_missing_and_wrong_kinds_have_their_own_errors(driver: GuardedDriver, home: Path) -> None:
    await driver.write(f"{home}/file", b"x")
    (home / "loop").symlink_to("loop")
    with pytest.raises(FileNotFoundError):
        await driver.read(f"{home}/missing")
    with pytest.raises(FileNotFoundError):
        await driver.remove(f"{home}/missing")
    with pytest.raises(IsADirectoryError):
        await driver.read(str(home))
    with pytest.raises(IsADirectoryError):
        await driver.write(str(home), b"x")
    with pytest.raises(NotADirectoryError):
        await driver.read(f"{home}/file/below")
    with pytest.raises(NotADirectoryError):
        await driver.list(f"{home}/file")
    with pytest.raises(FileExistsError):
        await driver.make_dir(f"{home}/file")
    with pytest.raises(OSError, match="symbolic links"):
        await driver.read(f"{home}/loop")
    with pytest.raises(ValueError):
        await driver.read(f"{home}/a\0b")
    with pytest.raises(ValueError):
        await driver.read("relative")
    with pytest.raises(ValueError):
        await driver.read(f"{home}/file", start=-1)
    with pytest.raises(OSError):
        await driver.write(f"{home}/{'x' * 300}", b"")


async def test_stat_says_where_a_link_leads(driver: GuardedDriver, home: Path) -> None:
    await driver.write(f"{home}/dir/file", b"12345")
    (home / "link").symlink_to("dir")
    (home / "absolute").symlink_to(home / "dir" / "file")
    (home / "dangling").symlink_to("nowhere")
    os.mkfifo(home / "fifo")
    found = {
        name: await driver.stat(f"{home}/{name}") for name in ("link/file", "absolute", "link", "dangling", "fifo")
    }
    assert found["link/file"].real_path == found["absolute"].real_path == f"{home}/dir/file"
    assert (found["absolute"].type, found["absolute"].size) == ("file", 5)
    assert (found["link"].type, found["dangling"].type, found["fifo"].type) == ("directory", "symlink", "other")
    assert found["link/file"].path == f"{home}/link/file"
    listed = {entry.path: (entry.type, entry.real_path) for entry in await driver.list(str(home))}
    assert listed[f"{home}/absolute"] == ("file", f"{home}/dir/file")
    assert listed[f"{home}/dangling"] == ("symlink", f"{home}/dangling")
    with pytest.raises(FileNotFoundError):
        await driver.stat(f"{home}/missing")


async def test_nothing_leads_outside(driver: GuardedDriver, home: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    beside = tmp_path / "work2"
    beside.mkdir()
    (beside / "secret").write_text("secret")
    (home / "link").symlink_to(outside)
    (home / "up").symlink_to("../outside")
    (home / "root").symlink_to("/")
    paths = [
        outside / "secret", beside / "secret", home / "../outside/secret", home / "../work2/secret",
        home / "link/secret", home / "up/secret", home / f"root{outside}/secret", f"/proc/self/root{outside}/secret",
        f"/proc/self/cwd/../{outside}/secret",
    ]  # fmt: skip
    assert (home / "link/secret").read_text() == "secret", "the control: outside they do lead there"
    for path in map(str, paths):
        with pytest.raises((PermissionError, FileNotFoundError)):
            await driver.read(path)
        for change in (driver.write(path, b"mine"), driver.remove(path)):
            try:
                await change
                refused: int | None = None
            except OSError as error:
                refused = error.errno
            in_private_tmp = driver.name == "jail" and refused is None
            assert in_private_tmp or refused in (errno.EACCES, errno.ENOENT, errno.EPERM, errno.EROFS), path
    assert (outside / "secret").read_text() == (beside / "secret").read_text() == "secret"
    assert os.listdir(outside) == os.listdir(beside) == ["secret"]


@pytest.mark.guarded
async def test_a_link_swapped_during_use_never_leads_outside(driver: GuardedDriver, home: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("OUTSIDE")
    await driver.write(f"{home}/inside/file", b"inside")
    (home / "a").symlink_to("inside")
    (home / "b").symlink_to(outside)
    done = anyio.Event()

    swaps = 0

    def swap() -> None:
        nonlocal swaps
        while not done.is_set():
            for name in ("a", "b"):
                os.symlink(os.readlink(home / name), home / "next")
                os.rename(home / "next", home / "current")
                swaps += 1

    seen = set()
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, swap)
        tries = 0
        while tries < 300 or (swaps <= 100 and tries < 30_000):
            tries += 1
            try:
                seen.add(await driver.read(f"{home}/current/file"))
                await driver.write(f"{home}/current/file", b"inside")
            except OSError as error:  # which one depends on when the link was swapped
                seen.add(type(error).__name__.encode())
        done.set()
    assert b"OUTSIDE" not in seen
    assert (outside / "file").read_text() == "OUTSIDE"
    assert b"inside" in seen
    assert swaps > 100, "the control: it was swapped"


async def test_what_is_no_plain_file_is_refused_without_hanging(
    driver: GuardedDriver, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(home / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(home)  # the path of a socket must be short
        server.bind("socket")
    paths = [
        f"{home}/fifo",
        f"{home}/socket",
        "/dev/null",
        "/dev/zero",
        "/dev/tty",
        "/proc/self/mem",
        "/proc/self/environ",
    ]
    paths += ["/proc/1/mem", "/proc/sys/kernel/core_pattern", "/proc/self/fd/0", "/sys/kernel/mm/ksm/run"]
    with anyio.fail_after(PATIENCE):
        for path in paths:
            for operation in (driver.read(path), driver.write(path, b"0")):
                with pytest.raises(OSError) as raised:
                    await operation
                assert raised.value.errno in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS), path


async def test_a_sparse_terabyte_is_read_by_range_and_not_whole(driver: GuardedDriver, home: Path) -> None:
    with open(home / "sparse", "wb") as file:
        file.truncate(1 << 40)
        file.seek((1 << 40) - 4)
        file.write(b"tail")
    assert (await driver.stat(f"{home}/sparse")).size == 1 << 40
    assert await driver.read(f"{home}/sparse", start=(1 << 40) - 8, length=100) == b"\0\0\0\0tail"
    with pytest.raises(OSError) as raised:
        await driver.read(f"{home}/sparse")
    assert raised.value.errno == errno.EFBIG
    with pytest.raises(TimeoutError), anyio.fail_after(0.2):
        await driver.read(f"{home}/sparse", length=1 << 39)
    assert (await run(driver, "echo usable")).stdout == b"usable\n"


async def test_a_hundred_thousand_entries_are_listed_and_removed(driver: GuardedDriver, home: Path) -> None:
    count = 100_000 if driver.name == "host" else 10_000
    make_entries(home / "many", count)
    entries = await driver.list(f"{home}/many")
    assert len(entries) == count
    assert [entry.path for entry in entries] == sorted(entry.path for entry in entries)
    await driver.remove(f"{home}/many")
    assert os.listdir(home) == []


def make_entries(directory: Path, count: int) -> None:
    """So many files; nearly all are links: new files cost ext4 minutes where as many were just removed."""
    directory.mkdir()
    for number in range(count):
        name = f"{directory}/entry number {number}"
        if number % 10_000:
            os.link(f"{directory}/entry number {number // 10_000 * 10_000}", name)
        else:
            Path(name).touch()


async def test_a_write_that_is_cancelled_or_dies_leaves_the_old_content_and_no_litter(
    driver: GuardedDriver, home: Path
) -> None:
    await driver.write(f"{home}/file", b"old")
    for delay in (0.0, 0.001, 0.005, 0.02):
        with anyio.move_on_after(delay):
            await driver.write(f"{home}/file", b"n" * (200 << 20))
            raise AssertionError("it was not cancelled")
    await driver.close()
    assert (home / "file").read_bytes() == b"old"
    assert os.listdir(home) == ["file"]


async def test_a_directory_is_removed_with_everything_in_it_but_not_what_links_lead_to(
    driver: GuardedDriver, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()
    await driver.write(f"{home}/keep/file", b"x")
    await driver.make_dir(f"{home}/tree/{'/'.join(['deep'] * 300)}")
    (home / "tree" / "out").symlink_to(tmp_path / "outside")
    (home / "tree" / "in").symlink_to(home / "keep")
    (home / "tree" / "locked").mkdir()
    (home / "tree" / "locked" / "file").touch()
    (home / "tree" / "locked").chmod(0)
    await driver.remove(f"{home}/tree")
    assert os.listdir(home) == ["keep"]
    assert (tmp_path / "outside" / "kept").exists()
    (home / "link").symlink_to("keep")
    await driver.remove(f"{home}/link")
    assert os.listdir(home) == ["keep"]
    with pytest.raises(OSError):
        await driver.remove(str(home))


async def test_a_mount_can_be_read_and_a_writable_one_written(kind: str, opened: Open, tmp_path: Path) -> None:
    for name in ("plain", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("mounted")
    mounts = [Mount(str(tmp_path / "plain")), Mount(str(tmp_path / "open"), writable=True)]
    driver = await opened(kind, mounts=mounts)
    assert await driver.read(f"{tmp_path}/plain/file") == b"mounted"
    await driver.write(f"{tmp_path}/open/new", b"x")
    assert (tmp_path / "open" / "new").exists()
    if kind == "jail":
        with pytest.raises(OSError) as raised:
            await driver.write(f"{tmp_path}/plain/new", b"x")
        assert raised.value.errno == errno.EROFS


@pytest.mark.parametrize(
    ("workspace", "error"), [("missing", "FileNotFoundError"), ("file", "NotADirectoryError"), ("/", "HandrailError")]
)
async def test_a_workspace_that_is_none_is_refused(
    kind: str, opened: Open, tmp_path: Path, workspace: str, error: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Exception) as raised:
        await opened(kind, workspace=workspace if workspace == "/" else str(tmp_path / workspace))
    assert type(raised.value).__name__ == error
