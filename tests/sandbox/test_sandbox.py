"""A command is checked before it starts, and its answer says what it came to."""

from math import inf, nan
from typing import Any

import pytest

from handrail.contract.driver import Chunk
from handrail.contract.errors import BrokenDriver, Unavailable
from handrail.drivers.memory import MemoryDriver, Script
from handrail.sandbox import Sandbox

pytestmark = pytest.mark.anyio


async def test_a_command_gives_its_output_and_its_exit_code() -> None:
    driver = MemoryDriver(commands={"make": Script("built\n", "warned\n", 3)})
    completed = await Sandbox(driver).run("make")
    assert (completed.exit_code, completed.stdout, completed.stderr) == (3, "built\n", "warned\n")
    assert (completed.stdout_bytes, completed.stderr_bytes) == (b"built\n", b"warned\n")
    assert (completed.stdout_size, completed.stderr_size) == (6, 7)
    assert (completed.ended_by, completed.truncated, completed.may_still_run) == ("exit", False, False)
    assert (completed.cwd, completed.notes) == ("/workspace", ())
    assert completed.duration_ms >= 0


async def test_a_string_is_a_line_and_a_sequence_is_an_argv() -> None:
    driver = MemoryDriver(commands={"a b": "line", ("a", "b"): "argv"})
    sandbox = Sandbox(driver)
    assert (await sandbox.run("a b")).stdout == "line"
    assert (await sandbox.run(["a", "b"])).stdout == "argv"


async def test_every_option_reaches_the_driver() -> None:
    driver = MemoryDriver({"src/a": ""}, {"x": Script(echo=True)})
    sandbox = Sandbox(driver)
    completed = await sandbox.run("x", cwd="src", env={"A": "1"}, stdin="fed", timeout=1.2)
    command = driver.started[0]
    assert (command.cwd, command.env, command.timeout, command.input) == ("/workspace/src", {"A": "1"}, 2, True)
    assert (completed.stdout, completed.cwd) == ("fed", "/workspace/src")
    await sandbox.run("x")
    command = driver.started[1]
    assert (command.cwd, command.env, command.timeout, command.input) == (None, {}, None, False)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("", {}),
        ("  \n", {}),
        ([], {}),
        ([""], {}),
        (["a", 1], {}),
        (b"ls", {}),
        (None, {}),
        ("a\0b", {}),
        (["a", "b\0"], {}),
        ("ls", {"cwd": "a\0"}),
        ("ls", {"cwd": ""}),
        ("ls", {"env": {"A=B": "1"}}),
        ("ls", {"env": {"": "1"}}),
        ("ls", {"env": {"A": "\0"}}),
        ("ls", {"env": {"A": 1}}),
        ("ls", {"stdin": 5}),
        *(("ls", {"timeout": bad}) for bad in (0, -1, nan, inf, True, "5")),
        *(("ls", {"idle_timeout": bad}) for bad in (0, -1.0, nan, inf)),
        *(("ls", {"max_output": bad}) for bad in (0, -1, 1.5)),
    ],
)
async def test_what_cannot_be_asked_is_refused_before_anything_starts(command: Any, options: dict[str, Any]) -> None:
    driver = MemoryDriver(commands=lambda _: "ran")
    sandbox = Sandbox(driver)
    with pytest.raises(ValueError, match=r"\w{3,}"):
        await sandbox.run(command, **options)
    with pytest.raises(ValueError, match=r"\w{3,}"):
        await sandbox.start(command, **options)
    assert driver.started == []
    assert (await sandbox.run("ls")).stdout == "ran"


async def test_a_directory_that_is_missing_or_a_file_is_an_error_of_its_own() -> None:
    sandbox = Sandbox(MemoryDriver({"a": "text"}, {"ls": ""}))
    with pytest.raises(FileNotFoundError):
        await sandbox.run("ls", cwd="gone")
    with pytest.raises(NotADirectoryError):
        await sandbox.run("ls", cwd="a")


async def test_a_sigpipe_in_a_pipeline_is_called_harmless() -> None:
    sandbox = Sandbox(MemoryDriver(commands=lambda _: Script("y\n", exit_code=141)))
    assert "harmless" in (await sandbox.run("yes | head -1")).notes[0]
    assert (await sandbox.run("yes")).notes == ()
    assert (await sandbox.run("echo 'a | b'")).notes == ()


async def test_a_pipeline_that_printed_nothing_is_noted() -> None:
    sandbox = Sandbox(MemoryDriver(commands=lambda command: "x" if "loud" in str(command.line) else 0))
    for line in ("grep x f | sort", "grep x f 2>/dev/null|sort", "a\nb | c", "unread ' | y"):
        assert "printed nothing at all" in (await sandbox.run(line)).notes[0], line
    for line in ("loud | sort", "true", "a || b", "echo '|' > f", "a=1 # |"):
        assert (await sandbox.run(line)).notes == (), line


async def test_a_silent_pipeline_that_failed_says_so_by_its_exit_code_alone() -> None:
    sandbox = Sandbox(MemoryDriver(commands=lambda command: Script(exit_code=int(str(command.line)[-1]))))
    assert "printed nothing at all" in (await sandbox.run("a | exit 0")).notes[0], "the control"
    assert (await sandbox.run("a | exit 1")).notes == ()
    assert "errors went to /dev/null" in (await sandbox.run("a 2>/dev/null | exit 1")).notes[0]


async def test_silence_is_not_noted_where_a_signal_may_have_taken_what_was_printed() -> None:
    """A program that a signal ends takes along what it had not written yet."""
    ends: dict[str, Script] = {
        "a | b": Script(exit_code=137),
        "c 2>/dev/null": Script(exit_code=139),
        "d & e | f": Script(notes=("The command left processes running when it ended; they were killed.",)),
    }
    sandbox = Sandbox(MemoryDriver(commands=lambda command: ends.get(str(command.line), Script())))
    for line in ends:
        assert not any("printed nothing" in note for note in (await sandbox.run(line)).notes), line
    assert "printed nothing at all" in (await sandbox.run("x | y")).notes[0], "the control"


async def test_a_line_that_hides_its_errors_and_printed_nothing_is_noted() -> None:
    sandbox = Sandbox(MemoryDriver(commands=lambda command: "x" if "loud" in str(command.line) else 0))
    for line in (
        "ls x 2>/dev/null",
        "ls x 2> /dev/null; true",
        "ls 2>>/dev/null",
        "ls &>/dev/null",
        "a >/dev/null 2>&1",
    ):
        (note,) = (await sandbox.run(line)).notes
        assert "printed nothing at all" in note, line
        assert "/dev/null" in note, line
    for line in ("loud 2>/dev/null", "ls > /dev/null", "echo '2>/dev/null' > f", "cat </dev/null", "ls 2>/dev/nullish"):
        assert (await sandbox.run(line)).notes == (), line


async def test_a_command_that_was_not_found_is_noted_and_the_drivers_notes_are_kept() -> None:
    sandbox = Sandbox(MemoryDriver(commands={"bg": Script("x", notes=("Use background.",))}))
    assert "not found" in (await sandbox.run("nonsense")).notes[0]
    assert (await sandbox.run("bg")).notes == ("Use background.",)


async def test_live_output_arrives_piece_by_piece_and_may_hold_the_command_back() -> None:
    seen: list[tuple[str, bytes]] = []
    pieces = (Chunk("stdout", b"a"), Chunk("stderr", b"b"), Chunk("stdout", b"c"))
    sandbox = Sandbox(MemoryDriver(commands={"x": Script(chunks=pieces)}))
    await sandbox.run("x", on_output=lambda chunk: seen.append((chunk.stream, chunk.data)))
    assert seen == [("stdout", b"a"), ("stderr", b"b"), ("stdout", b"c")]

    async def slowly(chunk: Chunk) -> None:
        seen.append((chunk.stream, chunk.data))

    await sandbox.run("x", on_output=slowly)
    assert len(seen) == 6


async def test_a_reader_of_live_output_that_raises_is_dropped_and_noted() -> None:
    def broken(_: Chunk) -> None:
        raise KeyError("gone")

    pieces = (Chunk("stdout", b"a"), Chunk("stdout", b"b"))
    completed = await Sandbox(MemoryDriver(commands={"x": Script(chunks=pieces)})).run("x", on_output=broken)
    assert (completed.stdout, completed.exit_code) == ("ab", 0)
    assert "KeyError" in completed.notes[0]


async def test_code_runs_from_a_file_that_is_removed() -> None:
    driver = MemoryDriver(commands=lambda command: " ".join(command.argv or ()))
    sandbox = Sandbox(driver)
    completed = await sandbox.run_code("print(1)", "Python")
    program, path = completed.stdout.split()
    assert program == "python3"
    assert path.startswith("/workspace/.handrail-code-")
    assert path.endswith(".py")
    assert await sandbox.list() == []


async def test_an_unknown_language_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"bash, .*python"):
        await Sandbox(MemoryDriver()).run_code("x", "klingon")


async def test_a_language_that_is_not_installed_is_unavailable_and_leaves_no_file() -> None:
    class Bare(MemoryDriver):
        async def start(self, command: Any) -> Any:
            raise FileNotFoundError(2, "no such program", command.argv[0])

    sandbox = Sandbox(Bare())
    with pytest.raises(Unavailable, match="node is not installed"):
        await sandbox.run_code("x", "js")
    assert await sandbox.list() == []


async def test_something_that_is_no_driver_is_refused_at_construction() -> None:
    with pytest.raises(BrokenDriver, match="start, read"):
        Sandbox(object())  # type: ignore[arg-type]

    class Boastful(MemoryDriver):
        features = frozenset({"files", "world_peace"})  # type: ignore[arg-type]

    with pytest.raises(BrokenDriver, match="world_peace"):
        Sandbox(Boastful())


async def test_without_a_report_the_features_are_the_report() -> None:
    sandbox = Sandbox(MemoryDriver())
    assert sandbox.report.driver == "memory"
    assert sandbox.features == sandbox.report.features == MemoryDriver.features
    assert sandbox.report.standing("exec") == "absent"


SHOWN = {
    "at", "close", "closed", "cwd", "dispatch", "exists", "features", "job", "jobs", "list", "make_dir",
    "open_process", "own_loop", "read_bytes", "read_text", "remove", "report", "run", "run_code", "start", "stat",
    "stream", "terminate", "workspace", "write_bytes", "write_text",
}  # fmt: skip


def test_a_sandbox_shows_what_users_call() -> None:
    shown = {name for name in dir(Sandbox(MemoryDriver())) if not name.startswith("_")}
    assert shown == SHOWN
