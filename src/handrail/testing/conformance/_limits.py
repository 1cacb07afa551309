"""Checks of limits: a command above a limit fails, and works without the limit."""

from dataclasses import replace
from typing import Final

import anyio

from handrail.contract.driver import Feature
from handrail.contract.limits import Limits
from handrail.drivers.attempts import ATTEMPTS, Attempt, NotAttempted
from handrail.drivers.limit_table import LIMIT_TABLE
from handrail.testing.conformance._isolation import attempted
from handrail.testing.conformance.check import Group, Seen
from handrail.testing.conformance.fixture import Open, outcome, until_says

MIB: Final = 1 << 20
CPU_WAIT: Final = 15.0
"""Seconds in which a command gets one second of CPU time on a busy machine."""
KILLED_FROM: Final = 128
GROUPS: Final[dict[Feature, Group]] = {row.feature: Group(row.feature) for row in LIMIT_TABLE}
VALUES: Final = {
    "processes": "64", "open_files": "100", "file_size": str(MIB), "cpu": "6", "tmp": str(MIB), "inside": "/tmp",
    "token": "x", "workspace_size": str(4 * MIB),
}  # fmt: skip
ASKED: Final = Limits(processes=64, open_files=100, file_size=MIB, cpu=5.0, tmp=MIB)
SIZED: Final = replace(ASKED, workspace=4 * MIB)
MEMORY: Final = Limits(memory=96 * MIB)
PART: Final = 20_000_000
"""Bytes that each of eight processes holds: together they are more than the limit, and each is far below it."""


async def _attempt(open: Open, attempt: Attempt) -> Seen:
    # a workspace with a size is on no disk: a driver that runs its programs outside would not find the probe there
    fixture = await open(limits=SIZED if attempt.feature == "limit_workspace" else ASKED)
    try:
        home = (await fixture.run('printf %s "$HOME"')).text
        places = {"inside": fixture.directory, "home": home or "/tmp", "workspace": fixture.workspace}
        got = await attempted(fixture, attempt, {**VALUES, **places})
    except NotAttempted as reason:
        return Seen(f"{attempt.name} {attempt.argument}", False, "refused", str(reason))
    return Seen(f"{attempt.name} {attempt.argument}", True, "refused", got)


for _each in ATTEMPTS:
    if _each.feature in GROUPS:
        GROUPS[_each.feature].add(f"a command cannot {_each.meaning}", _attempt, _each)


async def _above(open: Open, limits: Limits, line: str, below: str, got_below: bytes) -> Seen:
    """Run a line that prints `DONE` unless the limit stops it, and as a control a smaller one."""
    fixture = await open(limits=limits)
    control = await fixture.run(below)
    ran = await fixture.run(f"{line} && echo DONE")
    stopped = "stopped" if b"DONE" not in ran.stdout else "not stopped"
    return Seen(f"{line} with {limits}", control.stdout.strip() == got_below, "stopped", stopped)


GROUPS["limit_memory"].add(
    "a command cannot use more memory than the limit", _above, MEMORY,
    'test "$(head -c 300000000 /dev/zero | tail -c 300000000 | wc -c)" = 300000000',
    "head -c 1000000 /dev/zero | tail -c 1000000 | wc -c", b"1000000",
)  # fmt: skip
GROUPS["limit_workspace"].add(
    "commands cannot put more into the workspace than the limit", _above, Limits(workspace=4 * MIB),
    "head -c 9000000 /dev/zero > big", "head -c 1000 /dev/zero > small; wc -c < small", b"1000",
)  # fmt: skip
GROUPS["limit_workspace"].add(
    "commands cannot make more files in the workspace than the limit has pages", _above, Limits(workspace=4 * MIB),
    "n=0; while [ $n -lt 3000 ]; do : > file$n || exit 1; n=$((n + 1)); done", ": > file; ls file", b"file",
)  # fmt: skip
GROUPS["limit_file_size"].add(
    "a file cannot grow beyond the limit", _above, Limits(file_size=MIB),
    "head -c 2000000 /dev/zero > big", "head -c 1000 /dev/zero > small; wc -c < small", b"1000",
)  # fmt: skip
GROUPS["limit_open_files"].add(
    "a command cannot keep more files open than the limit", _above, Limits(open_files=20),
    "for n in $(seq 10 40); do eval \"exec $n</dev/null\" || exit 1; done", "exec 9</dev/null; echo ok", b"ok",
)  # fmt: skip


@GROUPS["limit_memory"].check
async def memory_of_all_processes_counts_together(open: Open) -> Seen:
    fixture = await open(limits=MEMORY)
    await fixture.needs("head", "tail", "wc", "sleep")
    control = await fixture.run(f"head -c {PART} /dev/zero | tail -c {PART} | wc -c")
    one = f"head -c {PART} /dev/zero | tail -c {PART} | (sleep 2; wc -c)"
    ran = await fixture.run(f"for n in 1 2 3 4 5 6 7 8; do ({one}) & done; wait")
    got = "stopped" if ran.text.split().count(str(PART)) < 8 else "not stopped"
    return Seen(f"eight times: {one}", control.text.strip() == str(PART), "stopped", got)


@GROUPS["limit_memory"].check
async def shared_memory_counts_and_the_sandbox_works_on(open: Open) -> Seen:
    fixture = await open(limits=MEMORY)
    ran = await fixture.run([await fixture.probe(), "--attempt", "memory", str(MEMORY.memory)], cwd="/")
    got = "not stopped" if b"reached" in ran.stdout else "stopped"
    after = await fixture.run("echo usable")
    started = ran.stdout.startswith(b"STARTED")
    return Seen("192 MiB of shared memory", started, ("stopped", b"usable\n"), (got, after.stdout))


@GROUPS["limit_cpu"].check
async def a_command_that_computes_for_longer_than_the_limit_is_ended(open: Open) -> Seen:
    fixture = await open(limits=Limits(cpu=1.0))
    await fixture.needs("yes")
    process = await fixture.start("echo STARTED; exec yes > /dev/null")
    printed = await until_says(process.output(), b"STARTED\n")
    got: object = "not stopped"
    with anyio.move_on_after(max(CPU_WAIT, 5 * fixture.patience)):
        got = "stopped" if await process.wait() > KILLED_FROM else "ended otherwise"
    await fixture.kill(process)
    return Seen("yes > /dev/null with cpu=1", printed == b"STARTED\n", "stopped", got)


@GROUPS["limit_file_size"].check
async def write_keeps_to_the_limit_too(open: Open) -> Seen:
    fixture = await open(limits=Limits(file_size=MIB))
    await fixture.driver.write(fixture.at("small"), b"x")
    got = await outcome(fixture.driver.write(fixture.at("big"), bytes(2 * MIB)))
    return Seen("write 2 MiB", await fixture.exists("small"), "OSError", got)


@GROUPS["limit_processes"].check
async def a_storm_of_processes_is_stopped_and_its_sandbox_works_on(open: Open) -> Seen:
    fixture = await open(limits=Limits(processes=40))
    await fixture.needs("seq", "sleep")
    control = await fixture.run("echo STARTED")
    process = await fixture.start(["sh", "-c", "for n in $(seq 100); do sleep 1000 & done; echo ALL"])
    printed = b""
    with anyio.move_on_after(fixture.patience):
        printed = await until_says(process.output(), b"ALL")
    await fixture.kill(process)
    await process.wait()
    got = "stopped" if b"ALL" not in printed else "not stopped"
    after = await fixture.run("echo usable")
    started = control.stdout == b"STARTED\n"
    return Seen("100 processes with processes=40", started, ("stopped", b"usable\n"), (got, after.stdout))
