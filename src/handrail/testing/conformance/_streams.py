"""Checks of streams: every byte goes through, both ways, on its own stream, while the command runs."""

from typing import Any, Final

import anyio

from handrail.testing.conformance.check import Group, Seen
from handrail.testing.conformance.fixture import Fixture, Open, collect, outcome, until_says

STDIN: Final = Group("stdin")
OUTPUT: Final = Group("live_output")
ALL_BYTES: Final = bytes(range(256)) * 4
MEGABYTE: Final = 1 << 20
BOTH: Final = "(head -c 3000000 /dev/zero | tr '\\0' o) & (head -c 2000000 /dev/zero | tr '\\0' e) >&2 & wait"
ENOUGH: Final = 10 << 20
UNTAKEN: Final = 3 << 20
"""Bytes of output that exceed all pipes and buffers on the way."""
READER_WAIT: Final = 0.5
"""Least seconds in which a command can print everything without back-pressure."""
READER_TIMES: Final = 4
"""Multiple of the time that the command takes with a reader."""

DISTURBED_TIMES: Final = 20
"""Multiple of one command's time that three commands at once may take."""


async def _echoed(open: Open, pieces: list[bytes]) -> Seen:
    fixture = await open()
    process = await fixture.start(["cat"], input=True)

    async def feed() -> None:
        for piece in pieces:
            await process.send(piece)
        await process.send(None)

    async with anyio.create_task_group() as group:
        group.start_soon(feed)
        ran = await collect(process)
    whole = b"".join(pieces)
    return Seen(f"cat, {len(whole):,} bytes", ran.code == 0, (len(whole), True), (len(ran.stdout), ran.stdout == whole))


STDIN.add("every byte value goes in and comes out", _echoed, [ALL_BYTES])
STDIN.add("pieces arrive in their order", _echoed, [f"{number} ".encode() for number in range(200)])
STDIN.add("megabytes go through both ways at once", _echoed, [ALL_BYTES * 4096])
STDIN.add("an input that is closed at once is empty", _echoed, [])


@STDIN.check
async def an_input_stays_open_until_it_is_closed(open: Open) -> Seen:
    fixture = await open()
    process = await fixture.start("read a; echo $a; read b; echo $b", input=True)
    output = process.output()
    await process.send(b"first line\n")
    first = await until_says(output, b"first line\n")
    await process.send(b"second line\n")
    rest = b"".join([chunk.data async for chunk in output])
    return Seen("read a; echo $a; read b; echo $b", first == b"first line\n", b"second line\n", rest)


async def _sending(fixture: Fixture, process: Any, data: bytes) -> str:
    with anyio.move_on_after(fixture.patience):
        return await outcome(process.send(data))
    return f"no answer within {fixture.patience:g} s"


@STDIN.check
async def input_after_its_end_is_a_broken_pipe(open: Open) -> Seen:
    fixture = await open()
    process = await fixture.start("echo STARTED; cat; sleep 1000", input=True)
    printed = await until_says(process.output(), b"STARTED\n")
    await process.send(None)
    got = await _sending(fixture, process, b"late")
    await fixture.kill(process)
    return Seen("send(None), then send(b'late')", printed == b"STARTED\n", "BrokenPipeError", got)


@STDIN.check
async def input_to_a_command_that_ended_is_a_broken_pipe(open: Open) -> Seen:
    fixture = await open()
    process = await fixture.start("echo STARTED", input=True)
    ran = await collect(process)
    got = await _sending(fixture, process, b"late")
    return Seen("echo STARTED; then send", ran.stdout == b"STARTED\n", "BrokenPipeError", got)


@STDIN.check
async def input_that_was_not_announced_is_a_broken_pipe(open: Open) -> Seen:
    fixture = await open()
    process = await fixture.start("echo STARTED; sleep 1000")
    printed = await until_says(process.output(), b"STARTED\n")
    got = await _sending(fixture, process, b"x")
    await fixture.kill(process)
    return Seen("send to a command without input", printed == b"STARTED\n", "BrokenPipeError", got)


@STDIN.check
async def much_input_that_nobody_reads_ends_with_the_command(open: Open) -> Seen:
    fixture = await open()
    process = await fixture.start("echo STARTED; exec <&-; sleep 0.1; exit 3", input=True)
    output = process.output()
    printed = await until_says(output, b"STARTED\n")
    got = await _sending(fixture, process, b"x" * ENOUGH)
    code = await process.wait()
    return Seen("10 MiB to a command that does not read", printed == b"STARTED\n", ("BrokenPipeError", 3), (got, code))


@STDIN.check
async def send_waits_until_the_command_takes_the_data(open: Open) -> Seen:
    fixture = await open()
    process = await fixture.start("echo STARTED; sleep 1000", input=True)
    printed = await until_says(process.output(), b"STARTED\n")
    with anyio.move_on_after(0.3) as waiting:
        await process.send(b"x" * UNTAKEN)
    await fixture.kill(process)
    return Seen("3 MiB to sleep", printed == b"STARTED\n", True, waiting.cancelled_caught)


@STDIN.check
async def a_sandbox_feeds_a_text_and_closes_it(open: Open) -> Seen:
    fixture = await open()
    ran = await fixture.sandbox.run("cat; echo END", stdin="text ü\n")
    return Seen("run('cat; echo END', stdin=…)", ran.exit_code == 0, "text ü\nEND\n", ran.stdout)


async def _live(open: Open, redirect: str, stream: str) -> Seen:
    """Run a command that goes on only after its output was seen."""
    fixture = await open()
    line = f"echo seen {redirect}; n=0; until test -e go; do n=$((n+1)); test $n -lt 200 || exit 9; sleep 0.05; done"
    process = await fixture.start(line)
    printed = b""
    with anyio.move_on_after(fixture.patience):
        async for chunk in process.output():
            printed += chunk.data if chunk.stream == stream else b"?"
            break
    live = printed
    await fixture.driver.write(fixture.at("go"), b"")
    ran = await collect(process)
    started = printed + ran.stdout + ran.stderr != b""
    return Seen(line, started, (b"seen\n", 0), (live, ran.code))


OUTPUT.add("stdout is given while the command runs", _live, "", "stdout")
OUTPUT.add("stderr is given while the command runs", _live, ">&2", "stderr")


async def _printed(open: Open, line: str, stdout: bytes, stderr: bytes) -> Seen:
    fixture = await open()
    ran = await fixture.run(line)
    equal = ran.stdout == stdout, ran.stderr == stderr
    sizes = len(ran.stdout), len(ran.stderr)
    return Seen(line, ran.code == 0, ((True, True), (len(stdout), len(stderr))), (equal, sizes))


OUTPUT.add("the two streams are kept apart", _printed, "echo out; echo err >&2", b"out\n", b"err\n")
OUTPUT.add("a last line without its end is kept", _printed, "printf 'a\\nb'", b"a\nb", b"")
OUTPUT.add("NUL and bytes that are not UTF-8 are kept", _printed, "printf 'a\\000\\377\\303(z'", b"a\0\xff\xc3(z", b"")
OUTPUT.add("an ended line may be silent", _printed, "true", b"", b"")
OUTPUT.add("megabytes on both streams at once are complete", _printed, BOTH, b"o" * 3_000_000, b"e" * 2_000_000)
OUTPUT.add("megabytes on stderr alone do not block", _printed, "head -c 3000000 /dev/zero >&2", b"", bytes(3_000_000))
OUTPUT.add("numbers come in their order", _printed, "n=0; while test $n -lt 5000; do echo $n; n=$((n+1)); done",
           "".join(f"{number}\n" for number in range(5000)).encode(), b"")  # fmt: skip


@OUTPUT.check
async def what_was_printed_before_a_kill_is_kept(open: Open) -> Seen:
    fixture = await open()
    process = await fixture.start("head -c 50000 /dev/zero; touch done; sleep 1000")
    await fixture.until("done")
    await process.signal("KILL")
    size = len((await collect(process)).stdout)
    return Seen("head -c 50000 /dev/zero; then KILL", await fixture.exists("done"), 50_000, size)


@OUTPUT.check
async def a_command_waits_for_its_reader(open: Open) -> Seen:
    """Check that a command without a reader cannot print everything."""
    fixture = await open()
    began = anyio.current_time()
    await fixture.run("head -c 12000000 /dev/zero")
    wait = max(READER_WAIT, READER_TIMES * (anyio.current_time() - began))
    process = await fixture.start("touch begun; head -c 12000000 /dev/zero; touch done")
    await fixture.until("begun")
    with anyio.move_on_after(wait):
        await fixture.until("done")
    done = await fixture.exists("done")
    await fixture.kill(process)
    return Seen("print 12 MB that nobody reads", await fixture.exists("begun"), False, done)


@OUTPUT.check
async def output_that_nobody_reads_disturbs_no_other_command(open: Open) -> Seen:
    fixture = await open()
    began = anyio.current_time()
    await fixture.run("echo fine")
    wait = max(fixture.patience, DISTURBED_TIMES * (anyio.current_time() - began))
    stuck = [await fixture.start("touch begun; head -c 30000000 /dev/zero") for _ in range(3)]
    got = []
    with anyio.move_on_after(wait):
        await fixture.until("begun")
        got = [(await fixture.run("echo fine")).stdout for _ in range(3)]
    for process in stuck:
        await fixture.kill(process)
    return Seen("echo fine, beside three that are blocked", await fixture.exists("begun"), [b"fine\n"] * 3, got)


@OUTPUT.check
async def a_killed_command_that_nobody_read_ends(open: Open) -> Seen:
    fixture = await open()
    process = await fixture.start("touch begun; head -c 30000000 /dev/zero")
    await fixture.until("begun")
    await process.signal("KILL")
    with anyio.move_on_after(fixture.patience):
        return Seen("print 30 MB, then KILL", True, 137, (await collect(process)).code)
    return Seen("print 30 MB, then KILL", True, 137, "it did not end")
