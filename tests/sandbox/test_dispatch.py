"""A payload is an operation as a value: dispatching it does what the sandbox's method of the same purpose does."""

from pathlib import Path
from typing import Any

import pytest

from handrail import (
    CodeResult,
    Command,
    Completed,
    FileExists,
    ListFiles,
    Listing,
    ReadFile,
    RunCode,
    Sandbox,
    Unavailable,
    WriteFile,
    Written,
    open_sandbox,
)
from handrail.testing import MemoryDriver

pytestmark = pytest.mark.anyio
PAYLOADS = [
    Command(argv=("ls",), env={"A": "1"}, stdin=b"x"), ReadFile("a"), WriteFile("a", b"b"), ListFiles("."),
    FileExists("a"), RunCode("1"),
]  # fmt: skip


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda each: type(each).__name__)
def test_a_payload_is_frozen_and_hashable(payload: Any) -> None:
    assert len({payload, type(payload)(**{name: getattr(payload, name) for name in payload.__slots__})}) == 1
    with pytest.raises(AttributeError):
        setattr(payload, payload.__slots__[0], "other")


def test_commands_that_differ_in_their_environment_alone_differ() -> None:
    assert Command(line="a", env={"A": "1"}) != Command(line="a", env={"A": "2"})
    assert hash(Command(line="a", env={"A": "1"})) == hash(Command(line="a", env={"A": "1"}))


def test_a_command_made_with_a_list_is_hashable_too() -> None:
    made: Any = ["ls", "-l"]
    assert {Command(made), Command(("ls", "-l"))} == {Command(argv=made)}


def test_what_a_payload_lacks_is_told_in_the_order_in_which_to_write_it() -> None:
    made: Any = WriteFile
    with pytest.raises(TypeError, match=r"write WriteFile\(path, data\)$"):
        made("a.txt")
    with pytest.raises(TypeError, match=r"write WriteFile\(path=…, data=…\)$"):
        made(path="a.txt")


def test_what_a_payload_carries_is_not_printed() -> None:
    secret = "hunter2"
    for payload in (Command(line="a", env={"A": secret}, stdin=secret.encode()), WriteFile("a", secret)):
        assert secret not in repr(payload)


def test_a_misspelt_field_is_answered_with_the_right_one() -> None:
    with pytest.raises(TypeError, match="did you mean 'path'"):
        ReadFile(pth="a")  # type: ignore[call-arg]


async def test_files_are_written_read_listed_and_looked_for() -> None:
    async with Sandbox(MemoryDriver()) as sandbox:
        assert await sandbox.dispatch(WriteFile("sub/a.txt", "añb\r\n", mode=0o600)) == Written("sub/a.txt", 6)
        assert (await sandbox.stat("sub/a.txt")).mode == 0o600
        assert await sandbox.dispatch(WriteFile("sub/b", b"\xff\0")) == Written("sub/b", 2)
        assert await sandbox.dispatch(ReadFile("sub/a.txt")) == "añb\r\n"
        assert await sandbox.dispatch(ReadFile("sub/a.txt", encoding="latin-1")) == "aÃ±b\r\n"
        assert await sandbox.dispatch(ReadFile("sub/b", encoding=None)) == b"\xff\0"
        listing = await sandbox.dispatch(ListFiles("sub"))
        assert (listing.path, [each.name for each in listing.entries]) == ("sub", ["a.txt", "b"])
        assert not listing.truncated
        assert listing == Listing("sub", tuple(await sandbox.list("sub")))
        assert await sandbox.dispatch(FileExists("sub/a.txt")) is True
        assert await sandbox.dispatch(FileExists("sub/c")) is False
        assert await sandbox.at("sub").dispatch(FileExists("a.txt")) is True, "a view's own directory counts"


async def test_a_payload_fails_as_the_method_does() -> None:
    async with Sandbox(MemoryDriver({"b": b"\xff"})) as sandbox:
        with pytest.raises(FileNotFoundError):
            await sandbox.dispatch(ReadFile("gone"))
        with pytest.raises(UnicodeDecodeError):
            await sandbox.dispatch(ReadFile("b"))
        with pytest.raises(ValueError, match="mode"):
            await sandbox.dispatch(WriteFile("a", "b", mode=-1))
        with pytest.raises(ValueError, match="bytes"):
            await sandbox.dispatch(WriteFile("a", 5))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="supported are"):
            await sandbox.dispatch(RunCode("1", language="klingon"))
    for payload in PAYLOADS:
        with pytest.raises(Unavailable):
            await sandbox.dispatch(payload)


@pytest.mark.parametrize("wrong", ["ls", None, Command, ["ls"], Command(), Command(argv=("a",), line="a")])
async def test_what_is_no_payload_is_refused_before_anything_starts(wrong: Any) -> None:
    driver = MemoryDriver(commands=lambda _: "ran")
    async with Sandbox(driver) as sandbox, sandbox.stream() as stream:
        with pytest.raises(ValueError, match=r"dispatch\(\) takes"):
            await sandbox.dispatch(wrong)
        with pytest.raises(ValueError, match=r"dispatch\(\) takes"):
            stream.submit(wrong)
    assert driver.started == []


async def test_a_command_gets_its_stdin_and_a_driver_never_sees_it(tmp_path: Path) -> None:
    async with open_sandbox(workspace=str(tmp_path)) as sandbox:
        done = await sandbox.dispatch(Command(line="cat; echo $A; pwd", env={"A": "b"}, cwd="/tmp", stdin=b"in\n"))
        assert (type(done), done.stdout) == (Completed, "in\nb\n/tmp\n")
    driver = MemoryDriver(commands=lambda _: "ran")
    async with Sandbox(driver) as memory:
        await memory.dispatch(Command(line="cat", stdin=b"in"))
        with pytest.raises(ValueError, match=r"stdin=b"):
            await memory.dispatch(Command(line="cat", input=True))
    assert [(each.input, each.stdin) for each in driver.started] == [(True, None)]


@pytest.mark.parametrize(
    ("payload", "text", "error", "stdout"),
    [
        (RunCode("print(1)\n1 + 1"), "2", None, "1\n"),
        (RunCode("x = 5"), None, None, ""),
        (RunCode("1 / 0"), None, "ZeroDivisionError", ""),
        (RunCode("raise SystemExit(3)"), None, "exit code 3", ""),
        (RunCode("echo out; exit 4", language="bash"), None, "exit code 4", "out\n"),
    ],
)
async def test_a_program_gives_its_last_value_or_its_error(
    payload: RunCode, text: str | None, error: str | None, stdout: str, tmp_path: Path
) -> None:
    async with open_sandbox(workspace=str(tmp_path)) as sandbox:
        result = await sandbox.dispatch(payload)
    assert isinstance(result, CodeResult)
    assert (result.text, result.stdout, result.language) == (text, stdout, payload.language)
    assert (error is None) == (result.error is None)
    assert (error or "") in (result.error or "")
    assert (result.exit_code == 0) == (error is None)
    assert list(tmp_path.iterdir()) == [], "the program's own files are gone"


async def test_a_program_is_ended_at_its_timeout(tmp_path: Path) -> None:
    async with open_sandbox(workspace=str(tmp_path)) as sandbox:
        result = await sandbox.dispatch(RunCode("import time\nprint('on')\ntime.sleep(99)", timeout=2))
    assert (result.ended_by, result.stdout, result.text) == ("timeout", "on\n", None)
