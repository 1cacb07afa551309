"""A job outlives the call that started it, not its sandbox."""

import anyio
import pytest

from handrail.contract.driver import Chunk
from handrail.contract.errors import Unavailable
from handrail.contract.limits import DEFAULT_CAPS, Caps
from handrail.drivers.memory import MemoryDriver, Script
from handrail.sandbox import Sandbox
from handrail.sandbox.views import bind

pytestmark = pytest.mark.anyio


class Feeding(MemoryDriver):
    features = MemoryDriver.features | {"stdin"}


async def test_a_job_is_started_polled_waited_for_and_keeps_its_exit_code() -> None:
    sandbox = Sandbox(MemoryDriver(commands={"build": Script("one\ntwo\nthree\n", exit_code=7, delay=0.2)}))
    job = await sandbox.start("build")
    assert (job.poll(), job.exit_code, job.running) == (None, None, True)
    assert await job.wait(0.01) is None
    assert await job.wait() == 7
    assert (job.poll(), job.exit_code, job.running) == (7, 7, False)
    assert job.tail(2) == "two\nthree\n"
    assert job.tail(0) == ""
    assert job.spool.read() == b"one\ntwo\nthree\n"
    assert job.completed is not None
    assert job.completed.stdout == "one\ntwo\nthree\n"
    assert sandbox.job(job.id) is job
    assert sandbox.jobs() == [job]
    assert sandbox.job("nonsense") is None
    await sandbox.close()
    assert job.exit_code == 7


async def test_both_streams_stand_in_the_tail_as_they_came() -> None:
    pieces = [Chunk("stdout", b"1\n"), Chunk("stderr", b"2\n"), Chunk("stdout", b"3\n")]
    seen: list[bytes] = []
    sandbox = Sandbox(MemoryDriver(commands={"x": Script(chunks=pieces)}))
    job = await sandbox.start("x", on_output=lambda chunk: seen.append(chunk.data))
    await job.wait()
    assert job.tail() == "1\n2\n3\n"
    assert seen == [b"1\n", b"2\n", b"3\n"]


async def test_the_tail_of_a_flood_is_its_end_in_bounded_memory_and_splits_no_character() -> None:
    line = "é" * 99 + "\n"
    pieces = [Chunk("stdout", line.encode())] * 2000
    sandbox = Sandbox(MemoryDriver(commands={"x": Script(chunks=pieces)}))
    job = await sandbox.start("x")
    await job.wait()
    tail = job.tail(10**9)
    assert len(tail.encode()) <= 64 << 10
    assert "\ufffd" not in tail
    assert job.tail(3) == line * 3
    assert job.size == 2000 * len(line.encode())


async def test_any_range_of_a_flood_is_read_at_its_true_place_and_what_was_discarded_is_named() -> None:
    lines = [f"{number:0999}\n".encode() for number in range(1_000)]
    pieces = [Chunk("stdout" if number % 3 else "stderr", line) for number, line in enumerate(lines)]
    whole = b"".join(lines)
    for limit, gone in ((DEFAULT_CAPS.spool, 0), (256 << 10, 700_000)):
        sandbox = bind(Sandbox(MemoryDriver(commands={"x": Script(chunks=pieces)})), caps=Caps(spool=limit))
        job = await sandbox.start("x")
        await job.wait()
        first, last = job.discarded.start, job.discarded.stop
        assert (len(job.discarded) > gone) == bool(gone)
        for start, end in ((0, 5), (1_000, 3_000), (990_000, 1_000_000), (999_999, 2_000_000), (900_000, None)):
            assert job.read(start, end) == whole[start:end]
        if gone:
            around = job.read(first - 10, last + 10)
            assert around.startswith(whole[first - 10 : first] + b"\n[\xe2\x80\xa6 ")
            assert around.endswith(b"bytes were discarded here]\n" + whole[last : last + 10])
            assert b"discarded" in job.read(first + 10, last - 10)


async def test_what_an_old_job_printed_is_let_go_and_its_tail_stays() -> None:
    sandbox = Sandbox(MemoryDriver(commands={"big": Script("x" * 300_000 + "\nend\n"), "x": ""}))
    job = await sandbox.start("big")
    await job.wait()
    assert job.read(300_000) == b"\nend\n"
    for _ in range(40):
        await (await sandbox.start("x")).wait()
    with pytest.raises(ValueError, match="was removed"):
        job.read(0, 10)
    assert job.tail(1) == "end\n"


async def test_a_job_is_fed_while_it_runs() -> None:
    sandbox = Sandbox(Feeding(commands={"cat": Script(echo=True)}))
    job = await sandbox.start("cat")
    await job.send("a")
    await job.send(b"b")
    await job.send(None)
    assert await job.wait(5) == 0
    assert job.tail() == "ab"
    with pytest.raises(BrokenPipeError):
        await job.send("c")


async def test_input_given_at_the_start_is_fed_and_closed() -> None:
    job = await Sandbox(Feeding(commands={"cat": Script(echo=True)})).start("cat", stdin="all")
    assert await job.wait(5) == 0
    assert job.tail() == "all"


async def test_a_sandbox_that_cannot_feed_says_so() -> None:
    job = await Sandbox(MemoryDriver(commands={"cat": Script(echo=True)})).start("cat")
    with pytest.raises(Unavailable, match="takes no input"):
        await job.send("a")
    assert await job.wait(5) == 0


async def test_a_person_terminates_a_job_and_its_exit_code_stays() -> None:
    sandbox = Sandbox(MemoryDriver(commands={"x": Script("so far", hang=True)}))
    job = await sandbox.start("x")
    other = await sandbox.start("x")
    assert await sandbox.terminate(job.id)
    assert job.exit_code == 143
    assert job.completed is not None
    assert (job.completed.ended_by, job.completed.stdout) == ("user", "so far")
    assert other.running
    assert not await sandbox.terminate(job.id)
    await sandbox.close()


async def test_a_job_takes_term_and_kill_and_no_other_signal() -> None:
    driver = MemoryDriver(commands={"x": Script(hang=True, deaf=True)})
    job = await Sandbox(driver).start("x")
    await job.signal("SIGTERM")
    assert await job.wait(0.05) is None
    with pytest.raises(ValueError, match="TERM or KILL"):
        await job.signal("HUP")
    await job.signal("KILL")
    assert await job.wait(5) == 137
    await job.signal("KILL")


async def test_limits_hold_for_jobs() -> None:
    sandbox = Sandbox(MemoryDriver(commands={"x": Script("....", hang=True)}))
    timed = await sandbox.start("x", timeout=0.1)
    idle = await sandbox.start("x", idle_timeout=0.1)
    loud = await sandbox.start("x", max_output=3)
    assert [await job.wait(5) for job in (timed, idle, loud)] == [124, 124, 143]
    assert [job.completed.ended_by for job in (timed, idle, loud) if job.completed] == ["timeout", "idle", "output"]


async def test_a_job_survives_the_call_that_started_it_also_when_that_is_cancelled_later() -> None:
    sandbox = Sandbox(MemoryDriver(commands={"x": Script(hang=True)}))
    view = bind(sandbox, call_id="call-1")
    with anyio.move_on_after(0.05):
        job = await view.start("x")
        await anyio.sleep_forever()
    assert not await sandbox.terminate("call-1")
    await anyio.sleep(0.05)
    assert job.running
    await sandbox.close()


async def test_jobs_die_with_their_sandbox_and_say_why_nobody_knows_their_exit_code() -> None:
    driver = MemoryDriver(commands={"x": Script(hang=True, deaf=True)})
    sandbox = Sandbox(driver)
    job = await sandbox.start("x")
    await sandbox.close()
    assert not job.running
    assert await driver.processes[0].wait() == 137
    with pytest.raises(Unavailable, match="closed"):
        await job.wait(1)
    assert job.exit_code is None


async def test_a_job_whose_directory_is_missing_does_not_start() -> None:
    sandbox = Sandbox(MemoryDriver(commands={"x": ""}))
    with pytest.raises(FileNotFoundError):
        await sandbox.start("x", cwd="gone")
    assert sandbox.jobs() == []


async def test_very_old_jobs_are_let_go_and_running_ones_never() -> None:
    sandbox = Sandbox(MemoryDriver(commands={"x": "", "y": Script(hang=True)}))
    first = await sandbox.start("y")
    for _ in range(300):
        await (await sandbox.start("x")).wait()
    assert sandbox.job(first.id) is first
    assert len(sandbox.jobs()) <= 258
    await sandbox.close()
