"""Checks of files: bytes come back as written, every mistake has its own error, and names may be anything."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from handrail.contract.driver import Driver
from handrail.testing.conformance.check import Group, Seen
from handrail.testing.conformance.fixture import Fixture, Open, outcome

FILES: Final = Group("files", needs=())
ALL_BYTES: Final = bytes(range(256)) + b"\r\nno newline at the end"
NAMES: Final = {
    "spaces": "two  words ",
    "a new line": "new\nline",
    "letters of other scripts": "ünïcødé 文件",
    "quotes and a backslash": "'\"\\",
    "a leading dash": "-rf",
    "a star": "*",
    "bytes that are not UTF-8": "bad\udcff\udcfebytes",
}
METHODS: Final[dict[str, Callable[[Driver, str], Awaitable[object]]]] = {
    "read": lambda driver, path: driver.read(path),
    "write": lambda driver, path: driver.write(path, b"x"),
    "stat": lambda driver, path: driver.stat(path),
    "list": lambda driver, path: driver.list(path),
    "make_dir": lambda driver, path: driver.make_dir(path),
    "remove": lambda driver, path: driver.remove(path),
}


async def _with_file(open: Open, data: bytes = b"here", name: str = "file") -> Fixture:
    fixture = await open()
    await fixture.driver.write(fixture.at(name), data)
    return fixture


@FILES.check
async def what_is_written_is_read_byte_by_byte(open: Open) -> Seen:
    fixture = await _with_file(open, ALL_BYTES)
    return Seen("write, then read, all byte values", await fixture.exists("file"), ALL_BYTES,
                await fixture.driver.read(fixture.at("file")))  # fmt: skip


@FILES.check
async def an_empty_file_is_read_as_empty(open: Open) -> Seen:
    fixture = await _with_file(open, b"")
    return Seen(
        "write b'', then read", await fixture.exists("file"), b"", await fixture.driver.read(fixture.at("file"))
    )


@FILES.check
async def three_megabytes_come_back_whole(open: Open) -> Seen:
    data = bytes(range(251)) * (3 << 12) + b"end"
    fixture = await _with_file(open, data)
    got = await fixture.driver.read(fixture.at("file"))
    return Seen("write 3 MB, then read", len(got) > 0, (len(data), True), (len(got), got == data))


@FILES.check
async def a_second_write_replaces_the_first(open: Open) -> Seen:
    fixture = await _with_file(open, b"a longer first text")
    before = await fixture.driver.read(fixture.at("file"))
    await fixture.driver.write(fixture.at("file"), b"second")
    return Seen(
        "write twice", before == b"a longer first text", b"second", await fixture.driver.read(fixture.at("file"))
    )


@FILES.check
async def a_write_makes_missing_parents(open: Open) -> Seen:
    fixture = await open()
    absent = not await fixture.exists("a")
    got = await outcome(fixture.driver.write(fixture.at("a/b/c"), b"deep"))
    read = await fixture.driver.read(fixture.at("a/b/c")) if got == "no error" else b""
    return Seen("write a/b/c", absent, ("no error", b"deep"), (got, read))


@FILES.check
async def a_mode_that_is_given_is_set(open: Open) -> Seen:
    fixture = await _with_file(open)
    await fixture.driver.write(fixture.at("other"), b"x", mode=0o750)
    plain = (await fixture.driver.stat(fixture.at("file"))).mode & 0o7777
    return Seen(
        "write with mode=0o750", plain != 0o750, 0o750, (await fixture.driver.stat(fixture.at("other"))).mode & 0o7777
    )


@FILES.check
async def an_existing_file_keeps_its_mode(open: Open) -> Seen:
    fixture = await open()
    await fixture.driver.write(fixture.at("file"), b"1", mode=0o700)
    await fixture.driver.write(fixture.at("file"), b"2")
    mode = (await fixture.driver.stat(fixture.at("file"))).mode & 0o7777
    return Seen("write again without a mode", await fixture.driver.read(fixture.at("file")) == b"2", 0o700, mode)


@FILES.check
async def write_refuses_a_file_that_commands_may_not_write(open: Open) -> Seen:
    fixture = await open()
    await fixture.driver.write(fixture.at("sealed"), b"old", mode=0o444)
    made = await fixture.driver.read(fixture.at("sealed")) == b"old"
    expected: tuple[str, bytes] = ("PermissionError", b"old")
    if "exec" in fixture.driver.features and (await fixture.run("echo new > sealed")).code == 0:
        expected = ("no error", b"newer")  # commands run with a privilege that ignores modes
    got = await outcome(fixture.driver.write(fixture.at("sealed"), b"newer"))
    return Seen("write to a file of mode 0444", made, expected, (got, await fixture.driver.read(fixture.at("sealed"))))


@FILES.check
async def reading_a_directory_is_told_apart(open: Open) -> Seen:
    fixture = await _with_file(open)
    return Seen("read of a directory", await fixture.exists("file"), "IsADirectoryError",
                await outcome(fixture.driver.read(fixture.directory)))  # fmt: skip


@FILES.check
async def writing_to_a_directory_is_told_apart(open: Open) -> Seen:
    fixture = await _with_file(open)
    got = await outcome(fixture.driver.write(fixture.directory, b"x"))
    return Seen("write to a directory", await fixture.exists("file"), "IsADirectoryError", got)


@FILES.check
async def listing_a_file_is_told_apart(open: Open) -> Seen:
    fixture = await _with_file(open)
    got = await outcome(fixture.driver.list(fixture.at("file")))
    return Seen("list of a file", await fixture.exists("file"), "NotADirectoryError", got)


@FILES.check
async def a_directory_over_a_file_is_refused(open: Open) -> Seen:
    fixture = await _with_file(open)
    got = await outcome(fixture.driver.make_dir(fixture.at("file")))
    return Seen("make_dir over a file", await fixture.exists("file"), "FileExistsError", got)


@FILES.check
async def making_a_directory_twice_is_not_an_error(open: Open) -> Seen:
    fixture = await open()
    await fixture.driver.write(fixture.at("sub/file"), b"kept")
    there = await fixture.exists("sub/file")
    got = await outcome(fixture.driver.make_dir(fixture.at("sub")))
    return Seen("make_dir of what is there", there, ("no error", True), (got, await fixture.exists("sub/file")))


@FILES.check
async def make_dir_makes_missing_parents(open: Open) -> Seen:
    fixture = await open()
    absent = not await fixture.exists("x")
    got = await outcome(fixture.driver.make_dir(fixture.at("x/y/z")))
    kind = (await fixture.driver.stat(fixture.at("x/y/z"))).type if got == "no error" else "nothing"
    return Seen("make_dir x/y/z", absent, ("no error", "directory"), (got, kind))


@FILES.check
async def a_removed_file_is_gone(open: Open) -> Seen:
    fixture = await _with_file(open)
    there = await fixture.exists("file")
    await fixture.driver.remove(fixture.at("file"))
    return Seen("remove of a file", there, False, await fixture.exists("file"))


@FILES.check
async def a_directory_is_removed_with_everything_in_it(open: Open) -> Seen:
    fixture = await _with_file(open, name="top/deep/file")
    there = await fixture.exists("top/deep/file")
    got = await outcome(fixture.driver.remove(fixture.at("top")))
    return Seen("remove of a full directory", there, ("no error", False), (got, await fixture.exists("top")))


@FILES.check
async def removing_leaves_neighbours_with_a_longer_name(open: Open) -> Seen:
    fixture = await _with_file(open, name="data2/file")
    await fixture.driver.make_dir(fixture.at("data"))
    await fixture.driver.remove(fixture.at("data"))
    return Seen("remove data beside data2", not await fixture.exists("data"), True, await fixture.exists("data2/file"))


@FILES.check
async def stat_tells_a_file_and_its_size(open: Open) -> Seen:
    fixture = await _with_file(open, b"12345")
    found = await fixture.driver.stat(fixture.at("file"))
    return Seen("stat of a file", found.path != "", ("file", 5), (found.type, found.size))


@FILES.check
async def stat_tells_a_directory(open: Open) -> Seen:
    fixture = await _with_file(open)
    found = await fixture.driver.stat(fixture.directory)
    return Seen("stat of a directory", await fixture.exists("file"), "directory", found.type)


@FILES.check
async def stat_gives_the_path_that_was_asked_for(open: Open) -> Seen:
    fixture = await _with_file(open)
    found = await fixture.driver.stat(fixture.at("file"))
    return Seen("stat of a file", found.type == "file", (fixture.at("file"), "file"), (found.path, found.name))


@FILES.check
async def a_later_write_has_no_earlier_time(open: Open) -> Seen:
    fixture = await _with_file(open, b"1")
    first = (await fixture.driver.stat(fixture.at("file"))).mtime
    await anyio.sleep(0.02)
    await fixture.driver.write(fixture.at("file"), b"2")
    later = (await fixture.driver.stat(fixture.at("file"))).mtime
    changed = await fixture.driver.read(fixture.at("file")) == b"2"
    return Seen("write twice; stat", changed, (True, True), (first > 1_000_000_000, later > first))


@FILES.check
async def a_list_is_sorted_and_complete(open: Open) -> Seen:
    fixture = await open()
    names = sorted(f"entry {number}" for number in range(40))
    for name in reversed(names):
        await fixture.driver.write(fixture.at(name), b"")
    entries = await fixture.driver.list(fixture.directory)
    return Seen("list of 40 files", bool(entries), names, [entry.name for entry in entries])


@FILES.check
async def a_list_has_whole_paths(open: Open) -> Seen:
    fixture = await _with_file(open)
    entries = await fixture.driver.list(fixture.directory)
    return Seen("list", bool(entries), [fixture.at("file")], [entry.path for entry in entries])


@FILES.check
async def a_list_tells_what_each_entry_is(open: Open) -> Seen:
    fixture = await _with_file(open, b"123", name="b")
    await fixture.driver.make_dir(fixture.at("a"))
    entries = await fixture.driver.list(fixture.directory)
    return Seen("list", len(entries) == 2, ["directory", "file"], [entry.type for entry in entries])


@FILES.check
async def an_empty_directory_lists_nothing(open: Open) -> Seen:
    fixture = await open()
    await fixture.driver.make_dir(fixture.at("empty"))
    return Seen(
        "list of an empty directory", await fixture.exists("empty"), [], await fixture.driver.list(fixture.at("empty"))
    )


@FILES.check
async def a_list_does_not_descend(open: Open) -> Seen:
    fixture = await _with_file(open, name="sub/inner")
    entries = await fixture.driver.list(fixture.directory)
    return Seen("list", await fixture.exists("sub/inner"), ["sub"], [entry.name for entry in entries])


@FILES.check
async def writes_at_the_same_time_all_arrive(open: Open) -> Seen:
    fixture = await open()
    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(fixture.driver.write, fixture.at(str(number)), str(number).encode() * 1000)
    got = [await fixture.driver.read(fixture.at(str(number))) for number in range(8)]
    return Seen("eight writes at once", any(got), [str(number).encode() * 1000 for number in range(8)], got)


@FILES.check
async def a_view_reads_and_writes_in_its_directory(open: Open) -> Seen:
    fixture = await open()
    await fixture.driver.make_dir(fixture.at("sub"))
    await fixture.sandbox.at("sub").write_text("../sub/note", "text")
    got = await outcome(fixture.driver.read(fixture.at("sub/note")))
    return Seen("sandbox.at('sub').write_text('../sub/note', …)", await fixture.exists("sub"), "no error", got)


@FILES.check
async def closing_twice_is_not_an_error(open: Open) -> Seen:
    fixture = await open(own=True)
    await fixture.driver.write(fixture.at("file"), b"x")
    before = await fixture.exists("file")
    await fixture.driver.close()
    got = f"no answer within {fixture.patience:g} s"
    with anyio.move_on_after(fixture.patience):
        got = await outcome(fixture.driver.close())
    return Seen("close twice", before, "no error", got)


@FILES.check
async def a_closed_driver_says_that_it_is_gone(open: Open) -> Seen:
    fixture = await open(own=True)
    await fixture.driver.write(fixture.at("file"), b"x")
    before = await fixture.exists("file")
    await fixture.driver.close()
    return Seen("read after close", before, "Unavailable", await outcome(fixture.driver.read(fixture.at("file"))))


async def _missing(open: Open, method: str) -> Seen:
    fixture = await _with_file(open)
    got = await outcome(METHODS[method](fixture.driver, fixture.at("missing")))
    return Seen(f"{method} of a missing path", await fixture.exists("file"), "FileNotFoundError", got)


async def _below_a_file(open: Open, method: str) -> Seen:
    fixture = await _with_file(open)
    got = await outcome(METHODS[method](fixture.driver, fixture.at("file/below")))
    return Seen(f"{method} of file/below", await fixture.exists("file"), "NotADirectoryError", got)


async def _relative(open: Open, method: str) -> Seen:
    """Try relative paths of entries that exist, or could be made, in the workspace."""
    fixture = await _with_file(open)
    path = {"list": fixture.directory, "make_dir": fixture.at("new")}.get(method, fixture.at("file"))
    there, relative = await fixture.exists("file"), path.removeprefix(fixture.workspace).lstrip("/")
    got = await outcome(METHODS[method](fixture.driver, relative))
    return Seen(f"{method} of a relative path", there, "ValueError", got)


async def _name(open: Open, name: str) -> Seen:
    fixture = await open()
    await fixture.driver.write(fixture.at(name), b"named")
    read = await fixture.driver.read(fixture.at(name))
    listed = [entry.path for entry in await fixture.driver.list(fixture.directory)]
    await fixture.driver.remove(fixture.at(name))
    rest = await fixture.driver.list(fixture.directory)
    return Seen(f"write, read, list, remove {name!r}", read == b"named", ([fixture.at(name)], []), (listed, rest))


async def _nul(open: Open) -> Seen:
    fixture = await _with_file(open, name="a")
    got = await outcome(fixture.driver.read(fixture.at("a\0b")))
    return Seen("read of a path with NUL", await fixture.exists("a"), "ValueError", got)


for _method in ("read", "stat", "list", "remove"):
    FILES.add(f"{_method} of a missing path is FileNotFoundError", _missing, _method)
for _method in METHODS:
    FILES.add(f"{_method} below a file is NotADirectoryError", _below_a_file, _method)
for _method in METHODS:
    FILES.add(f"{_method} of a relative path is ValueError", _relative, _method)
for _kind, _text in NAMES.items():
    FILES.add(f"a name may have {_kind}", _name, _text)
FILES.add("a path with NUL is ValueError", _nul)
