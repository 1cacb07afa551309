"""Commands start as asked or say why not, and every byte goes through, both ways, in bounded memory."""

import errno
import os
import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from handrail.contract.driver import Command
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver
from tests.drivers.conftest import Open
from tests.drivers.watching import PATIENCE, collect, guard_pid, run

pytestmark = pytest.mark.anyio

BAD_COMMANDS = {
    "empty program": Command(argv=("",)),
    "NUL in cwd": Command(line="true", cwd="/a\0b"),
    "= in a name": Command(line="true", env={"A=B": "c"}),
    "NUL in a value": Command(line="true", env={"A": "\0"}),
    "a large argument": Command(argv=("echo", "x" * 200_000)),
    "too much in all": Command(argv=("echo", *["x" * 100_000] * 30)),
    "half a character": Command(argv=("echo", "\ud800")),
}


@pytest.mark.parametrize("name", BAD_COMMANDS)
async def test_what_no_system_can_run_is_a_value_error_and_harms_nothing(driver: GuardedDriver, name: str) -> None:
    with pytest.raises(ValueError):
        await driver.start(BAD_COMMANDS[name])
    assert (await run(driver, "echo usable")).stdout == b"usable\n"


async def test_a_missing_program_and_a_bad_cwd_are_told_apart(driver: GuardedDriver) -> None:
    await driver.write(f"{driver.workspace}/file", b"")
    cases: list[tuple[Command, type[OSError], str]] = [
        (Command(argv=("no-such-program",)), FileNotFoundError, "no-such-program"),
        (Command(argv=("./file",)), PermissionError, "./file"),
        (Command(line="true", cwd="/no/such"), FileNotFoundError, "/no/such"),
        (Command(line="true", cwd=f"{driver.workspace}/file"), NotADirectoryError, f"{driver.workspace}/file"),
    ]
    for command, error, name in cases:
        with pytest.raises(error) as raised:
            await driver.start(command)
        assert raised.value.filename == name
    assert (await run(driver, "echo usable")).stdout == b"usable\n"


async def test_cwd_and_environment_arrive_and_nothing_else_does(driver: GuardedDriver) -> None:
    await driver.make_dir(f"{driver.workspace}/sub")
    ran = await run(driver, "pwd; env -0", cwd=f"{driver.workspace}/sub", env={"GIVEN": "a\nb"})
    where, _, rest = ran.stdout.partition(b"\n")
    assert where == f"{driver.workspace}/sub".encode()
    env = dict(pair.split(b"=", 1) for pair in rest.rstrip(b"\0").split(b"\0"))
    assert env[b"GIVEN"] == b"a\nb"
    assert b"HOME" in env
    fixed = {b"PATH", b"HOME", b"USER", b"LOGNAME", b"SHELL", b"LANG", b"TERM", b"TMPDIR", b"GIVEN"}
    fixed |= {b"PYTHONUNBUFFERED"}
    assert env.keys() <= fixed | {b"PWD", b"OLDPWD", b"SHLVL", b"_"}


LONG = f"x={'y' * (2 << 20)}; echo ${{#x}}"


async def test_a_line_of_two_megabytes_runs(driver: GuardedDriver) -> None:
    assert (await run(driver, LONG)).stdout == b"2097152\n"


LISTS = {
    "an argv": Command(argv=("ls", "/proc/self/fd")),
    "a line": Command(line="ls /proc/self/fd"),
    "a program in the background": Command(line="ls /proc/self/fd & wait"),
    "a long line": Command(line=f"{LONG} >/dev/null; ls /proc/self/fd"),
}
ONLY_STREAMS = [b"0", b"1", b"2", b"3"]
"""The last one is the directory that is being listed."""


@pytest.mark.parametrize("feed", [False, True], ids=["no input", "input"])
@pytest.mark.parametrize("name", LISTS)
async def test_a_command_has_its_streams_and_no_other_descriptor(driver: GuardedDriver, name: str, feed: bool) -> None:
    others = [await driver.start(Command(argv=("cat",), input=True)) for _ in range(3)]
    process = await driver.start(replace(LISTS[name], input=feed))
    assert (await collect(process)).stdout.split() == ONLY_STREAMS
    shown = await run(driver, "exec 17</dev/null; ls /proc/self/fd")
    assert sorted(shown.stdout.split(), key=int) == [*ONLY_STREAMS, b"17"], "the control: another would be seen"
    for other in others:
        await other.signal("KILL")


async def test_ten_megabytes_go_through_both_ways(driver: GuardedDriver) -> None:
    data = os.urandom(10 << 20)
    process = await driver.start(Command(argv=("cat",), input=True))

    async def feed() -> None:
        await process.send(data)
        await process.send(None)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            group.start_soon(feed)
            ran = await collect(process)
    assert ran.stdout == data


async def test_input_that_nobody_reads_is_a_broken_pipe_and_does_not_hang(driver: GuardedDriver) -> None:
    with anyio.fail_after(PATIENCE):
        for line in ("sleep 0.2; exit 3", "exec <&-; sleep 0.2; exit 3"):
            process = await driver.start(Command(line=line, input=True))
            with pytest.raises(BrokenPipeError):
                await process.send(b"x" * (10 << 20))
            assert (await collect(process)).code == 3


async def test_input_that_was_taken_is_no_error_even_when_the_command_ends_at_once(driver: GuardedDriver) -> None:
    for _ in range(20):
        process = await driver.start(Command(argv=("head", "-c", "1"), input=True))
        await process.send(b"x")
        assert (await collect(process)).stdout == b"x"
        with pytest.raises(BrokenPipeError):
            await process.send(b"y")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_flood_through_a_slow_reader_stays_in_bounded_memory(driver: GuardedDriver, stream: str) -> None:
    size = 400 << 20
    redirect = ">&2" if stream == "stderr" else ""
    process = await driver.start(Command(line=f"head -c {size} /dev/zero {redirect}"))
    before, seen = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    async for chunk in process.output():
        assert chunk.stream == stream
        if seen == 0:
            await anyio.sleep(0.5)
        seen += len(chunk.data)
    assert seen == size
    assert await process.wait() == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "in KiB"
    assert _peak(guard_pid(driver)) < 20_000


def _peak(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM"))


async def test_a_command_whose_output_nobody_reads_disturbs_no_other(driver: GuardedDriver) -> None:
    stuck = [await driver.start(Command(line="yes")) for _ in range(8)]
    with anyio.fail_after(PATIENCE):
        for _ in range(20):
            assert (await run(driver, "echo fine")).stdout == b"fine\n"
        for process in stuck:
            await process.signal("KILL")
        for process in stuck:
            assert (await collect(process)).code == 137


async def test_256_commands_run_at_once(kind: str, opened: Open) -> None:
    driver = await opened(kind, limits=Limits(processes=4000))
    with anyio.fail_after(60):
        processes = [await driver.start(Command(argv=("cat",), input=True)) for _ in range(256)]
        for number, process in enumerate(processes):
            await process.send(str(number).encode())
            await process.send(None)
        rans = [await collect(process) for process in processes]
    assert [ran.stdout for ran in rans] == [str(number).encode() for number in range(256)]


async def test_limits_on_open_files_file_size_and_cpu_hold(kind: str, opened: Open) -> None:
    limits = Limits(open_files=64, file_size=1 << 20, cpu=1)
    driver = await opened(kind, limits=limits)
    assert (await run(driver, "ulimit -n")).stdout == b"64\n"
    assert (await run(driver, "head -c 2M /dev/zero > big; wc -c < big")).stdout.strip() == b"1048576"
    with anyio.fail_after(PATIENCE):
        assert (await run(driver, "while :; do :; done")).code in (128 + signal.SIGXCPU, 128 + signal.SIGKILL)
    with pytest.raises(OSError) as raised:
        await driver.write(f"{driver.workspace}/too-big", b"x" * (2 << 20))
    assert raised.value.errno == errno.EFBIG
    free = await opened(kind, limits=Limits(open_files=None, file_size=None))
    assert (await run(free, "head -c 2M /dev/zero > big; wc -c < big")).stdout.strip() == b"2097152", "the control"


async def test_a_command_has_its_own_session_no_extra_descriptors_and_clean_signals(driver: GuardedDriver) -> None:
    code = (
        "import os, signal\n"
        "print(os.getsid(0) == os.getpid(), sorted(map(int, os.listdir('/proc/self/fd'))))\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, []), [s for s in signal.valid_signals()"
        " if signal.getsignal(s) == signal.SIG_IGN])"
    )
    process = await driver.start(Command(argv=(sys.executable, "-S", "-c", code)))
    said = (await collect(process)).stdout.decode().splitlines()
    assert said[0] == "True [0, 1, 2, 3]", "3 is the directory being listed"
    assert said[1].startswith("set()")
    assert "SIGCHLD" not in said[1]


async def test_two_threads_each_have_their_own_sandbox(kind: str, opened: Open) -> None:
    async def one() -> None:
        driver = await opened(kind)
        for _ in range(5):
            assert (await run(driver, "echo mine")).stdout == b"mine\n"
        await driver.close()

    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(anyio.to_thread.run_sync, anyio.run, one)


async def test_concurrent_waiters_hand_the_reading_over(driver: GuardedDriver) -> None:
    results: list[bytes] = []

    async def one(number: int) -> None:
        with anyio.move_on_after(0.05 if number % 3 == 0 else PATIENCE):
            results.append((await run(driver, f"sleep 0.{number % 5}; echo {number}")).stdout)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(one, number)
    assert {int(text) for text in results} >= {number for number in range(30) if number % 3}
