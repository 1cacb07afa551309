"""Checks of commands: they start as asked or say why not, and their exit codes are real."""

import shlex
from typing import Any, Final

import anyio

from handrail.contract.driver import Command
from handrail.testing.conformance.check import Group, NotTried, Seen
from handrail.testing.conformance.fixture import Open, collect, outcome, until_says

EXEC: Final = Group("exec", needs=())
TOGETHER: Final = 6
"""Commands that must be able to run at the same time."""


async def _line(open: Open, line: str, code: int, stdout: bytes, **options: Any) -> Seen:
    fixture = await open()
    ran = await fixture.run(f"echo STARTED; {line}", **options)
    started, _, rest = ran.stdout.partition(b"\n")
    return Seen(line, started == b"STARTED", (code, stdout), (ran.code, rest))


EXEC.add("what a command prints is returned", _line, "echo 'printed  '", 0, b"printed  \n")
EXEC.add("exit code 3 is returned", _line, "exit 3", 3, b"")
EXEC.add("exit code 255 is returned", _line, "exit 255", 255, b"")
EXEC.add("exit code 1 of a failed program is returned", _line, "false", 1, b"")
EXEC.add("a command that kills itself has 128 and the number of the signal", _line, "kill -SEGV $$", 139, b"")
EXEC.add("a line may have quotes and variables", _line, "x='a  b'; echo \"$x\"", 0, b"a  b\n")
EXEC.add("a line may have many lines", _line, "for i in 1 2\ndo\necho $i\ndone", 0, b"1\n2\n")
EXEC.add("a missing program in a line is exit code 127", _line, "no-such-program-at-all 2>&-", 127, b"")
EXEC.add("without input a command reads nothing", _line, "cat; echo done", 0, b"done\n")


@EXEC.check
async def in_bash_a_line_fails_when_a_part_of_its_pipeline_fails(open: Open) -> Seen:
    fixture = await open()
    await fixture.needs("bash")
    ran = await fixture.run('echo "${BASH_VERSION:+STARTED}"; false | true')
    return Seen("false | true", ran.stdout == b"STARTED\n", 1, ran.code)


@EXEC.check
async def an_argv_needs_no_shell(open: Open) -> Seen:
    fixture = await open()
    ran = await fixture.run(["printf", "%s|", "$HOME", "a b", "*", "", "ü", "'"])
    return Seen("printf '%s|' '$HOME' 'a b' '*' '' ü \\'", ran.code == 0, "$HOME|a b|*||ü|'|", ran.text)


@EXEC.check
async def a_command_starts_in_the_workspace(open: Open) -> Seen:
    fixture = await open()
    process = await fixture.driver.start(Command(line="pwd -P"))
    ran, real = await collect(process), (await fixture.driver.stat(fixture.workspace)).real_path
    return Seen("pwd -P", ran.code == 0, real, ran.text.rstrip("\n"))


@EXEC.check
async def a_command_starts_where_it_is_told(open: Open) -> Seen:
    fixture = await open()
    await fixture.driver.make_dir(fixture.at("sub dir"))
    ran = await fixture.run("pwd", cwd=fixture.at("sub dir"))
    return Seen("pwd", ran.code == 0, f"{fixture.directory}/sub dir\n", ran.text)


@EXEC.check
async def a_view_starts_commands_in_its_directory(open: Open) -> Seen:
    fixture = await open()
    await fixture.driver.make_dir(fixture.at("sub"))
    ran = await fixture.sandbox.at("sub").run("pwd")
    return Seen("sandbox.at('sub').run('pwd')", ran.exit_code == 0, f"{fixture.directory}/sub\n", ran.stdout)


async def _refused(open: Open, error: str, **command: Any) -> Seen:
    fixture = await open()
    await fixture.driver.write(fixture.at("file"), b"no program", mode=0o644)
    control = await fixture.run("echo STARTED")
    given = {name: value.format(here=fixture.directory) if name == "cwd" else value for name, value in command.items()}
    got = await outcome(fixture.driver.start(Command(**{"cwd": fixture.directory, **given})))
    return Seen(f"start({given})"[:200], control.stdout == b"STARTED\n", error, got)


EXEC.add("a missing program is FileNotFoundError", _refused, "FileNotFoundError", argv=("no-such-program-at-all",))
EXEC.add("a file that is not a program is PermissionError", _refused, "PermissionError", argv=("./file",))
EXEC.add("a missing directory is FileNotFoundError", _refused, "FileNotFoundError", line="true", cwd="{here}/no/such")
EXEC.add("a directory that is a file is NotADirectoryError", _refused, "NotADirectoryError", line="true",
         cwd="{here}/file")  # fmt: skip
EXEC.add("neither line nor argv is ValueError", _refused, "ValueError")
EXEC.add("both line and argv are ValueError", _refused, "ValueError", line="true", argv=("true",))
EXEC.add("an empty argv is ValueError", _refused, "ValueError", argv=())
EXEC.add("a blank line is ValueError", _refused, "ValueError", line=" \n")
EXEC.add("NUL in a line is ValueError", _refused, "ValueError", line="echo a\0b")
EXEC.add("NUL in an argument is ValueError", _refused, "ValueError", argv=("echo", "a\0b"))
EXEC.add("a relative directory is ValueError", _refused, "ValueError", line="true", cwd="here")
EXEC.add("a variable without a name is ValueError", _refused, "ValueError", line="true", env={"": "x"})
EXEC.add("a line larger than any system takes is ValueError", _refused, "ValueError", line="x" * (5 << 20))


@EXEC.check
async def a_variable_of_a_command_arrives(open: Open) -> Seen:
    fixture = await open()
    ran = await fixture.run('printf %s "$GIVEN"; echo STARTED >&2', env={"GIVEN": "a\nb='c' ü"})
    return Seen('printf %s "$GIVEN"', ran.stderr == b"STARTED\n", "a\nb='c' ü", ran.text)


@EXEC.check
async def a_line_of_a_megabyte_runs(open: Open) -> Seen:
    fixture = await open()
    ran = await fixture.run(f"x={'y' * (1 << 20)}; echo STARTED ${{#x}}")
    return Seen("a line of 1 MiB", ran.stdout.startswith(b"STARTED"), b"STARTED 1048576\n", ran.stdout)


@EXEC.check
async def wait_may_be_called_many_times(open: Open) -> Seen:
    fixture = await open()
    process = await fixture.start("echo STARTED; exit 4")
    ran = await collect(process)
    return Seen("wait, three times", ran.stdout == b"STARTED\n", [4, 4], [await process.wait() for _ in range(2)])


@EXEC.check
async def several_may_wait_for_one_command(open: Open) -> Seen:
    fixture = await open()
    process = await fixture.start("read x; exit 6", input=True)
    codes: list[int] = []

    async def wait() -> None:
        codes.append(await process.wait())

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(wait)
        await anyio.sleep(0.01)
        early = len(codes)
        await process.send(b"go\n")
        await collect(process)
    return Seen("wait from three tasks", early == 0, [6, 6, 6], codes)


@EXEC.check
async def commands_run_at_the_same_time(open: Open) -> Seen:
    """Each goes on only when all of them have begun."""
    fixture = await open()
    begun = " && ".join(f"test -e begun-{number}" for number in range(TOGETHER))
    wait = f"n=0; until {begun}; do n=$((n+1)); test $n -lt 80 || exit 9; sleep 0.1; done; echo MET"
    processes = [await fixture.start(f"touch begun-{number}; {wait}") for number in range(TOGETHER)]
    rans = [await collect(process) for process in processes]
    return Seen(
        f"touch begun-0; {wait}", await fixture.exists("begun-0"), [b"MET\n"] * TOGETHER, [it.stdout for it in rans]
    )


@EXEC.check
async def running_commands_have_different_ids(open: Open) -> Seen:
    fixture = await open()
    processes = [await fixture.start("exit 0") for _ in range(5)]
    codes = [(await collect(process)).code for process in processes]
    return Seen("exit 0, five times", codes == [0] * 5, 5, len({process.id for process in processes}))


@EXEC.check
async def a_command_that_cannot_start_harms_no_other(open: Open) -> Seen:
    fixture = await open()
    process = await fixture.start("read x; echo STARTED", input=True)
    refused = await outcome(fixture.driver.start(Command(argv=("no-such-program-at-all",))))
    await process.send(b"go\n")
    ran = await collect(process)
    return Seen("a missing program beside another command", refused != "no error", b"STARTED\n", ran.stdout)


@EXEC.check
async def a_closed_driver_starts_nothing(open: Open) -> Seen:
    fixture = await open(own=True)
    control = await fixture.run("echo STARTED")
    await fixture.driver.close()
    got = await outcome(fixture.driver.start(Command(line="echo STARTED")))
    return Seen("start after close", control.stdout == b"STARTED\n", "Unavailable", got)


@EXEC.check
async def wait_raises_when_the_sandbox_is_closed(open: Open) -> Seen:
    fixture = await open(own=True)
    process = await fixture.start("echo STARTED; sleep 1000")
    started = await until_says(process.output(), b"STARTED\n") == b"STARTED\n"
    await fixture.driver.close()
    got = f"no answer within {fixture.patience:g} s"
    with anyio.move_on_after(fixture.patience):
        got = await outcome(process.wait())
    return Seen("wait after close", started, "Unavailable", got)


async def _code(open: Open, language: str, code: str, expected: tuple[int, str]) -> Seen:
    fixture = await open()
    await fixture.needs({"python": "python3"}.get(language, language))
    ran = await fixture.sandbox.run_code(code, language)
    left = [entry.name for entry in await fixture.driver.list(fixture.directory)]
    if left:
        raise NotTried(f"the program's file was left: {shlex.join(left)}")
    return Seen(f"run_code({code!r}, {language!r})", ran.stdout != "", expected, (ran.exit_code, ran.stdout))


EXEC.add("a program in Python runs", _code, "python", "print(6 * 7)\nraise SystemExit(3)", (3, "42\n"))
EXEC.add("a program in bash runs", _code, "bash", "echo $((6 * 7)); exit 3", (3, "42\n"))
