"""Spans of calls: named and nested as the conventions want, one for each call, and silent about what was said."""

import json
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, exception_attributes
from opentelemetry.trace import SpanKind, StatusCode

from handrail import (
    Budget,
    Call,
    Context,
    Failure,
    HandrailError,
    Policy,
    Session,
    ToolFailed,
    builtin_tools,
    open_sandbox,
    run_sync,
    tool,
)  # fmt: skip
from handrail.otel import Tracing, _names
from handrail.testing import deny_all
from tests.journeys.evidence import endings, events_of
from tests.otel.spans import Seen, attributes, is_child, parent_of

pytestmark = pytest.mark.anyio
SECRET = "hunter2"


async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def test_a_call_is_a_span_with_the_names_of_the_conventions(seen: Seen) -> None:
    async with Session([add], tracing=Tracing(seen.provider)) as session:
        await session.call("add", {"a": 1}, id="call_7")
    span = seen.one("execute_tool add")
    assert span.kind is SpanKind.INTERNAL
    assert span.status.status_code is StatusCode.UNSET
    assert attributes(span) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "call_7",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Add two numbers.",
        "gen_ai.conversation.id": session.id,
    }


def test_every_attribute_name_is_one_of_the_conventions() -> None:
    modules = (gen_ai_attributes, error_attributes, exception_attributes)
    known = {value for module in modules for value in vars(module).values() if isinstance(value, str)}
    ours = {value for name, value in vars(_names).items() if name.isupper() and "." in str(value)}
    assert len(ours) > 10
    assert ours - known == set()


# How calls end


def raises() -> None:
    """Raise."""
    raise ValueError(SECRET)


def fails() -> None:
    """Fail."""
    raise ToolFailed(Failure("not_found", SECRET))


@tool(timeout=0.05)
async def sleeps() -> None:
    """Sleep for ever."""
    await anyio.sleep_forever()


@tool(timeout=None)
async def waits() -> None:
    """Wait for ever."""
    await anyio.sleep_forever()


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("raises", "{}", "execution_error"),
        ("fails", "{}", "not_found"),
        ("sleeps", "{}", "timeout"),
        ("add", '{"a": "x"}', "invalid_args"),
        ("nobody", "{}", "tool_not_found"),
        ("denied", "{}", "rejected"),
        ("asked", "{}", "user_denied"),
    ],
)
async def test_the_error_type_of_a_failed_call_is_its_kind(seen: Seen, name: str, arguments: str, kind: str) -> None:
    denied, asked = tool(name="denied")(raises), tool(name="asked")(fails)
    policy = Policy(deny=["denied"], ask=["asked"])
    tracing = Tracing(seen.provider)
    tools = [raises, fails, sleeps, add, denied, asked]
    async with Session(tools, tracing=tracing, policy=policy, approver=deny_all) as session:
        assert (await session.call(name, arguments)).kind == kind
    span = seen.one(f"execute_tool {name}")
    assert attributes(span)["error.type"] == kind
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)


async def test_a_call_without_budget_says_so(seen: Seen) -> None:
    async with Session([add], budget=Budget(calls=0), tracing=Tracing(seen.provider)) as session:
        await session.call("add", {"a": 1})
    assert attributes(seen.one("execute_tool add"))["error.type"] == "budget_exhausted"


async def begun(session: Session) -> None:
    while not events_of(session, "call_started"):  # noqa: ASYNC110 - another task writes it
        await anyio.sleep(0.001)


async def test_a_cancelled_call_ends_its_span_as_cancelled(seen: Seen) -> None:
    async with Session([waits], tracing=Tracing(seen.provider)) as session, anyio.create_task_group() as group:
        group.start_soon(session.call, "waits")
        await begun(session)
        group.cancel_scope.cancel()
    assert attributes(seen.one("execute_tool waits"))["error.type"] == "cancelled"
    assert len(endings(session)) == 1


async def test_a_call_that_a_person_ends_ends_its_span_as_cancelled(seen: Seen) -> None:
    async with Session([waits], tracing=Tracing(seen.provider)) as session, anyio.create_task_group() as group:
        group.start_soon(session.call, "waits")
        await begun(session)
        await session.terminate("call_1")
    assert attributes(seen.one("execute_tool waits"))["error.type"] == "cancelled"


# Parents and children


async def test_a_nested_call_is_a_child_of_the_call_that_makes_it(seen: Seen) -> None:
    async def outer(context: Context) -> Any:
        return (await context.use("inner")).value

    async def inner(context: Context) -> Any:
        return (await context.use("add", {"a": 1})).value

    async with Session([outer, inner, add], tracing=Tracing(seen.provider)) as session:
        with seen.tracer.start_as_current_span("a request"):
            await session.call("outer")
    names = ["a request", "execute_tool outer", "execute_tool inner", "execute_tool add"]
    request, *spans = (seen.one(name) for name in names)
    for parent, child in zip([request, *spans], spans, strict=False):
        assert is_child(child, parent)


def looks_up(seen: Seen, name: str) -> None:
    """What a library with its own instrumentation does."""
    with seen.tracer.start_as_current_span(name):
        pass


async def test_a_span_of_a_bodys_own_library_is_its_child_in_tasks_and_threads(seen: Seen) -> None:
    async def in_task() -> None:
        looks_up(seen, "in task")
        async with anyio.create_task_group() as group:
            group.start_soon(in_child_task)

    async def in_child_task() -> None:
        looks_up(seen, "in child task")

    def in_thread() -> None:
        looks_up(seen, "in thread")

    async with Session([in_task, in_thread], tracing=Tracing(seen.provider)) as session:
        await session.call("in_task")
        await session.call("in_thread")
        looks_up(seen, "outside")
    assert is_child(seen.one("in task"), seen.one("execute_tool in_task"))
    assert is_child(seen.one("in child task"), seen.one("execute_tool in_task"))
    assert is_child(seen.one("in thread"), seen.one("execute_tool in_thread"))
    assert parent_of(seen.one("outside")) is None


async def test_a_call_from_a_bodys_thread_or_own_loop_is_its_child(seen: Seen) -> None:
    def from_thread(context: Context) -> Any:
        with seen.tracer.start_as_current_span("a library"):
            return run_sync(context.use, "add", {"a": 1}).value

    async with Session([from_thread, add], tracing=Tracing(seen.provider)) as session:
        assert (await session.call("from_thread")).value == 2
    assert is_child(seen.one("a library"), seen.one("execute_tool from_thread"))
    assert is_child(seen.one("execute_tool add"), seen.one("a library"))


async def test_a_call_that_another_task_makes_for_a_call_is_that_calls_child(seen: Seen) -> None:
    async with Session([waits, add], tracing=Tracing(seen.provider)) as session, anyio.create_task_group() as group:
        group.start_soon(session.call, "waits")
        await begun(session)
        with seen.tracer.start_as_current_span("something else"):
            await session.call("add", {"a": 1}, parent="call_1")
        group.cancel_scope.cancel()
    assert is_child(seen.one("execute_tool add"), seen.one("execute_tool waits"))


async def test_parallel_calls_do_not_mix(seen: Seen) -> None:
    async def nap(n: int) -> None:
        await anyio.sleep(0.001 * (n % 3))
        looks_up(seen, f"nap {n}")
        await anyio.sleep(0.001 * (n % 5))

    def thread(n: int) -> None:
        looks_up(seen, f"thread {n}")

    calls = [Call(f"{name}_{n}", name, {"n": n}) for n in range(25) for name in ("nap", "thread")]
    async with Session([nap, thread], tracing=Tracing(seen.provider)) as session:
        with seen.tracer.start_as_current_span("a turn"):
            await session.call_all(calls)
    spans = {attributes(span)["gen_ai.tool.call.id"]: span for span in seen.spans() if "execute" in span.name}
    assert len(spans) == 50
    for id, span in spans.items():
        assert is_child(span, seen.one("a turn"))
        assert is_child(seen.one(id.replace("_", " ")), span)


async def test_two_sessions_may_share_one_tracing_and_have_calls_with_the_same_ids(seen: Seen) -> None:
    tracing = Tracing(seen.provider)
    async with (
        Session([waits, add], tracing=tracing) as one,
        Session([waits, add], tracing=tracing) as two,
        anyio.create_task_group() as group,
    ):
        for session in (one, two):
            group.start_soon(session.call, "waits")
            await begun(session)
            await session.call("add", {"a": 1}, parent="call_1")
        group.cancel_scope.cancel()
    for waiting in seen.named("execute_tool waits"):
        (child,) = [span for span in seen.named("execute_tool add") if is_child(span, waiting)]
        assert attributes(child)["gen_ai.conversation.id"] == attributes(waiting)["gen_ai.conversation.id"]


async def test_a_late_bodys_span_has_ended_and_is_still_the_parent_of_what_it_opens(seen: Seen) -> None:
    go = threading.Event()

    @tool(timeout=0.05)
    def slow() -> None:
        """Go on after the answer."""
        go.wait()
        looks_up(seen, "late")

    async with Session([slow], tracing=Tracing(seen.provider)) as session:
        await session.call("slow")
        assert attributes(seen.one("execute_tool slow"))["error.type"] == "timeout"
        go.set()
        while not events_of(session, "call_late"):  # noqa: ASYNC110 - a thread writes it
            await anyio.sleep(0.001)
    assert is_child(seen.one("late"), seen.one("execute_tool slow"))


async def test_the_span_of_a_call_that_starts_a_job_ends_with_the_call(seen: Seen, tmp_path: Path) -> None:
    tools = [each for each in builtin_tools() if each.name == "bash"]
    tracing, policy = Tracing(seen.provider), Policy(mode="open")
    async with (
        open_sandbox("host", workspace=tmp_path, allow_weaker=True) as sandbox,
        Session(tools, sandbox=sandbox, policy=policy, tracing=tracing) as session,
    ):
        result = await session.call("bash", {"command": "sleep 600", "background": True})
        assert result.ok, result.message
        span = seen.one("execute_tool bash")
        assert events_of(session, "job_ended") == []
    assert "error.type" not in attributes(span)


# Content


def everything(spans: list[ReadableSpan]) -> str:
    return json.dumps([json.loads(span.to_json()) for span in spans], ensure_ascii=False)


async def says(secret: str) -> dict[str, str]:
    """Say it again."""
    return {"said": secret}


async def test_what_was_said_is_in_a_span_only_on_request(seen: Seen) -> None:
    for content in (False, True):
        async with Session([says, raises, fails], tracing=Tracing(seen.provider, content=content)) as session:
            await session.call("says", {"secret": SECRET})
            await session.call("says", {"secrets": SECRET, "more": 1})
            await session.call("raises")
            await session.call("fails")
        text = everything(seen.spans())
        assert (SECRET in text) == content
        seen.exporter.clear()


async def test_with_content_a_span_has_arguments_result_message_and_traceback(seen: Seen) -> None:
    async with Session([says, raises], tracing=Tracing(seen.provider, content=True)) as session:
        await session.call("says", '{"secret": "x",}')
        await session.call("raises")
    said, raised = seen.one("execute_tool says"), seen.one("execute_tool raises")
    assert json.loads(attributes(said)["gen_ai.tool.call.arguments"]) == {"secret": "x"}
    assert json.loads(attributes(said)["gen_ai.tool.call.result"])["result"] == {"said": "x"}
    assert raised.status.description == f"ValueError: {SECRET}"
    (event,) = raised.events
    assert event.name == "exception"
    assert "in raises" in str((event.attributes or {})["exception.stacktrace"])


HOSTILE = [
    ("says", {"secret": "\ud83d half"}),
    ("says", "\ud83d"),
    ("says", {"secret": "x" * 20_000_000}),
    ("says", "x" * 20_000_000),
    ("n" * 20_000_000, "{}"),
    ("\ud83d\n\x00", {1: 2}),
    ("says", {"secret": object()}),
]


@pytest.mark.parametrize(("name", "arguments"), HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("content", [False, True])
async def test_values_can_be_encoded_and_are_of_limited_size(
    seen: Seen, name: str, arguments: Any, content: bool
) -> None:
    async with Session([says], tracing=Tracing(seen.provider, content=content)) as session:
        await session.call(name, arguments)
    (span,) = seen.spans()
    values = [span.name, span.status.description or "", *attributes(span).values()]
    assert all(isinstance(value, str) and len(value.encode("utf-8")) < 100_000 for value in values)


# Faults, and nobody listening


class Broken(SpanProcessor):
    def __init__(self, where: str) -> None:
        self.where = where

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        if self.where == "start":
            raise RuntimeError("the processor is broken")

    def on_end(self, span: ReadableSpan) -> None:
        if self.where == "end":
            raise RuntimeError("the processor is broken")


@pytest.mark.parametrize("where", ["start", "end"])
async def test_a_broken_processor_changes_no_answer_and_is_logged(where: str, caplog: pytest.LogCaptureFixture) -> None:
    provider = TracerProvider()
    provider.add_span_processor(Broken(where))
    async with Session([add, waits], tracing=Tracing(provider)) as session:
        assert (await session.call("add", {"a": 1})).value == 2
        with anyio.move_on_after(0.05):
            await session.call("waits")
    assert len(endings(session)) == 2
    assert "the processor is broken" in caplog.text


async def test_calls_that_nobody_samples_are_answered_and_leave_no_span() -> None:
    seen = Seen(sampler=ALWAYS_OFF)
    async with Session([says], tracing=Tracing(seen.provider, content=True)) as session:
        assert (await session.call("says", {"secret": "x"})).ok
    assert seen.spans() == []


async def test_without_a_configured_provider_nothing_happens() -> None:
    async with Session([add], tracing=Tracing()) as session:
        assert (await session.call("add", {"a": 1})).value == 2
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("given", [Tracing, True, "otel"])
def test_something_else_than_a_tracing_is_refused_with_what_to_write(given: Any) -> None:
    with pytest.raises(HandrailError, match=r"write tracing=Tracing\(\)"):
        Session([add], tracing=given)
