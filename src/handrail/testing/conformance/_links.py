"""Checks of links and of files that are not plain: told apart, never followed by remove, and never waited for."""

from typing import Final

from handrail.testing.conformance.check import Group, NotTried, Seen
from handrail.testing.conformance.fixture import Fixture, Open, outcome

LINKS: Final = Group("files")
MAKE: Final = "mkdir dir && echo 12345 > dir/file && {} && echo STARTED"


async def _made(open: Open, line: str) -> tuple[Fixture, bool]:
    """Make a directory with a file, and run a line beside it; return whether the line ran."""
    fixture = await open()
    await fixture.needs("ln", "mkfifo")
    ran = await fixture.run(MAKE.format(line))
    return fixture, ran.stdout == b"STARTED\n"


@LINKS.check
async def stat_follows_a_link_and_tells_where_it_leads(open: Open) -> Seen:
    fixture, made = await _made(open, "ln -s dir/file link")
    found, real = await fixture.driver.stat(fixture.at("link")), await fixture.driver.stat(fixture.at("dir/file"))
    return Seen("stat of a link", made, ("file", 6, real.real_path), (found.type, found.size, found.real_path))


@LINKS.check
async def stat_resolves_links_on_the_way(open: Open) -> Seen:
    fixture, made = await _made(open, "ln -s dir link")
    found, real = await fixture.driver.stat(fixture.at("link/file")), await fixture.driver.stat(fixture.at("dir/file"))
    return Seen("stat of link/file", made, real.real_path, found.real_path)


@LINKS.check
async def a_dangling_link_is_told_as_a_link(open: Open) -> Seen:
    fixture, made = await _made(open, "ln -s nowhere link")
    return Seen("stat of a dangling link", made, "symlink", (await fixture.driver.stat(fixture.at("link"))).type)


@LINKS.check
async def a_list_gives_a_link_the_type_of_what_it_leads_to(open: Open) -> Seen:
    fixture, made = await _made(open, "ln -s dir link")
    found = {entry.name: entry.type for entry in await fixture.driver.list(fixture.directory)}
    return Seen("list with a link", made, {"dir": "directory", "link": "directory"}, found)


@LINKS.check
async def a_write_through_a_link_changes_what_it_leads_to(open: Open) -> Seen:
    fixture, made = await _made(open, "ln -s dir/file link")
    await fixture.driver.write(fixture.at("link"), b"new")
    still = (await fixture.run("test -h link && cat dir/file")).stdout
    return Seen("write through a link", made, b"new", still)


@LINKS.check
async def remove_of_a_link_leaves_what_it_leads_to(open: Open) -> Seen:
    fixture, made = await _made(open, "ln -s dir link")
    await fixture.driver.remove(fixture.at("link"))
    names = [entry.name for entry in await fixture.driver.list(fixture.directory)]
    return Seen("remove of a link", made, (["dir"], True), (names, await fixture.exists("dir/file")))


@LINKS.check
async def remove_of_a_directory_follows_no_link_out_of_it(open: Open) -> Seen:
    fixture, made = await _made(open, "mkdir gone && ln -s ../dir gone/link")
    await fixture.driver.remove(fixture.at("gone"))
    found = await fixture.exists("gone"), await fixture.exists("dir/file")
    return Seen("remove of a directory with a link", made, (False, True), found)


@LINKS.check
async def links_that_form_a_loop_are_an_error(open: Open) -> Seen:
    fixture, made = await _made(open, "ln -s b a && ln -s a b")
    return Seen("read of a loop", made, "OSError", await outcome(fixture.driver.read(fixture.at("a"))))


@LINKS.check
async def a_pipe_is_told_as_something_else(open: Open) -> Seen:
    fixture, made = await _made(open, "mkfifo pipe")
    return Seen("stat of a pipe", made, "other", (await fixture.driver.stat(fixture.at("pipe"))).type)


@LINKS.check
async def reading_a_pipe_is_refused_and_does_not_wait(open: Open) -> Seen:
    fixture, made = await _made(open, "mkfifo pipe")
    return Seen("read of a pipe", made, "PermissionError", await outcome(fixture.driver.read(fixture.at("pipe"))))


@LINKS.check
async def writing_to_a_pipe_is_refused_and_does_not_wait(open: Open) -> Seen:
    fixture, made = await _made(open, "mkfifo pipe")
    got = await outcome(fixture.driver.write(fixture.at("pipe"), b"x"))
    kind = (await fixture.driver.stat(fixture.at("pipe"))).type
    return Seen("write to a pipe", made, ("PermissionError", "other"), (got, kind))


@LINKS.check
async def an_endless_device_is_refused(open: Open) -> Seen:
    fixture = await open()
    there = await fixture.run("test -c /dev/zero && echo STARTED")
    if there.stdout != b"STARTED\n":
        raise NotTried("there is no /dev/zero in the sandbox")
    return Seen(
        "read of /dev/zero", True, "PermissionError", await outcome(fixture.driver.read("/dev/zero", length=10))
    )


@LINKS.check
async def commands_and_file_operations_see_the_same_files(open: Open) -> Seen:
    fixture = await open()
    await fixture.driver.write(fixture.at("given"), b"by write\n")
    await fixture.driver.write(fixture.at("made"), b"by write\n")
    ran = await fixture.run("cat given; echo by a command > made")
    got = await fixture.driver.read(fixture.at("made"))
    return Seen("cat given; echo … > made", ran.code == 0, (b"by write\n", b"by a command\n"), (ran.stdout, got))
