"""`bash`, `process` and `run_code`: what ran, what it printed and how it ended, whoever ended it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import (
    Budget,
    Context,
    Event,
    Failure,
    Policy,
    Sandbox,
    Session,
    Success,
    builtin_tools,
    tool,
)
from handrail.contract.driver import Chunk, Command
from handrail.contract.limits import Caps
from handrail.drivers.host import open_host
from handrail.drivers.memory import MemoryDriver, MemoryProcess, Script
from handrail.drivers.posix import open_posix
from tests.tools.world import REAL, World, in_time, world

pytestmark = pytest.mark.anyio
OPEN = Policy(mode="open")


async def test_a_command_answers_with_everything_that_is_known_of_it(real: World) -> None:
    value = await real.value("bash", command="echo out; echo err >&2; exit 3")
    assert value.pop("duration_ms") >= 0
    assert value == {
        "exit_code": 3, "stdout": "out\n", "stderr": "err\n", "cwd": real.sandbox.workspace, "ended_by": "exit",
    }  # fmt: skip


async def test_several_lines_quotes_and_here_documents_work(real: World) -> None:
    command = "for n in 1 2; do\n  echo \"n is '$n'\"\ndone\ncat <<'END'\n$HOME `x`\nEND\n# comment\n"
    assert (await real.value("bash", command=command))["stdout"] == "n is '1'\nn is '2'\n$HOME `x`\n"


async def test_a_command_of_two_megabytes_works(real: World) -> None:
    text = "x" * (2 << 20)
    value = await real.value("bash", command=f"cat > f <<'END'\n{text}\nEND\nwc -c < f")
    assert value["stdout"].split() == [str(len(text) + 1)]


async def test_pipefail_and_its_notes(real: World) -> None:
    assert (await real.value("bash", command="false | cat"))["exit_code"] == 1
    piped = await real.call("bash", command="yes | head -1")
    assert (piped.value["exit_code"], piped.value["stdout"]) == (141, "y\n")
    assert any("141 is harmless" in note for note in piped.warnings)
    silent = await real.call("bash", command="printf '' | cat")
    assert any("The pipeline printed nothing at all" in note for note in silent.warnings)
    failed = await real.call("bash", command="printf '' | grep x")
    assert (failed.value["exit_code"], failed.warnings) == (1, ())  # the exit code says it
    hidden = await real.call("bash", command="ls /nowhere 2>/dev/null | cat")
    assert ["errors went to /dev/null" in note for note in hidden.warnings] == [True]


async def test_each_call_is_a_new_shell_and_only_files_are_kept(real: World) -> None:
    await real.value("bash", command="mkdir d; cd d; X=1; export X; echo kept > f")
    value = await real.value("bash", command='echo "[$X] $PWD"; cat d/f')
    assert value["stdout"] == f"[] {real.sandbox.workspace}\nkept\n"
    assert (await real.value("bash", command="cat f", cwd="d"))["stdout"] == "kept\n"


async def test_what_is_left_running_is_ended_and_that_is_said(real: World) -> None:
    with in_time():
        result = await real.call("bash", command="sleep 600 & echo started")
    assert (result.value["exit_code"], result.value["stdout"]) == (0, "started\n")
    assert any("background" in note for note in result.warnings)


@pytest.mark.parametrize("limit", ["timeout", "idle_timeout"])
async def test_a_limit_keeps_what_was_printed(real: World, limit: str) -> None:
    with in_time():
        failure = await real.failure(
            "bash", **{"command": "echo before; echo bad >&2; setsid sleep 600 & sleep 600", limit: 1}
        )
    assert (failure.kind, failure.retryable) == ("timeout", True)
    assert failure.data is not None
    assert (failure.data["exit_code"], failure.data["stdout"], failure.data["stderr"]) == (124, "before\n", "bad\n")
    assert failure.data["ended_by"] == ("timeout" if limit == "timeout" else "idle")
    assert "1 s" in failure.message


async def test_output_resets_the_idle_limit(real: World) -> None:
    value = await real.value("bash", command="for n in 1 2 3 4; do echo $n; sleep 1; done", idle_timeout=3)
    assert value["stdout"] == "1\n2\n3\n4\n"


async def test_a_job_gives_its_real_exit_code_long_after_its_end(real: World) -> None:
    started = await real.value("bash", command="echo one; echo two >&2; exit 7", background=True)
    job = started["job"]
    assert (started["background"], started["cwd"]) == (True, real.sandbox.workspace)
    assert job in started["log"]
    ended = await real.value("process", action="wait", job=job)
    assert (ended["running"], ended["exit_code"], ended["ended_by"]) == (False, 7, "exit")
    for number in range(40):  # other work comes and goes
        await real.value("bash", command=f"exit {number % 3}", background=number % 2 == 0)
    assert (await real.value("process", action="poll", job=job))["exit_code"] == 7
    assert sorted((await real.value("process", action="tail", job=job))["text"].split()) == ["one", "two"]
    assert (await real.value("process", action="tail", job=job, lines=1))["text"].strip() in ("one", "two")
    listed = (await real.value("process", action="list"))["jobs"]
    assert [each["exit_code"] for each in listed if each["job"] == job] == [7]
    assert (await real.value("process", action="kill", job=job))["killed"] is False


async def test_any_range_of_a_jobs_output_can_be_read_in_the_order_in_which_it_was_printed(real: World) -> None:
    command = "echo one; sleep 0.3; echo two >&2; sleep 0.3; printf 'thr€e\\n'"
    job = (await real.value("bash", command=command, background=True))["job"]
    await real.value("process", action="wait", job=job)
    whole = await real.value("process", action="output", job=job)
    assert (whole["text"], whole["start"], whole["end"]) == ("one\ntwo\nthr€e\n", 0, 16)
    assert (whole["output_bytes"], whole["exit_code"]) == (16, 0)
    part = await real.value("process", action="output", job=job, start=4, end=8)
    assert (part["text"], part["start"], part["end"]) == ("two\n", 4, 8)
    split = await real.value("process", action="output", job=job, start=8, end=12)  # inside the euro sign
    assert (split["text"], split["end"]) == ("thr", 11)
    assert (await real.value("process", action="output", job=job, start=11, end=500))["text"] == "€e\n"
    for arguments, field in (({"start": 17}, "start"), ({"start": 4, "end": 4}, "end")):
        failure = await real.failure("process", action="output", job=job, **arguments)
        assert (failure.kind, failure.field) == ("invalid_args", field)


async def test_a_long_output_is_read_page_by_page_also_while_the_job_runs(real: World) -> None:
    job = (await real.value("bash", command="seq 1 60000; touch said; sleep 600", background=True))["job"]
    whole = command_output(60_000)
    with in_time(60):
        while (await real.value("process", action="wait", job=job, timeout=1))["output_bytes"] < len(whole):
            pass
    pages, start = [], 0
    while start < len(whole):
        result = await real.call("process", action="output", job=job, start=start)
        assert isinstance(result, Success)
        assert result.value["running"] is True
        pages.append(result.value["text"])
        start = result.value["end"]
        assert bool(result.warnings) == (start < len(whole))
        assert start == len(whole) or f"start={start}" in result.warnings[0]
    assert len(pages) > 2
    assert "".join(pages) == whole


async def test_reading_on_passes_over_what_was_discarded_and_says_so(tmp_path: Path) -> None:
    sandbox = Sandbox(await open_host(workspace=str(tmp_path)))
    async with Session(
        builtin_tools(), sandbox=sandbox, policy=Policy(mode="open"), caps=Caps(spool=256 << 10)
    ) as session:
        job = (await session.call("bash", {"command": "seq 1 300000", "background": True})).value["job"]
        await session.call("process", {"action": "wait", "job": job, "timeout": 600})
        pages, start, notes = [], 0, ""
        while start < 2_000_000 and len(pages) < 30:
            page: Any = await session.call("process", {"action": "output", "job": job, "start": start})
            pages.append(page.value["text"])
            start = page.value["end"]
            notes += " ".join(page.warnings)
            if start == page.value["output_bytes"]:
                break
    assert start == len(command_output(300_000))
    assert pages[0].startswith("1\n2\n")
    assert pages[-1].endswith("299999\n300000\n")
    whole = "".join(pages)
    assert "discarded" not in whole, "nothing stands in the text for what is missing"
    assert len(whole) < start
    assert re.search(r"Bytes 131,072 to [\d,]+ were discarded", notes)


async def test_a_value_of_a_program_that_is_larger_than_what_is_kept_is_said_to_be_lost(tmp_path: Path) -> None:
    sandbox = Sandbox(await open_host(workspace=str(tmp_path)))
    async with Session(
        builtin_tools(), sandbox=sandbox, policy=Policy(mode="open"), caps=Caps(spool=256 << 10)
    ) as session:
        lost = await session.call("run_code", {"code": "'x' * 300_000"})
        kept = await session.call("run_code", {"code": "'x' * 200_000"})
    assert (lost.ok, "text" in lost.value) == (True, False)
    assert any("has more than 262,144 bytes and is lost" in warning for warning in lost.warnings)
    assert kept.value["text"].startswith("'xxx"), "the control"


async def test_a_shortened_tail_names_the_range_that_was_left_out(real: World) -> None:
    job = (await real.value("bash", command="seq 1 60000", background=True))["job"]
    await real.value("process", action="wait", job=job)
    result = await real.call("process", action="tail", job=job, lines=5_000)
    assert isinstance(result, Success)
    whole = command_output(60_000)
    assert (whole[result.value["start"] :], result.value["end"]) == (result.value["text"], len(whole))
    assert result.warnings == (), "5,000 lines fit"
    job = (await real.value("bash", command="seq -f %099g 1 3000", background=True))["job"]
    await real.value("process", action="wait", job=job)
    result = await real.call("process", action="tail", job=job, lines=2_000)
    assert isinstance(result, Success)
    named = re.search(r'process\(action="output", job="(.+)", start=(\d+), end=(\d+)\)', result.warnings[0])
    assert named
    assert (named[1], int(named[3])) == (job, result.value["start"])
    before = await real.value("process", action="output", job=job, start=int(named[2]), end=int(named[3]))
    whole = "".join(f"{number:099}\n" for number in range(1, 3_001))
    assert result.value["text"] == whole[int(named[3]) :], "whole lines"
    assert before["text"] == whole[int(named[2]) : int(named[3])]


async def test_a_job_runs_on_is_seen_and_is_killed_with_its_tree(real: World) -> None:
    command = "setsid sh -c 'while :; do echo $$ > alive; sleep 0.1; done' & echo up; wait"
    job = (await real.value("bash", command=command, background=True))["job"]
    with in_time():
        while not (real.root / "alive").exists():  # noqa: ASYNC110 - the one that makes it is another process
            await anyio.sleep(0.05)
        polled = await real.value("process", action="poll", job=job)
        assert (polled["running"], polled["exit_code"]) == (True, None)
        waited = await real.value("process", action="wait", job=job, timeout=1)
        assert waited["running"] is True
        killed = await real.value("process", action="kill", job=job)
    assert (killed["killed"], killed["running"], killed["ended_by"]) == (True, False, "model")
    assert "killed_by" not in killed
    (real.root / "alive").unlink()
    await anyio.sleep(0.4)
    assert not (real.root / "alive").exists(), "the setsid child lives on"


@pytest.mark.parametrize("who", ["terminate", "process"])
async def test_a_job_that_a_person_ended_says_so(real: World, who: str) -> None:
    job = (await real.value("bash", command="echo begun; sleep 600", background=True))["job"]
    if who == "terminate":
        assert await real.session.terminate(job)
    else:
        assert (await real.session.call("process", {"action": "kill", "job": job}, origin="user")).ok
    polled = await real.value("process", action="poll", job=job)
    assert (polled["running"], polled["ended_by"], polled["killed_by"]) == (False, "user", "user")
    listed = (await real.value("process", action="list"))["jobs"]
    assert [(each["ended_by"], each["killed_by"]) for each in listed] == [("user", "user")]


async def job_with_input(here: World, command: str) -> str:
    value = await here.value("bash", command=command, background=True, input=True)
    return str(value["job"])


async def printed(here: World, job: str, text: str) -> None:
    """Wait until the job has printed this."""
    with in_time():
        while text not in (await here.value("process", action="tail", job=job))["text"]:
            await here.value("process", action="wait", job=job, timeout=0.1)


async def test_a_job_with_input_reads_what_is_sent_until_it_is_closed(real: World) -> None:
    job = await job_with_input(real, "while read -r line; do echo got $line; done; echo end")
    sent = await real.value("process", action="send", job=job, text="one\n")
    assert (sent["bytes_sent"], sent["input_closed"], sent["running"]) == (4, False, True)
    await printed(real, job, "got one")
    await real.value("process", action="send", job=job, text="zwö\n", close=True)
    assert (await real.value("process", action="wait", job=job))["exit_code"] == 0
    assert (await real.value("process", action="tail", job=job))["text"] == "got one\ngot zwö\nend\n"
    late = await real.failure("process", action="send", job=job, text="three\n")
    assert (late.kind, "ended with exit code 0" in late.message) == ("execution_error", True)


async def test_large_input_arrives_whole(real: World) -> None:
    job = await job_with_input(real, "wc -c")
    await real.value("process", action="send", job=job, text="x" * 3_000_000, close=True)
    await real.value("process", action="wait", job=job)
    assert (await real.value("process", action="tail", job=job))["text"].strip() == "3000000"


async def test_a_job_that_does_not_read_does_not_keep_the_sender(real: World) -> None:
    job = await job_with_input(real, "sleep 600")
    with in_time():
        failure = await real.failure("process", action="send", job=job, text="x" * 3_000_000, timeout=0.5)
    assert (failure.kind, failure.data["running"]) == ("timeout", True)
    assert "within 0.5 s" in failure.message
    assert (await real.value("process", action="kill", job=job))["killed"]


async def test_a_job_that_closed_its_input_says_so(real: World) -> None:
    job = await job_with_input(real, "exec <&-; echo closed; sleep 600")
    await printed(real, job, "closed")
    failure = await real.failure("process", action="send", job=job, text="x\n")
    assert (failure.kind, "closed its input" in failure.message) == ("execution_error", True)


async def test_a_job_without_input_reads_an_empty_one_and_cannot_be_sent_any(real: World) -> None:
    job = (await real.value("bash", command="cat; echo end; sleep 600", background=True))["job"]
    await printed(real, job, "end")
    failure = await real.failure("process", action="send", job=job, text="x\n")
    assert (failure.kind, failure.field, "input=true" in failure.message) == ("invalid_args", "job", True)
    failure = await real.failure("bash", command="cat", input=True)
    assert (failure.kind, failure.field, "background=true" in failure.message) == ("invalid_args", "input", True)
    job = await job_with_input(real, "cat")
    assert (await real.failure("process", action="send", job=job)).field == "text"


async def test_limits_are_numbers_of_seconds_with_fractions(real: World) -> None:
    for name, given in (
        ("bash", {"command": "echo a; sleep 600"}),
        ("run_code", {"code": "import time; time.sleep(600)"}),
    ):
        failure = await real.failure(name, **given, timeout=0.3)
        assert (failure.kind, "longer than 0.3 s" in failure.message) == ("timeout", True)
    silent = await real.failure("bash", command="sleep 600", idle_timeout=0.4)
    assert "for 0.4 s" in silent.message
    assert (await real.value("bash", command="echo a", timeout=86_400))["stdout"] == "a\n"
    job = (await real.value("bash", command="sleep 600", background=True))["job"]
    assert (await real.value("process", action="wait", job=job, timeout=0.1))["running"]


ENDED = (
    ("bash", {"command": "sleep 600", "timeout": 0.2}, Budget()),
    ("bash", {"command": "sleep 600", "idle_timeout": 0.2}, Budget()),
    ("bash", {"command": "sleep 600"}, Budget(seconds=0.5)),
    ("run_code", {"code": "sleep 600", "language": "bash", "timeout": 0.2}, Budget()),
)


@pytest.mark.parametrize("open_driver", [open_host, open_posix])
@pytest.mark.parametrize(("name", "arguments", "budget"), ENDED)
async def test_the_message_claims_no_wider_kill_than_the_driver_enforces(
    tmp_path: Path, open_driver: Any, name: str, arguments: dict[str, Any], budget: Budget
) -> None:
    async with (
        Sandbox(await open_driver(workspace=str(tmp_path))) as sandbox,
        Session([*builtin_tools()], sandbox=sandbox, policy=OPEN, budget=budget) as session,
    ):
        failure = await session.call(name, arguments)
    assert isinstance(failure, Failure)
    whole = open_driver is open_host
    assert ("killed with all it started" in failure.message) == whole, failure.message
    assert ("killed with its process group" in failure.message) != whole, failure.message


class NeverEnds(MemoryProcess):
    """Prints on, whatever it is told."""

    async def output(self) -> AsyncIterator[Chunk]:
        yield Chunk("stdout", b"x" * 200_000)
        while True:
            await anyio.lowlevel.checkpoint()
            yield Chunk("stdout", b"y")


class Runaway(MemoryDriver):
    features = frozenset({*MemoryDriver.features, "exec"})

    async def start(self, command: Command) -> MemoryProcess:
        return NeverEnds("1", Script(hang=True, deaf=True), command.input)


async def test_a_command_that_prints_on_after_it_was_killed_is_answered_and_its_output_so_far_is_kept() -> None:
    async with Sandbox(Runaway()) as sandbox, Session([*builtin_tools()], sandbox=sandbox, policy=OPEN) as session:
        with anyio.fail_after(60):
            failure = await session.call("bash", {"command": "x", "timeout": 0.2})
        assert isinstance(failure, Failure)
        assert "may still be running" in failure.message
        ref = re.search(r'ref="(\w+)"|full output: (\w+)', str(failure.data))
        assert ref, failure.data["stdout"][19_000:21_000]
        kept = await session.call("read_artifact", {"ref": ref[1] or ref[2], "start": 199_990, "length": 20})
        assert "x" * 10 + "y" in str(kept.value), kept


async def test_a_job_is_not_ended_by_the_timeout_of_commands(real: World) -> None:
    job = (await real.value("bash", command="sleep 1.3; echo done", background=True, timeout=1))["job"]
    ended = await real.value("process", action="wait", job=job)
    assert (ended["exit_code"], ended["ended_by"]) == (0, "exit")


@asynccontextmanager
async def running(here: World, name: str, arguments: dict[str, Any]) -> AsyncIterator[list[Any]]:
    """A call that goes on beside the test; its result comes into the list."""
    results: list[Any] = []

    async def call() -> None:
        results.append(await here.session.call(name, arguments, id="long"))

    with in_time():
        async with anyio.create_task_group() as beside:
            beside.start_soon(call)
            yield results


@pytest.mark.parametrize("driver", REAL)
@pytest.mark.parametrize("tool", ["bash", "run_code"])
async def test_a_person_ends_a_command_and_what_it_printed_is_kept(driver: str, tool: str, tmp_path: Path) -> None:
    shown, printed = anyio.Event(), ""

    async def watch(event: Event) -> None:
        nonlocal printed
        if event.type == "call_output":  # Python writes the end of a line by itself
            printed += event.data["text"]
            if printed == "begun\n":
                shown.set()

    code = "echo begun; sleep 600" if tool == "bash" else "import time; print('begun', flush=True); time.sleep(600)"
    async with world(driver, tmp_path / "work", readers=[watch]) as here:
        async with running(here, tool, {"command" if tool == "bash" else "code": code}) as results:
            await shown.wait()
            assert await here.session.terminate("long")
        failure = results[0]
    assert isinstance(failure, Failure)
    assert failure.data is not None
    assert (failure.kind, failure.data["killed_by"], failure.data["stdout"]) == ("cancelled", "user", "begun\n")
    assert (failure.data["ended_by"], failure.retryable) == ("user", False)


async def test_a_person_ends_a_call_that_waits_for_a_job(real: World) -> None:
    job = (await real.value("bash", command="sleep 600", background=True))["job"]
    async with running(real, "process", {"action": "wait", "job": job, "timeout": 600}) as results:
        await anyio.sleep(0.2)
        assert await real.session.terminate("long")
    assert results[0].kind == "cancelled"
    assert (await real.value("process", action="poll", job=job))["running"] is True


async def ended_by_the_budget(here: World, name: str, arguments: dict[str, Any]) -> Failure:
    """What became of a call in a run of two seconds, which it would have outlived by far."""
    tools, policy = here.session.toolbox, Policy(mode="open")
    async with Session(tools, sandbox=here.sandbox, policy=policy, budget=Budget(seconds=2)) as session:
        with in_time(60):
            result = await session.call(name, arguments)
        assert not result.ok
        assert (result.kind, result.retryable) == ("budget_exhausted", False)
        assert re.search(r"of this run (are used up|is spent)", result.message)
        assert (await session.call("bash", {"command": "true"})).kind == "budget_exhausted"
    assert (await here.value("bash", command="echo usable"))["stdout"] == "usable\n"
    return result


@pytest.mark.parametrize("tool", ["bash", "run_code"])
async def test_a_command_that_the_budgets_seconds_end_keeps_what_it_printed(real: World, tool: str) -> None:
    line = "echo begun; echo bad >&2; touch begun; setsid sh -c 'while :; do touch alive; sleep 0.1; done' & sleep 600"
    arguments = {"command": line} if tool == "bash" else {"code": line, "language": "bash", "timeout": 600}
    failure = await ended_by_the_budget(real, tool, arguments)
    assert failure.data is not None
    assert (failure.data["stdout"], failure.data["stderr"]) == ("begun\n", "bad\n")
    assert (failure.data["exit_code"], failure.data["ended_by"]) == (124, "budget")
    (real.root / "alive").unlink()
    await anyio.sleep(0.4)
    assert not (real.root / "alive").exists(), "the setsid child lives on"


async def test_a_command_inside_another_call_keeps_what_it_printed_when_the_budget_ends_both(real: World) -> None:
    inner: list[Any] = []

    @tool
    async def outer(context: Context) -> None:
        """Run a command, then stay."""
        inner.append(await context.use("bash", {"command": "echo begun; sleep 600"}))
        await anyio.sleep(600)

    real.session.toolbox.add(outer)
    await ended_by_the_budget(real, "outer", {})
    assert (inner[0].kind, inner[0].data["stdout"], inner[0].data["ended_by"]) == (
        "budget_exhausted",
        "begun\n",
        "budget",
    )


async def test_waiting_for_a_job_ends_with_the_budgets_seconds_and_the_job_goes_on(real: World) -> None:
    job = (await real.value("bash", command="sleep 600", background=True))["job"]
    failure = await ended_by_the_budget(real, "process", {"action": "wait", "job": job, "timeout": 600})
    assert failure.data is not None
    assert (failure.data["job"], failure.data["running"]) == (job, True)
    assert (await real.value("process", action="poll", job=job))["running"] is True


async def test_live_output_comes_while_the_command_runs_and_breaks_no_character(tmp_path: Path) -> None:
    texts: list[str] = []
    first = anyio.Event()

    async def watch(event: Event) -> None:
        if event.type == "call_output":
            texts.append(event.data["text"])
            first.set()

    command = (
        r"printf 'a\xe2'; sleep 0.3; printf '\x82'; sleep 0.3; printf '\xac!\n'; until [ -e go ]; do sleep 0.05; done"
    )
    async with (
        world("jail", tmp_path / "work", readers=[watch]) as here,
        running(here, "bash", {"command": command}) as results,
    ):
        await first.wait()
        assert not results
        await anyio.sleep(1)
        await here.put("go", "")
    assert "".join(texts) == "a€!\n"
    assert results[0].value["stdout"] == "a€!\n"


async def test_whatever_was_cut_can_be_read(real: World) -> None:
    command = "seq 1 60000; seq 1 9000 >&2; echo '[… 5 of 10 characters left out]'; exit 3"
    result = await real.call("bash", command=command)
    assert isinstance(result, Success)
    value = result.value
    assert (value["exit_code"], value["stdout"][:4]) == (3, "1\n2\n")
    assert value["stdout"].endswith("60000\n[… 5 of 10 characters left out]\n")
    whole = {"stdout": command_output(60_000) + "[… 5 of 10 characters left out]\n", "stderr": command_output(9_000)}
    for stream, text in whole.items():
        mark = re.search(r"\[… ([\d,]+) of ([\d,]+) characters left out; full output: (a_\w+)\]", value[stream])
        assert mark, value[stream][:300]
        assert int(mark[2].replace(",", "")) == len(text)
        assert await read_all(real, mark[3]) == text


def command_output(last: int) -> str:
    return "".join(f"{number}\n" for number in range(1, last + 1))


async def read_all(here: World, ref: str) -> str:
    pages, start = [], 0
    while True:
        page = await here.value("read_artifact", ref=ref, start=start)
        pages.append(page["text"])
        if "next_start" not in page:
            return "".join(pages)
        start = page["next_start"]


async def test_cut_output_of_a_command_that_ran_out_of_time_can_be_read(real: World) -> None:
    failure = await real.failure("bash", command="seq 1 30000; sleep 600", timeout=1)
    assert failure.data is not None
    mark = re.search(r"full output: (a_\w+)\]", failure.data["stdout"])
    assert mark
    assert await read_all(real, mark[1]) == command_output(30_000)


@pytest.mark.parametrize(
    ("language", "code", "stdout"),
    [
        ("python", "print(sum([1, 2]))", "3\n"),
        ("bash", "echo $((1 + 2))", "3\n"),
        ("PYTHON", "print(1)", "1\n"),
        ("sh", "echo 1", "1\n"),
    ],
)
async def test_a_program_is_run_and_leaves_nothing_behind(real: World, language: str, code: str, stdout: str) -> None:
    value = await real.value("run_code", code=code, language=language)
    assert (value["stdout"], value["error"], value["exit_code"], "text" in value) == (stdout, None, 0, False)
    assert await real.files() == {}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("1 + 2", "3"),
        ("x = [1]\nx * 2  # twice", "[1, 1]"),
        ("'é\\n'", r"'é\n'"),
        ("None", None),
        ("x = 1", None),
        ("print('a')", None),
        ("", None),
        ("# nothing", None),
        ("def f():\n    return 1\nf()\n", "1"),
        ("from __future__ import annotations\n__name__", "'__main__'"),
        ("from dataclasses import dataclass\n@dataclass\nclass A:\n    a: int\nA(1)", "A(a=1)"),
        ("import pickle\nclass A: pass\ntype(pickle.loads(pickle.dumps(A()))).__name__", "'A'"),
    ],
)
async def test_the_last_expression_of_a_python_program_is_its_text(real: World, code: str, text: str | None) -> None:
    value = await real.value("run_code", code=code or "\n")
    assert (value.get("text"), value["error"], value["stderr"]) == (text, None, "")
    assert value["stdout"] == ("a\n" if "print" in code else "")
    assert await real.files() == {}


async def test_a_traceback_is_in_error_alone_with_the_lines_of_the_code(real: World) -> None:
    value = await real.value("run_code", code="print('x')\n\ndef f():\n    raise ValueError('no good')\nf()\n1")
    assert (value["stdout"], value["stderr"], value["exit_code"], "text" in value) == ("x\n", "", 1, False)
    for part in ("line 5, in <module>", "line 4, in f", "raise ValueError('no good')", "ValueError: no good"):
        assert part in value["error"]
    assert "_run" not in value["error"]
    syntax = await real.value("run_code", code="x = 1\ny = (\n")
    assert ("line 2" in syntax["error"], "SyntaxError" in syntax["error"], syntax["stderr"]) == (True, True, "")
    shown = await real.value("run_code", code="class A:\n    def __repr__(self): return 1 / 0\nA()")
    assert "line 2, in __repr__" in shown["error"]


async def test_how_a_program_ends_by_itself_is_kept(real: World) -> None:
    value = await real.value("run_code", code="import sys\nprint('e', file=sys.stderr)\nsys.exit(3)")
    assert (value["exit_code"], value["stderr"], value["error"]) == (3, "e\n", "exit code 3")
    quiet = await real.value("run_code", code="exit 4", language="bash")
    assert quiet["error"] == "exit code 4"
    slow = await real.failure("run_code", code="import time\nprint('x', flush=True)\ntime.sleep(600)", timeout=1)
    assert (slow.kind, slow.data["stdout"], await real.files()) == ("timeout", "x\n", {})


async def test_a_large_value_is_cut_and_kept_whole(real: World) -> None:
    result = await real.call("run_code", code="'x' * 200_000")
    assert len(result.value["text"]) < 50_000
    mark = re.search(r"full output: (a_[0-9a-f]{32})\]", result.value["text"])
    assert mark is not None
    assert await read_all(real, mark[1]) == repr("x" * 200_000)


async def test_children_of_multiprocessing_find_the_program(real: World) -> None:
    code = (
        "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n"
        "    with m.get_context('spawn').Pool(1) as pool: found = pool.map(f, [2, 3])\n    print(found)\n"
    )
    value = await real.value("run_code", code=code)
    assert (value["stdout"], value["error"]) == ("[4, 9]\n", None), value


async def test_a_list_of_things_to_do_is_replaced_whole(anywhere: World) -> None:
    first = [{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}]
    assert await anywhere.value("todo", items=first) == {"items": first, "left": 1}
    assert await anywhere.value("todo", items=[]) == {"items": [], "left": 0}


async def test_the_work_ends_with_a_summary_and_a_question_waits_for_its_answer(anywhere: World) -> None:
    assert await anywhere.value("complete", summary="Fixed the parser.") == {"completed": True}
    assert anywhere.person.summaries == ["Fixed the parser."]
    assert await anywhere.value("ask_user", question="Red?", choices=["yes", "no"]) == {"answer": "Red? ['yes', 'no']"}
