"""Whoever raises leaves a traceback, in an event and in the logger `handrail`; the model never sees it."""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from handrail import (
    STANDARD,
    Agent,
    ApprovalRequest,
    Context,
    Decision,
    Event,
    Failure,
    Next,
    Policy,
    Result,
    Session,
    Step,
    TextDelta,
    Tool,
    ToolFailed,
    Unavailable,
    tool,
)  # fmt: skip
from handrail.testing import ScriptedModel
from tests.journeys.evidence import events_of, only_ending
from tests.toolkit import isolated_tools

pytestmark = pytest.mark.anyio
LIMIT = 16 << 10


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this")

    __repr__ = __str__


class Worse(Exception):
    """Even looking at it raises."""

    @property
    def __cause__(self) -> Any:
        raise RuntimeError("do not look")

    @property
    def __context__(self) -> Any:
        raise RuntimeError("do not look")

    __notes__ = __cause__


async def run(body: Callable[..., Any], arguments: Any = "{}", **options: Any) -> Event:
    async with Session([tool(body)], **options) as session:
        await session.call(body.__name__, arguments)
    return only_ending(session)


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "handrail"]


def in_thread() -> None:
    """Raise in a thread."""
    deep_inside()


async def in_task() -> None:
    """Raise in a task."""
    await anyio.lowlevel.checkpoint()
    deep_inside()


def deep_inside() -> None:
    raise ValueError("the planted error")


@pytest.mark.parametrize(
    ("body", "arguments"),
    [(tool(in_thread), {}), (tool(in_task), {}), (isolated_tools.ends, {"how": "raises"})],
    ids=["thread", "task", "process"],
)
async def test_a_bodys_exception_has_its_traceback_in_the_event_and_in_the_log(
    body: Tool, arguments: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with Session([body]) as session:
        result = await session.call(body.name, arguments)
    ended = only_ending(session)
    trace: str = ended.data["traceback"]
    assert trace.startswith("Traceback (most recent call last):\n")
    assert trace.splitlines()[-1].startswith("ValueError: ")
    assert "/handrail/" not in trace.splitlines()[1], "it begins with the user's own frame"
    assert "Traceback" not in json.dumps(ended.data["result"])
    assert "Traceback" not in json.dumps(result.to_envelope("x"))
    (record,) = logged(caplog)
    assert record.levelno == logging.ERROR
    assert trace.strip() in logging.Formatter().format(record)
    assert str(ended.call_id) in record.getMessage()
    assert record.getMessage().endswith(" raised ValueError")


async def test_an_isolated_tools_traceback_is_of_its_own_process() -> None:
    async with Session([isolated_tools.ends]) as session:
        await session.call("ends", {"how": "raises"})
    trace = only_ending(session).data["traceback"]
    assert 'isolated_tools.py", line' in trace
    assert "in ends" in trace
    assert "pickle" not in trace


async def test_what_an_isolated_process_printed_before_it_died_is_kept() -> None:
    async with Session([isolated_tools.dies]) as session:
        await session.call("dies", {"code": 7})
    assert "last words" in only_ending(session).data["traceback"]


def missing() -> None:
    """Read a file."""
    raise FileNotFoundError(2, "No such file or directory", "/nowhere")


def gone() -> None:
    """Use what is gone."""
    raise Unavailable("The service is gone.")


def leaves() -> None:
    """Leave the program."""
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("body", "kind", "level"),
    [
        (missing, "not_found", logging.WARNING),
        (gone, "unavailable", logging.WARNING),
        (leaves, "execution_error", logging.ERROR),
    ],
)
async def test_an_exception_that_is_an_answer_is_a_warning(
    body: Any, kind: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    ended = await run(body)
    assert ended.data["kind"] == kind
    assert f"in {body.__name__}" in ended.data["traceback"]
    assert [record.levelno for record in logged(caplog)] == [level]


def answers() -> None:
    """Fail on purpose."""
    raise ToolFailed(Failure("not_found", "There are no plums."))


def answers_because() -> None:
    """Fail on purpose, for a reason."""
    try:
        deep_inside()
    except ValueError as error:
        raise ToolFailed(Failure("unavailable", "The shop is closed.")) from error


async def test_a_failure_on_purpose_has_a_traceback_only_if_it_names_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert "traceback" not in (await run(answers)).data
    assert logged(caplog) == []
    assert "the planted error" in (await run(answers_because)).data["traceback"]
    assert len(logged(caplog)) == 1


async def test_a_call_that_succeeds_has_no_traceback_and_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fine() -> int:
        return 1

    assert "traceback" not in (await run(fine)).data
    assert caplog.records == []


async def test_an_approver_that_raises_leaves_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def asked(request: ApprovalRequest) -> Decision:
        deep_inside()
        return Decision.approve()

    async with Session([tool(in_task)], approver=asked, policy=Policy(ask=["in_task"])) as session:
        await session.call("in_task")
    (settled,) = events_of(session, "approval_settled")
    assert settled.data["decision"] == "failed"
    assert "in deep_inside" in settled.data["traceback"]
    assert "Traceback" not in json.dumps(only_ending(session).data["result"])
    assert len(logged(caplog)) == 1


async def test_a_gate_that_raises_leaves_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(step: Step, proceed: Next) -> Result:
        deep_inside()
        return await proceed(step)

    ended = await run(in_task, gates=(STANDARD[0], broken, *STANDARD[1:]))
    assert "in deep_inside" in ended.data["traceback"]
    assert len(logged(caplog)) == 1


def plain_reader(event: Event) -> None:
    deep_inside()


async def async_reader(event: Event) -> None:
    deep_inside()


@pytest.mark.parametrize("reader", [plain_reader, async_reader])
async def test_a_reader_that_raises_leaves_its_traceback(reader: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def fine() -> int:
        return 1

    async with Session([fine], readers=[reader]) as session:
        await session.call("fine")
    (warning,) = events_of(session, "warning")
    assert "in deep_inside" in warning.data["traceback"]
    assert "Traceback" not in warning.data["message"]
    assert len(logged(caplog)) == 1


@pytest.mark.parametrize("raised", [ValueError("no route"), Hostile()])
async def test_a_model_that_raises_leaves_its_traceback(raised: Exception, caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(ScriptedModel([raised]))
    outcome = await agent.run("Go.")
    assert outcome.reason == "model_error"
    (ended,) = events_of(agent.session, "run_ended")
    assert "scripted.py" in ended.data["traceback"]
    assert "Traceback" not in outcome.text
    assert len(logged(caplog)) == 1


async def test_work_that_raises_after_its_answer_leaves_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    go = threading.Event()

    @tool(timeout=0.05)
    def slow() -> None:
        """Raise too late."""
        go.wait()
        deep_inside()

    async with Session([slow]) as session:
        assert (await session.call("slow")).kind == "timeout"
        go.set()
        while not (late := events_of(session, "call_late")):  # noqa: ASYNC110 - a thread writes it
            await anyio.sleep(0.01)
    assert "in deep_inside" in late[0].data["traceback"]
    assert "traceback" not in only_ending(session).data
    assert len(logged(caplog)) == 1


async def test_the_exception_of_a_body_that_hides_its_cancellation_is_not_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(timeout=0.05)
    async def stubborn() -> None:
        """Raise when it is ended."""
        try:
            await anyio.sleep_forever()
        finally:
            deep_inside()

    async with Session([stubborn]) as session:
        assert (await session.call("stubborn")).kind == "timeout"
    assert "in deep_inside" in only_ending(session).data["traceback"]
    assert len(logged(caplog)) == 1


async def test_a_nested_calls_exception_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def outer(context: Context) -> Any:
        return await context.use("in_task")

    async with Session([outer, in_task]) as session:
        await session.call("outer")
    traces = {event.call_id: event.data.get("traceback") for event in events_of(session, "call_ended")}
    assert [trace is None for trace in traces.values()] == [False, True]
    assert len(logged(caplog)) == 1


# Sizes and hostility


def endless(depth: int = 0) -> int:
    return endless(depth + 1) + other(depth)


def other(depth: int) -> int:
    return endless(depth)


def huge() -> None:
    """Raise with 20 MB."""
    raise ValueError("begins" + "ü" * 10_000_000 + "ends")


def half() -> None:
    """Raise with half a character."""
    raise ValueError("half \ud83d")


def recursive() -> None:
    """Recurse for ever."""
    endless()


def many_groups() -> None:
    """Raise groups of groups."""
    error: Exception = ValueError("innermost")
    for _ in range(200):
        error = ExceptionGroup("group " * 50, [error] * 30)
    raise error


def hostile() -> None:
    """Raise what cannot be shown."""
    raise Hostile


def worse() -> None:
    """Raise what cannot even be looked at."""
    raise Worse("look away")


@pytest.mark.parametrize("body", [huge, half, recursive, many_groups, hostile, worse])
async def test_a_traceback_is_at_most_16_kib_of_valid_text(body: Any, caplog: pytest.LogCaptureFixture) -> None:
    ended = await run(body)
    assert ended.data["kind"] == "execution_error"
    trace: str = ended.data["traceback"]
    assert 0 < len(trace.encode("utf-8")) <= LIMIT
    (record,) = logged(caplog)
    assert len(logging.Formatter().format(record).encode("utf-8")) <= LIMIT + 2_000


async def test_a_long_traceback_keeps_its_head_and_its_tail() -> None:
    trace = (await run(huge)).data["traceback"]
    assert "in huge" in trace
    assert "ValueError: begins" in trace
    assert trace.strip().endswith("üends")
    assert "left out" in trace


class Raising(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("the handler is broken")


async def test_a_log_handler_that_raises_hurts_no_call() -> None:
    logger, handler = logging.getLogger("handrail"), Raising()
    logger.addHandler(handler)
    try:
        ended = await run(in_task)
    finally:
        logger.removeHandler(handler)
    assert "in deep_inside" in ended.data["traceback"]


PROGRAM = """
import logging, sys
from handrail import Session, run_sync, tool
{configure}
@tool
def broken() -> None:
    "Raise."
    raise ValueError("planted" + " error")

async def main() -> None:
    async with Session([broken]) as session:
        await session.call("broken")

run_sync(main)
"""


def stderr_of(tmp_path: Path, configure: str) -> str:
    (tmp_path / "program.py").write_text(PROGRAM.format(configure=configure))
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stderr


def test_nothing_is_printed_unless_the_program_configures_logging_and_then_once(tmp_path: Path) -> None:
    assert stderr_of(tmp_path, "") == ""
    assert stderr_of(tmp_path, "logging.basicConfig()").count("ValueError: planted error") == 1


class Breaks:
    """A model whose stream ends in the middle."""

    async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[Any]:
        for _ in range(2):
            yield TextDelta("a")
        deep_inside()


async def test_a_stream_that_breaks_leaves_its_traceback() -> None:
    agent = Agent(Breaks())
    await agent.run("Go.")
    (ended,) = events_of(agent.session, "run_ended")
    assert "in deep_inside" in ended.data["traceback"]
