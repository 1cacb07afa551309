"""Checks of process trees: whatever a command started is dead when it was killed, ended, or its sandbox closed.

A pipe tells who lives: everything that a command starts inherits its writing end, and a watcher inside reads it. The
watcher writes to a file what came first, which is the control, and to another one when the last holder is dead: so a
driver that gives output only when a command has ended can be tried too.
"""

from typing import Final, Literal

import anyio

from handrail.contract.driver import Command, Process
from handrail.sandbox.views import on_late
from handrail.testing.conformance.check import Group, Seen
from handrail.testing.conformance.fixture import Fixture, Open, collect, until, until_says

TREES: Final = Group("tree_kill")
HOLD: Final = "exec 9> alive; "
START: Final = "echo STARTED >&9"
SESSION: Final = f"setsid sh -c '{START}; touch up; exec sleep 1000'"
UP: Final = "until test -e up; do sleep 0.01; done"
SHAPES: Final = {
    "a child": f"{START}; sleep 1000; true",
    "children in the background": f"sleep 1000 & sleep 1000 & {START}; wait",
    "a child that ignores TERM": f"trap '' TERM; ({START}; while :; do sleep 1; done) & while :; do sleep 1; done",
    "a child in its own session": f"{SESSION} & wait",
    "a child that forked twice": f"(setsid sh -c 'sleep 1000 & sleep 1000 & {START}' &); sleep 1000; true",
    "a stopped child": f"sleep 1000 & kill -STOP $!; {START}; sleep 1000; true",
    "a pipeline": f"{START}; yes | sleep 1000 | cat",
}
GENTLE: Final = ("a child", "children in the background", "a child in its own session", "a stopped child")
"""Lines whose trees end by TERM."""
CANCELLED_WAIT: Final = 0.3
"""Least seconds in which a command that was not ended begins to run."""
BUSY_TIMES: Final = 4
"""Multiple of the time that another command takes from start to end."""
KILLED: Final = 137
TERMINATED: Final = 143


class Watch:
    """A watch that tells whether a process of a tree lives, by a pipe that all of them hold."""

    def __init__(self, fixture: Fixture, watcher: Process) -> None:
        self.fixture = fixture
        self._watcher = watcher

    async def started(self) -> bool:
        """Whether the tree has begun to hold the pipe."""
        with anyio.move_on_after(self.fixture.patience * 5):
            await self._says("said", b"STARTED")
            return True
        return False

    async def dead(self) -> bool:
        """Whether everything that held the pipe is dead, or dies very soon: a busy machine is given more time."""
        if await self._gone(self.fixture.patience):
            return True
        began = anyio.current_time()
        await self.fixture.run("true")
        return await self._gone(BUSY_TIMES * (anyio.current_time() - began))

    async def _gone(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self._says("gone", b"GONE")
            return await self._watcher.wait() == 0
        return False

    async def _says(self, name: str, text: bytes) -> None:
        """Wait until the text is in the file of this name."""

        async def said() -> bool:
            try:
                return text in await self.fixture.driver.read(self.fixture.at(name))
            except FileNotFoundError:
                return False

        await until(said)


async def watch(fixture: Fixture) -> Watch:
    """Make the pipe, and watch it."""
    await fixture.needs("mkfifo", "setsid", "cat", "sleep", "yes")
    await fixture.run("mkfifo alive")
    return Watch(fixture, await fixture.start("cat alive > said; echo GONE > gone"))


async def _signalled(open: Open, shape: str, name: Literal["TERM", "KILL"]) -> Seen:
    fixture = await open()
    watching = await watch(fixture)
    line = HOLD + SHAPES[shape]
    process = await fixture.start(line)
    started = await watching.started()
    await process.signal(name)
    code: object = "it did not end"
    with anyio.move_on_after(fixture.patience):
        code = (await collect(process)).code
    expected = KILLED if name == "KILL" else TERMINATED
    dead = await watching.dead()
    return Seen(f"{name}: {line}", started, (expected, True), (code, dead))


for _shape in SHAPES:
    TREES.add(f"KILL ends {_shape}", _signalled, _shape, "KILL")
for _shape in GENTLE:
    TREES.add(f"TERM ends {_shape}", _signalled, _shape, "TERM")


@TREES.check
async def term_is_not_kill(open: Open) -> Seen:
    fixture = await open()
    process = await fixture.start("trap 'echo HEARD; exit 5' TERM; touch started; while :; do sleep 0.05; done")
    await fixture.until("started")
    await process.signal("TERM")
    ran = await collect(process)
    return Seen(
        "trap 'echo HEARD; exit 5' TERM", await fixture.exists("started"), (b"HEARD\n", 5), (ran.stdout, ran.code)
    )


@TREES.check
async def a_signal_after_the_end_is_not_an_error(open: Open) -> Seen:
    fixture = await open()
    process = await fixture.start("echo STARTED; exit 4")
    ran = await collect(process)
    for name in ("TERM", "KILL"):
        await process.signal(name)
    return Seen("exit 4; then TERM and KILL", ran.stdout == b"STARTED\n", (4, 4), (ran.code, await process.wait()))


@TREES.check
async def a_signal_reaches_one_command_alone(open: Open) -> Seen:
    fixture = await open()
    other = await fixture.start("touch started; until test -e go; do sleep 0.01; done; echo WENT ON")
    await fixture.until("started")
    process = await fixture.start("sleep 1000")
    await process.signal("KILL")
    await collect(process)
    await fixture.driver.write(fixture.at("go"), b"")
    started, ran = await fixture.exists("started"), await collect(other)
    return Seen("KILL beside another command", started, b"WENT ON\n", ran.stdout)


@TREES.check
async def the_tree_is_dead_when_wait_returns(open: Open) -> Seen:
    """Start a child that counts as fast as it can: after `wait` the count stands still."""
    fixture = await open()
    process = await fixture.start("(trap '' TERM; while :; do echo x; done > count) & sleep 1000")
    size = 0
    while size == 0:
        await anyio.sleep(0.01)
        size = (await fixture.driver.stat(fixture.at("count"))).size if await fixture.exists("count") else 0
    await process.signal("KILL")
    await collect(process)
    first = (await fixture.driver.stat(fixture.at("count"))).size
    await anyio.sleep(0.2)
    later = (await fixture.driver.stat(fixture.at("count"))).size
    return Seen("KILL of a busy tree; two looks", size > 0, 0, later - first)


async def _left(open: Open, line: str) -> Seen:
    """Leave processes behind that hold the output: the command ends soon after its last line all the same."""
    fixture = await open()
    watching = await watch(fixture)
    process = await fixture.start(f"{HOLD}{line}; echo DONE; exit 7")
    printed, code = b"", -1
    with anyio.move_on_after(fixture.patience * 5):
        printed = await until_says(process.output(), b"DONE\n")
    with anyio.move_on_after(fixture.patience):
        code = (await collect(process)).code
    started = await watching.started()
    return Seen(line, started, (7, b"DONE\n", True), (code, printed, await watching.dead()))


QUIET: Final = ">/dev/null 2>&1"
TREES.add("what a command left in the background ends with it", _left, f"{START}; sleep 1000 {QUIET} &\ntrue")
TREES.add("what a command left in another session ends with it", _left, f"{SESSION} {QUIET} &\n{UP}")
TREES.add("a child that holds stdout does not hold the command", _left, f"{START}; sleep 1000 &\ntrue")


@TREES.check
async def a_cancelled_start_leaves_nothing_running(open: Open) -> Seen:
    """Cancel a start while another command holds the pipe; the pipe is free once that command ends."""
    fixture = await open()
    watching = await watch(fixture)
    other = await fixture.start(f"{HOLD}{START}; until test -e go; do sleep 0.01; done; echo USABLE")
    started = await watching.started()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await fixture.driver.start(Command(line=f"{HOLD}{START}; sleep 1000", cwd=fixture.directory))
    began = anyio.current_time()
    await fixture.run("true")
    await anyio.sleep(max(CANCELLED_WAIT, BUSY_TIMES * (anyio.current_time() - began)))
    await fixture.driver.write(fixture.at("go"), b"")
    usable = await collect(other)
    return Seen("start, cancelled", started, (b"USABLE\n", True), (usable.stdout, await watching.dead()))


async def _limited(open: Open, line: str, ended_by: str, code: int, **limits: float) -> Seen:
    """Let a limit of the Sandbox end a tree; the output is kept. A busy machine gets more time."""
    for factor in (1, 8, 40):
        fixture = await open()
        watching, sandbox, told = await watch(fixture), fixture.sandbox, anyio.Event()
        on_late(sandbox).append(lambda _, told=told: told.set())  # type: ignore[misc]
        given = {name: value if name == "max_output" else value * factor for name, value in limits.items()}
        ran = await sandbox.run(f"{HOLD}echo PRINTED; {line}", **given)  # type: ignore[arg-type]
        with anyio.move_on_after(0.5):
            started = await watching.started()
            if started and ran.stdout.startswith("PRINTED\n"):
                break
        started = False
    dead = started and await watching.dead()
    if ran.may_still_run:  # the call was answered in time; that the command ended may be told later
        with anyio.move_on_after(fixture.patience):
            await told.wait()
    confirmed = told.is_set() or not ran.may_still_run
    ended = KILLED if ran.exit_code == TERMINATED else ran.exit_code  # TERM has half a second
    got = ran.ended_by, ended, ran.stdout[:8], confirmed, dead
    return Seen(f"{line} ({limits})", started, (ended_by, code, "PRINTED\n", True, True), got)


_IN_SESSION: Final = SHAPES["a child in its own session"]
_DEAF: Final = SHAPES["a child that ignores TERM"]
_LOUD: Final = f"{SESSION} & {UP}; yes"
TREES.add("a time limit ends a tree and keeps its output", _limited, _IN_SESSION, "timeout", 124, timeout=0.5)
TREES.add("a time limit ends a tree that ignores TERM", _limited, _DEAF, "timeout", 124, timeout=0.5)
TREES.add("silence ends a tree and keeps its output", _limited, _IN_SESSION, "idle", 124, idle_timeout=0.5)
TREES.add("too much output ends a tree", _limited, _LOUD, "output", KILLED, max_output=100_000)


@TREES.check
async def a_cancelled_call_leaves_nothing_running(open: Open) -> Seen:
    fixture = await open()
    watching = await watch(fixture)
    started = False
    async with anyio.create_task_group() as group:
        group.start_soon(fixture.sandbox.run, HOLD + _IN_SESSION)
        started = await watching.started()
        group.cancel_scope.cancel()
    return Seen("run, cancelled", started, True, await watching.dead())


@TREES.check
async def a_terminated_job_leaves_nothing_running(open: Open) -> Seen:
    fixture = await open()
    watching = await watch(fixture)
    sandbox = fixture.sandbox
    job = await sandbox.start(HOLD + _IN_SESSION)
    started = await watching.started()
    running = await sandbox.terminate(job.id)
    return Seen("terminate(job)", started, (True, True), (running, await watching.dead()))
