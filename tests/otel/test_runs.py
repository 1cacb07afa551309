"""Spans of an agent's runs: a run holds its requests to the model and its calls, in the order of the loop."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from opentelemetry.trace import SpanKind, StatusCode

from handrail import Agent, Call, ModelFailed, Session, Usage
from handrail.otel import Tracing
from handrail.testing import ScriptedModel, Turn
from tests.otel.spans import Seen, attributes, is_child, parent_of

pytestmark = pytest.mark.anyio
SECRET = "hunter2"


async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


class Named(ScriptedModel):
    name = "small-1"
    provider = "acme"
    window = 10_000_000


def two_rounds() -> list[Any]:
    calls = (Call("c1", "add", {"a": 1}), Call("c2", "add", {"a": 2}))
    return [Turn(SECRET, calls, "tool_use", Usage(10, 5)), Turn(f"Done, {SECRET}.", usage=Usage(20, 7))]


def agent_of(seen: Seen, lines: list[Any], *, content: bool = False, **options: Any) -> Agent:
    return Agent(Named(lines), session=Session([add], tracing=Tracing(seen.provider, content=content)), **options)


async def test_a_run_is_a_span_with_its_requests_and_calls_inside(seen: Seen) -> None:
    agent = agent_of(seen, two_rounds())
    with seen.tracer.start_as_current_span("a web request"):
        await agent.run("Add.")
    names = ["a web request", "invoke_agent", "chat small-1", "execute_tool add", "execute_tool add", "chat small-1"]
    assert [span.name for span in seen.spans()] == names
    request, run, *inside = seen.spans()
    assert is_child(run, request)
    assert all(is_child(span, run) for span in inside)
    assert attributes(run) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": agent.session.id,
        "gen_ai.request.model": "small-1",
        "gen_ai.provider.name": "acme",
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 12,
    }
    assert attributes(inside[0]) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": agent.session.id,
        "gen_ai.request.model": "small-1",
        "gen_ai.provider.name": "acme",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.response.finish_reasons": ("tool_call",),
    }
    assert (run.kind, inside[0].kind) == (SpanKind.INTERNAL, SpanKind.CLIENT)
    assert SECRET not in json.dumps([json.loads(span.to_json()) for span in seen.spans()])


async def test_the_tokens_of_a_run_are_its_own(seen: Seen) -> None:
    agent = agent_of(seen, [Turn("One.", usage=Usage(3, 1)), Turn("Two.", usage=Usage(5, 2))])
    await agent.run("One?")
    await agent.run("Two?")
    counts = [attributes(span)["gen_ai.usage.input_tokens"] for span in seen.named("invoke_agent")]
    assert counts == [3, 5]


async def test_with_content_a_request_has_its_messages_in_the_form_of_the_conventions(seen: Seen) -> None:
    agent = agent_of(seen, two_rounds(), content=True, system="Be brief.")
    await agent.run("Add.")
    first, second = map(attributes, seen.named("chat small-1"))
    assert json.loads(first["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    user, assistant, results = json.loads(second["gen_ai.input.messages"])
    assert user == {"role": "user", "parts": [{"type": "text", "content": "Add."}]}
    assert [part["type"] for part in assistant["parts"]] == ["text", "tool_call", "tool_call"]
    assert results["role"] == "tool"
    assert [(part["type"], part["id"]) for part in results["parts"]] == [
        ("tool_call_response", "c1"),
        ("tool_call_response", "c2"),
    ]
    (answer,) = json.loads(second["gen_ai.output.messages"])
    assert answer["finish_reason"] == "stop"
    assert attributes(seen.one("invoke_agent"))["gen_ai.output.messages"]


async def test_a_long_conversation_keeps_its_newest_messages(seen: Seen) -> None:
    agent = agent_of(seen, ["Short."] * 40, content=True)
    for n in range(40):
        await agent.run(f"{n} " + "long \ud83d" * 4_000)
    texts = [attributes(span)["gen_ai.input.messages"] for span in seen.named("chat small-1")]
    assert max(len(text.encode("utf-8")) for text in texts) < 700_000
    messages = json.loads(texts[-1])
    assert "earlier messages left out" in messages[0]["parts"][0]["content"]
    assert messages[-1]["parts"][0]["content"].startswith("39 long")


@pytest.mark.parametrize(("raised", "kind"), [(ModelFailed(SECRET), "error"), (ValueError(SECRET), "ValueError")])
async def test_a_model_that_fails_fails_its_request_and_the_run(seen: Seen, raised: Exception, kind: str) -> None:
    await agent_of(seen, [raised]).run("Go.")
    chat, run = seen.one("chat small-1"), seen.one("invoke_agent")
    assert attributes(chat)["error.type"] == kind
    assert attributes(run)["error.type"] == "model_error"
    assert chat.status.status_code is run.status.status_code is StatusCode.ERROR
    assert SECRET not in chat.to_json() + run.to_json()


async def test_each_try_is_a_request_of_its_own(seen: Seen) -> None:
    busy = ModelFailed("busy", transient=True, retry_after=0.01, kind="busy")
    outcome = await agent_of(seen, [busy, "Done."]).run("Go.")
    assert outcome.reason == "done"
    first, second = seen.named("chat small-1")
    assert attributes(first)["error.type"] == "busy"
    assert "error.type" not in attributes(second)
    assert "error.type" not in attributes(seen.one("invoke_agent"))


class Hangs:
    def __init__(self) -> None:
        self.asked = anyio.Event()

    async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[Any]:
        self.asked.set()
        await anyio.sleep_forever()
        yield None


async def test_a_cancelled_run_ends_both_its_spans_as_cancelled(seen: Seen) -> None:
    model = Hangs()
    agent = Agent(model, session=Session([add], tracing=Tracing(seen.provider)))
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run, "Go.")
        await model.asked.wait()
        group.cancel_scope.cancel()
    for name in ("chat Hangs", "invoke_agent"):
        assert attributes(seen.one(name))["error.type"] == "cancelled"


async def test_a_run_that_is_watched_and_left_ends_its_spans(seen: Seen) -> None:
    agent = Agent(Hangs(), session=Session([add], tracing=Tracing(seen.provider)))
    with seen.tracer.start_as_current_span("a web request"):
        async with aclosing(agent.stream("Go.")) as events:  # type: ignore[type-var]
            async for _ in events:
                break
    assert attributes(seen.one("invoke_agent"))["error.type"] == "cancelled"
    assert is_child(seen.one("invoke_agent"), seen.one("a web request"))


async def test_a_span_of_the_models_client_is_a_child_of_the_request(seen: Seen) -> None:
    class Client:
        async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[Any]:
            with seen.tracer.start_as_current_span("POST"):
                pass
            yield Turn("Hello.")

    await Agent(Client(), session=Session(tracing=Tracing(seen.provider))).run("Go.")
    assert is_child(seen.one("POST"), seen.one("chat Client"))
    assert parent_of(seen.one("invoke_agent")) is None


# Without OpenTelemetry

RUN = """
import sys
from handrail import Agent, Call, Session, Turn
from handrail.testing import ScriptedModel
from handrail import run_sync

async def add(a: int) -> int:
    "Add."
    return a + 1

async def main() -> None:
    async with Session([add]) as session:
        await Agent(ScriptedModel([Turn("", (Call("1", "add", {"a": 1}),)), "Done."]), session=session).run("Go.")
        assert [event.type for event in session.trace][-1] == "run_ended"
"""


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def test_a_session_without_tracing_does_not_import_opentelemetry() -> None:
    count = "print(sum(name.startswith('opentelemetry') for name in sys.modules))"
    assert printed(f"{RUN}\nrun_sync(main)\n{count}") == "0\n"
    assert int(printed(f"import handrail.otel, sys\n{count}")) > 0, "the control"


def test_without_the_extra_the_import_says_what_to_install() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None\nimport handrail.otel"
    assert "pip install 'handrail[otel]'" in printed(code)
