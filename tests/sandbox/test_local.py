"""On a real machine: whatever ends a command, its whole tree is dead when the answer comes, and its output is kept.

Every process of a tree carries a mark in its environment, by which the test finds it wherever it hides.
"""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from secrets import token_hex
from time import sleep
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus

from handrail.clock import CallClock
from handrail.contract.driver import Chunk
from handrail.contract.errors import Unavailable
from handrail.contract.limits import Limits
from handrail.drivers._guarded import GuardedDriver
from handrail.drivers.host import open_host
from handrail.drivers.jail import open_jail
from handrail.sandbox import Completed, Sandbox
from handrail.sandbox.views import bind
from tests.drivers.watching import PATIENCE, descriptors, guard_pid

pytestmark = pytest.mark.anyio

DOUBLE_FORK = """python3 -c '
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(1, b"STARTED\\n")
        time.sleep(1000)
    os._exit(0)
os.wait()
time.sleep(1000)'"""
TREES = {  # the line, and how many processes it has at least when it says STARTED
    "plain": ("echo STARTED; sleep 1000; :", 1),
    "background": ("sleep 1000 & sleep 1000 & echo STARTED; wait", 3),
    "term-deaf": ("trap '' TERM; sleep 1000 & echo STARTED; while :; do sleep 1000; done", 2),
    "setsid": ("setsid sleep 1000 & setsid -f sleep 1000; echo STARTED; sleep 1000; :", 3),
    "double-forked": (DOUBLE_FORK, 2),
    "stopped": ("sleep 1000 & kill -STOP $!; echo STARTED; kill -STOP $$; sleep 1000", 2),
    "a thousand": ("for i in $(seq 1000); do sleep 1000 & done; echo STARTED; wait", 1001),
}
LIMIT = 1.0
"""Seconds that a grown tree may live, where a limit is what ends it."""


def alive(mark: str) -> int:
    found = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                found += mark.encode() in Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                pass  # it ended, or is a zombie of somebody else
    return found


@pytest.fixture(params=[open_host, open_jail], ids=["host", "jail"])
async def driver(tmp_path: Path, request: pytest.FixtureRequest) -> GuardedDriver:
    opened: GuardedDriver = await request.param(workspace=str(tmp_path), limits=Limits(processes=None))
    return opened


@pytest.fixture
async def sandbox(driver: GuardedDriver) -> AsyncIterator[Sandbox]:
    async with Sandbox(driver) as opened:
        yield opened


class Tree:
    """A command that has been seen to start, with as many processes as it should have."""

    def __init__(self, kind: str) -> None:
        self.line, self.expected = TREES[kind]
        self.mark = token_hex(8)
        self.env = {"HANDRAIL_TEST_MARK": self.mark}
        self.counted = 0
        self.grown = anyio.Event()

    def watch(self, chunk: Chunk) -> None:
        if b"STARTED" in chunk.data:
            for _ in range(6000):  # a process that is just being started has no environment to be known by
                self.counted = max(self.counted, alive(self.mark))
                if self.counted >= self.expected:
                    break
                sleep(0.01)
            self.grown.set()

    async def hold(self, clock: CallClock, *, task_status: TaskStatus[None]) -> None:
        """No limit runs out before the tree has grown, however long that takes here."""
        with clock.pause():
            task_status.started()
            await self.grown.wait()

    def is_dead(self) -> bool:
        assert self.counted >= self.expected, f"only {self.counted} processes ever ran: this would prove nothing"
        return alive(self.mark) == 0


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("ending", ["timeout", "idle", "output"])
async def test_a_limit_ends_the_whole_tree_and_keeps_its_output(sandbox: Sandbox, kind: str, ending: str) -> None:
    tree = Tree(kind)
    limits = {"timeout": {"timeout": LIMIT}, "idle": {"idle_timeout": LIMIT}, "output": {"max_output": 7}}
    clock = CallClock()
    clock.start()
    async with anyio.create_task_group() as tasks:
        await tasks.start(tree.hold, clock)
        run = bind(sandbox, clock=clock).run
        completed = await run(tree.line, env=tree.env, on_output=tree.watch, **limits[ending])  # type: ignore[arg-type]
        took = clock.now()
    assert tree.is_dead()
    assert took < LIMIT + 10
    assert (completed.ended_by, completed.stdout, completed.may_still_run) == (ending, "STARTED\n", False)
    assert (completed.exit_code == 124) == (ending != "output")


@pytest.mark.parametrize("kind", TREES)
async def test_cancelling_the_caller_ends_the_whole_tree(sandbox: Sandbox, kind: str) -> None:
    tree = Tree(kind)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                await sandbox.run(tree.line, env=tree.env, on_output=tree.watch)

            tasks.start_soon(call)
            await tree.grown.wait()
            tasks.cancel_scope.cancel()
    assert tree.is_dead()


@pytest.mark.parametrize("kind", TREES)
async def test_a_person_ends_the_whole_tree(sandbox: Sandbox, kind: str) -> None:
    tree, ended = Tree(kind), list[Completed]()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                ended.append(await sandbox.run(tree.line, env=tree.env, on_output=tree.watch, id="call-1"))

            tasks.start_soon(call)
            await tree.grown.wait()
            assert await sandbox.terminate("call-1")
    assert tree.is_dead()
    assert (ended[0].ended_by, ended[0].stdout, ended[0].may_still_run) == ("user", "STARTED\n", False)
    assert ended[0].exit_code in (137, 143)


@pytest.mark.parametrize("kind", TREES)
async def test_closing_the_sandbox_ends_the_tree_of_a_job(sandbox: Sandbox, kind: str) -> None:
    tree = Tree(kind)
    with anyio.fail_after(PATIENCE):
        job = await sandbox.start(tree.line, env=tree.env, on_output=tree.watch)
        await tree.grown.wait()
        assert job.running
        await sandbox.close()
    assert tree.is_dead()
    assert not job.running
    assert job.tail() == "STARTED\n"


async def test_a_background_child_that_holds_stdout_does_not_hold_the_call(sandbox: Sandbox) -> None:
    tree = Tree("plain")
    completed = await sandbox.run("(trap '' TERM; sleep 1000) & echo STARTED", env=tree.env, timeout=60)
    assert (completed.ended_by, completed.stdout, completed.exit_code) == ("exit", "STARTED\n", 0)
    assert any("background" in note for note in completed.notes)
    assert alive(tree.mark) == 0


async def test_a_command_that_traps_term_may_say_its_last_words(sandbox: Sandbox) -> None:
    line = "trap 'echo goodbye; exit 0' TERM; echo STARTED; while :; do sleep 0.05; done"
    completed = await sandbox.run(line, timeout=1)
    assert (completed.exit_code, completed.stdout) == (124, "STARTED\ngoodbye\n")


async def test_a_command_that_ends_in_time_is_left_alone(sandbox: Sandbox) -> None:
    completed = await sandbox.run("echo out; echo err >&2; exit 3", timeout=60, idle_timeout=60, max_output=100)
    assert (completed.exit_code, completed.stdout, completed.stderr) == (3, "out\n", "err\n")
    assert (completed.ended_by, completed.notes) == ("exit", ())


async def test_a_pipeline_fails_with_its_first_part_and_a_sigpipe_is_noted(sandbox: Sandbox) -> None:
    assert (await sandbox.run("false | cat")).exit_code == 1
    completed = await sandbox.run("yes | head -1", timeout=60)
    assert (completed.stdout, completed.exit_code) == ("y\n", 141)
    assert "harmless" in completed.notes[0]
    assert "not found" in (await sandbox.run("no-such-program-here")).notes[0]


LIMITED = {
    "cpu": ("while :; do :; done", Limits(cpu=1)),
    "file_size": ("head -c 2M /dev/zero > big", Limits(file_size=1 << 20)),
}


@pytest.mark.parametrize("limit", LIMITED)
@pytest.mark.parametrize("open_driver", [open_jail, open_host])
async def test_a_command_that_a_limit_ended_is_told_which(limit: str, open_driver: Any, tmp_path: Path) -> None:
    line, limits = LIMITED[limit]
    async with Sandbox(await open_driver(workspace=str(tmp_path), limits=limits)) as sandbox:
        completed = await sandbox.run(line)
        assert completed.exit_code in (152, 153), completed
        assert [True for note in completed.notes if f"limits.{limit}" in note], completed.notes
        assert (await sandbox.run("exit 3")).notes == (), "the control"


async def test_nul_and_invalid_utf_8_come_through(sandbox: Sandbox) -> None:
    completed = await sandbox.run(r"printf 'a\0b\377c\342\202\254'")
    assert completed.stdout_bytes == b"a\0b\xffc\xe2\x82\xac"
    assert completed.stdout == "a\0b\ufffdc€"


async def test_ten_megabytes_of_input_are_read_or_not_without_a_hang(sandbox: Sandbox) -> None:
    data = os.urandom(10_000_000)
    with anyio.fail_after(60):
        unread = await sandbox.run("echo before; exec sleep 0.3", stdin=data)
        assert (unread.stdout, unread.exit_code) == ("before\n", 0)
        closed = await sandbox.run("exec 0<&-; echo closed", stdin=data)
        assert (closed.stdout, closed.exit_code) == ("closed\n", 0)
        counted = await sandbox.run("wc -c", stdin=data)
        assert counted.stdout.strip() == "10000000"
        back = await sandbox.run(["cat"], stdin=data)
        assert back.spool.read() == data
        stopped = await sandbox.run("sleep 1000", stdin=data, timeout=0.5)
        assert stopped.ended_by == "timeout"


async def test_what_left_the_cap_is_read_from_the_spool(sandbox: Sandbox) -> None:
    completed = await sandbox.run("seq 1 1000000; seq 1 100000 >&2", timeout=60)
    expected = "".join(f"{number}\n" for number in range(1, 1_000_001)).encode()
    assert completed.truncated
    assert completed.stdout_size == len(expected)
    assert completed.stdout.startswith("1\n2\n")
    assert completed.stdout.endswith("\n1000000\n")
    assert completed.spool.read() == expected
    assert completed.spool.read(3_000_000, 50) == expected[3_000_000:3_000_050]
    assert completed.spool.read(stream="stderr") == expected[: completed.stderr_size]


FLOOD = """
import resource, sys, tempfile
import anyio
from handrail.drivers.host import open_host
from handrail.drivers.jail import open_jail
from handrail.sandbox import Sandbox

async def main(line):
    with tempfile.TemporaryDirectory() as home:
        async with Sandbox(await open_host(workspace=home)) as sandbox:
            await sandbox.run("echo warm")
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            done = await sandbox.run(line, timeout=120)
            after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            print(done.stdout_size + done.stderr_size, done.spool.discarded(), (after - before) // 1024, done.ended_by)

anyio.run(main, sys.argv[1])
"""


@pytest.mark.parametrize("to", ["", ">&2"])
async def test_a_gigabyte_passes_in_bounded_memory(to: str) -> None:
    line = f"head -c 1000000000 /dev/zero {to}"
    done = await anyio.run_process([sys.executable, "-c", FLOOD, line])
    size, discarded, grown, ended_by = done.stdout.decode().split()
    assert (int(size), ended_by) == (1_000_000_000, "exit")
    assert int(discarded) > 900_000_000
    assert int(grown) < 48


async def test_a_long_line_runs_and_one_argument_beyond_the_system_is_refused(sandbox: Sandbox) -> None:
    completed = await sandbox.run("echo " + "x" * 2_000_000 + " | wc -c", timeout=60)
    assert completed.stdout.strip() == "2000001"
    with pytest.raises((OSError, ValueError)):
        await sandbox.run(["echo", "x" * 200_000])
    assert (await sandbox.run("echo still here")).stdout == "still here\n"


async def test_a_directory_that_is_missing_or_a_file_is_an_error(sandbox: Sandbox) -> None:
    await sandbox.write_text("file", "x")
    with pytest.raises(FileNotFoundError):
        await sandbox.run("true", cwd="gone")
    with pytest.raises(NotADirectoryError):
        await sandbox.run("true", cwd="file")
    with pytest.raises(FileNotFoundError):
        await sandbox.run(["no-such-program-here"])


async def test_a_job_is_fed_tailed_waited_for_and_its_children_live_with_it(sandbox: Sandbox) -> None:
    tree = Tree("plain")
    job = await sandbox.start("sleep 1000 & cat; exit 9", env=tree.env)
    assert job.pid is not None
    await job.send("one\n")
    assert await job.wait(0.3) is None
    assert job.tail() == "one\n"
    assert alive(tree.mark) >= 3
    await job.send(None)
    assert await job.wait(30) == 9
    assert alive(tree.mark) == 0
    assert sandbox.job(job.id) is job


@pytest.mark.parametrize(
    ("language", "code"), [("python", "print('a',\n  1)"), ("bash", "echo a $((0+1))"), ("sh", "echo a 1")]
)
async def test_code_runs_in_the_languages_that_are_there(sandbox: Sandbox, language: str, code: str) -> None:
    await sandbox.write_text("part/local_module.py", "")
    completed = await sandbox.at("part").run_code(code, language, timeout=60)
    assert (completed.exit_code, completed.stdout) == (0, "a 1\n")
    assert [entry.path for entry in await sandbox.list("part")] == [f"{sandbox.workspace}/part/local_module.py"]


async def test_an_error_in_python_code_names_its_line(sandbox: Sandbox) -> None:
    completed = await sandbox.run_code("import os\n\nos.nonsense()\n", timeout=60)
    assert completed.exit_code == 1
    assert "line 3" in completed.stderr
    assert "os.nonsense()" in completed.stderr


async def test_a_guard_that_is_killed_in_the_middle_makes_the_call_unavailable(
    sandbox: Sandbox, driver: GuardedDriver
) -> None:
    tree = Tree("plain")
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                with pytest.raises(Unavailable):
                    await sandbox.run(tree.line, env=tree.env, on_output=tree.watch, timeout=60)

            tasks.start_soon(call)
            await tree.grown.wait()
            os.kill(guard_pid(driver), 9)  # below bubblewrap, where there is one
        with pytest.raises(Unavailable):
            await sandbox.run("true", timeout=5)


async def test_many_sandboxes_leave_neither_processes_nor_descriptors(tmp_path: Path) -> None:
    before, mark = descriptors(collected=True), token_hex(8)
    for _ in range(20):
        async with Sandbox(await open_host(workspace=str(tmp_path))) as sandbox:
            job = await sandbox.start("setsid sleep 1000 & sleep 1000", env={"HANDRAIL_TEST_MARK": mark})
            assert (await sandbox.run("seq 1 100000", timeout=60)).exit_code == 0
            assert job.running
    assert alive(mark) == 0
    assert descriptors() <= before + 1


PRINTS = "print('printed'); import os, signal, sys; {end}"


async def test_what_a_python_program_printed_is_kept_when_it_is_killed(sandbox: Sandbox) -> None:
    line = ["python3", "-c", PRINTS.format(end="os.kill(os.getpid(), signal.SIGKILL)")]
    assert (await sandbox.run(line)).stdout == "printed\n"
    held_back = await sandbox.run(line, env={"PYTHONUNBUFFERED": ""})
    assert (held_back.exit_code, held_back.stdout) == (137, ""), "the control: this is how it is turned off"


async def test_what_a_python_program_prints_is_seen_while_it_runs(sandbox: Sandbox) -> None:
    seen = anyio.Event()
    program = ["python3", "-c", PRINTS.format(end="sys.stdin.read()")]
    job = await sandbox.start(program, on_output=lambda chunk: seen.set())
    with anyio.fail_after(PATIENCE):
        await seen.wait()
    assert job.tail(1).strip() == "printed"
    assert job.running
    await job.send(None)
    assert await job.wait(PATIENCE) == 0


async def test_a_killed_program_is_not_said_to_have_printed_nothing(sandbox: Sandbox) -> None:
    killed = PRINTS.format(end="os.kill(os.getpid(), signal.SIGKILL)")
    done = await sandbox.run(f'python3 -c "{killed}" | cat', env={"PYTHONUNBUFFERED": ""})
    assert (done.exit_code, done.stdout) == (137, "")
    assert not any("printed nothing" in note for note in done.notes), done
