"""A session's secrets are in nothing that it shows, keeps or logs; the body alone sees them."""

import json
import logging
import threading
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from handrail import (
    Agent,
    Call,
    CallDelta,
    Context,
    Event,
    HandrailError,
    ModelFailed,
    Sandbox,
    Session,
    Store,
    Success,
    TextDelta,
    ThinkingDelta,
    Turn,
    builtin_tools,
    open_sandbox,
    tool,
)
from handrail.otel import Tracing
from handrail.session.session import core_of
from handrail.testing import EventRecorder, MemoryDriver, ScriptedModel
from handrail.toolkit.live_output import watcher
from handrail.tools.ask_user import ask_user
from handrail.tools.process import process

pytestmark = pytest.mark.anyio
TOKEN = "sk-live-5f3a/9+c"
OTHER = 'p"ä\\ss\nwörd'
PIN = "80317742"
SECRETS = (TOKEN, OTHER, PIN)


def leaks(text: str) -> list[str]:
    """Which of the secrets are in the text, as they are or in base64."""
    forms = {
        TOKEN,
        OTHER,
        repr(OTHER)[1:-1],
        PIN,
        *(b64encode(b"x" * n + TOKEN.encode()).decode()[4:-4] for n in (3, 4, 5)),
    }
    return [form for form in forms if form in text]


async def echo(token: str, context: Context) -> dict[str, Any]:
    """Answer with what it was given, in many ways."""
    seen.append(token)
    context.show(f"shown {token} ")
    for letter in token:
        context.show(letter, stream="stdout")
        await anyio.lowlevel.checkpoint()
    coded = b64encode(b"ab" + token.encode()).decode()
    context.memory("echo", lasts=True)["token"] = token
    kept = await context.artifacts.put(f"kept {token}", name=f"{token}.txt")
    return {"text": token, token: [coded], "number": int(PIN), "kept": kept, "long": f"{token} " * 20_000}


async def fail(token: str) -> None:
    """Raise it."""
    raise ValueError(f"bad token {token}") from KeyError(token)


seen: list[str] = []


class Speaking(ScriptedModel):
    """A model that knows the secrets, and spells them letter by letter."""

    async def ask(self, messages: Any, tools: Any, *, system: str) -> AsyncIterator[Any]:
        self.asked = repr(messages)
        async for event in super().ask(messages, tools, system=system):
            if isinstance(event, Turn):
                for letter in f"I say {TOKEN}":
                    yield TextDelta(letter)
                for letter in f"I think {TOKEN}":
                    yield ThinkingDelta(letter)
                for letter in f'{{"token": "{TOKEN}"}}':
                    yield CallDelta(0, "echo", letter)
            yield event


async def everything(directory: Path, log: pytest.LogCaptureFixture, secrets: tuple[str, ...]) -> dict[str, str]:
    """Use a session in every way, and return what it left behind, by where."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    recorder, store = EventRecorder(), Store(directory / "sessions.db")
    log.clear()
    log.set_level(logging.DEBUG, "handrail")
    session = Session(
        [echo, fail], store=store, readers=[recorder], tracing=Tracing(provider, content=True), secrets=secrets, id="s"
    )
    calls = Call(TOKEN, "echo", {"token": TOKEN}), Call("b", "fail", json.dumps({"token": TOKEN}))
    spoken = [Turn(f"I call with {TOKEN}", calls, keep={"signed": TOKEN}), f"The end, {TOKEN}."]
    model = Speaking(spoken)
    agent = Agent(model, session=session, system=f"Your token is {TOKEN}.")
    async with session:
        results = [await session.call(name, {"token": OTHER}) for name in ("echo", "fail", TOKEN)]
        results.append(await session.call("echo", f'{{"token": {PIN}, "{TOKEN}": 1}}'))
        await agent.run(f"My token is {TOKEN}.")
        live = [event async for event in _until_now(session)]
    files = "".join(
        path.read_bytes().decode("utf-8", "replace") for path in sorted(directory.rglob("*")) if path.is_file()
    )
    return {
        "events": repr(session.trace),
        "live": repr(live),
        "readers": repr(recorder.events),
        "results": repr(results),
        "messages": repr(agent.messages) + model.asked,
        "export": "\n".join(store.export("s")),
        "files": files,
        "logs": log.text + repr([record.exc_info for record in log.records]),
        "spans": "".join(span.to_json() for span in exporter.get_finished_spans()),
    }


async def _until_now(session: Session) -> AsyncIterator[Event]:
    last = session.event_count
    async for event in session.events():
        yield event
        if event.seq + 1 >= last:
            return


async def test_secrets_are_in_nothing_that_a_session_leaves_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for each in ("control", "scrubbed"):
        (tmp_path / each).mkdir()
    control = await everything(tmp_path / "control", caplog, ())
    assert [where for where, text in control.items() if not leaks(text)] == []
    seen.clear()
    left = await everything(tmp_path / "scrubbed", caplog, SECRETS)
    assert {where: found for where, text in left.items() if (found := leaks(text))} == {}
    assert seen == [OTHER, TOKEN]  # the body has the real ones


async def test_pieces_of_an_answer_are_joined_without_the_secret_between_them(tmp_path: Path) -> None:
    agent = Agent(Speaking(["end"]), session=Session(secrets=SECRETS))
    async with agent.session as session:
        await agent.run("go")
    told = {
        kind: "".join(event.data["text"] for event in session.trace if event.type == kind)
        for kind in ("text", "thinking", "call_text")
    }
    assert told["text"] == "endI say [secret]"
    assert told["thinking"] == "I think [secret]"
    assert told["call_text"] == '{"token": "[secret]"}'


async def test_live_output_that_is_split_anywhere_is_joined_without_the_secret() -> None:
    async def split(at: int, context: Context) -> None:
        """Show it in two pieces."""
        context.show(f"a {TOKEN[:at]}", stream="stdout")
        await anyio.sleep(0.1)  # an event of its own
        context.show("other", stream="stderr")
        context.show(f"{TOKEN[at:]} b s", stream="stdout")

    async with Session([split], secrets=SECRETS) as session:
        for at in (0, 1, 5, len(TOKEN) - 1, len(TOKEN)):
            began = session.event_count
            await session.call("split", {"at": at})
            shown = [event.data for event in core_of(session).transcript.since(began) if event.type == "call_output"]
            out = "".join(data["text"] for data in shown if data["stream"] == "stdout")
            assert out == "a [secret] b s"


async def test_what_a_command_prints_is_scrubbed_and_its_whole_output_too(tmp_path: Path) -> None:
    (tmp_path / "env").write_text(f"x{TOKEN}\n" * 30_000)
    async with (
        open_sandbox(workspace=tmp_path, allow_weaker=True) as sandbox,
        Session(builtin_tools(), sandbox=sandbox, secrets=SECRETS) as session,
    ):
        long = await session.call("bash", {"command": "cat env; base64 -w 60 env | head -40"})
        assert leaks(repr(long)) == []
        assert "[secret]" in repr(long)
        text = await session.call("read", {"path": "env", "limit": 3})
        assert leaks(repr(text)) == []
        shared = await session.call("share_artifact", {"path": "env"})
        assert shared.ok
        (ref, *_) = {each.ref for each in _refs(shared.value)}
        assert leaks((await session.artifacts.read(ref)).decode()) == []
        assert leaks(repr(session.trace)) == []
        seen_inside = await session.call("bash", {"command": "grep -c sk-live env"})
        assert "30000" in repr(seen_inside)  # control: it is in the sandbox


def _refs(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [ref for item in value.values() for ref in _refs(item)]
    return [value] if hasattr(value, "ref") else []


async def test_a_secret_where_the_answer_is_cut_does_not_leave_a_half() -> None:
    async def long(pad: int) -> str:
        """A text with the secret everywhere."""
        return "." * pad + TOKEN * 20_000

    async with Session([long], secrets=SECRETS) as session:
        for pad in range(len(TOKEN)):
            result = await session.call("long", {"pad": pad})
            assert "5f3a" not in repr(result)
            assert "live" not in repr(result)


async def test_a_resumed_session_scrubs_what_is_new_and_tells_the_same_messages(tmp_path: Path) -> None:
    store = Store(tmp_path / "sessions.db")
    first = Agent(
        ScriptedModel([Turn("", (Call("c", "echo", {"token": TOKEN}),)), "done"]),
        session=Session([echo], store=store, secrets=SECRETS, id="s"),
    )
    async with first.session:
        await first.run(TOKEN)
    after = Agent.resume(ScriptedModel([TOKEN]), store, "s", tools=[echo], secrets=SECRETS)
    assert repr(after.messages) == repr(first.messages)
    async with after.session:
        await after.run(f"again {TOKEN}")
    assert leaks("".join(store.export("s"))) == []
    other = Store(tmp_path / "other.db")
    assert list(other.events(other.load(list(store.export("s"))))) == list(store.events("s"))


@pytest.mark.parametrize("given", [("abc",), "a text", (5,), None, ("",)])
async def test_secrets_that_cannot_be_scrubbed_are_refused(given: Any) -> None:
    with pytest.raises(HandrailError, match="secret"):
        Session([echo], secrets=given)


async def test_a_session_without_secrets_changes_nothing() -> None:
    async with Session([echo], sandbox=Sandbox(MemoryDriver())) as session:
        result = await session.call("echo", {"token": TOKEN})
        assert isinstance(result, Success)
        assert TOKEN in repr(session.trace)
        assert session.scrubber is None


async def test_what_a_run_ends_with_has_no_secret() -> None:
    for script, reason in (
        ([f"It is {TOKEN}."], "done"),
        ([Turn("", (Call("c", "ask_user", {"question": f"Is it {TOKEN}?"}),))], "asked_user"),
        ([ModelFailed(f"refused {TOKEN}")], "model_error"),
        ([Turn(TOKEN, stop="refused")], "refused"),
    ):
        async with Agent(ScriptedModel(script), tools=[ask_user], secrets=SECRETS) as agent:
            outcome = await agent.run("go")
        assert (outcome.reason, leaks(outcome.text)) == (reason, [])
        assert "[secret]" in outcome.text
        control = await Agent(ScriptedModel(script), tools=[ask_user]).run("go")
        assert leaks(control.text)


async def test_an_agent_takes_secrets_for_its_own_session_alone() -> None:
    with pytest.raises(HandrailError, match="give secrets to the Session"):
        Agent(ScriptedModel(["x"]), session=Session(), secrets=SECRETS)


@tool(needs=("exec",))
async def begin(context: Context, line: str, size: int) -> str:
    """Start a job, and answer when it has printed so much."""
    job = await context.sandbox.start(line, on_output=watcher(context))
    while job.size < size:  # noqa: ASYNC110 - a shell prints it
        await anyio.sleep(0.01)
    return str(job.id)


@pytest.mark.parametrize("to", ["", " >&2"])
async def test_what_a_background_job_prints_is_not_split_where_its_call_ends(to: str, tmp_path: Path) -> None:
    half = len(TOKEN) // 2
    first, rest = f"a {TOKEN[:half]}", f"{TOKEN[half:]} b"
    line = f"printf %s '{first}'{to}; while ! test -e go; do sleep 0.02; done; printf %s '{rest}'{to}"
    async with (
        open_sandbox(workspace=tmp_path, allow_weaker=True) as sandbox,
        Session([begin, process], sandbox=sandbox, secrets=SECRETS) as session,
    ):
        begun = await session.call("begin", {"line": line, "size": len(first)})
        (tmp_path / "go").touch()
        await session.call("process", {"action": "wait", "job": begun.value, "timeout": 30})
    shown = [event for event in session.trace if event.type == "call_output"]
    assert "".join(event.data["text"] for event in shown) == "a [secret] b"
    ended = next(event.seq for event in session.trace if event.type == "call_ended")
    assert shown[0].seq < ended < shown[-1].seq  # the control: it was printed on both sides of the end


async def test_a_body_that_outlives_its_call_does_not_show_a_secret_in_halves() -> None:
    shown, go = threading.Event(), threading.Event()

    @tool(timeout=0.2)
    def stubborn(context: Context) -> None:
        """Show a secret, half of it after the call."""
        context.show(TOKEN[:9])
        shown.set()
        go.wait(60)
        context.show(TOKEN[9:] + " and more")

    async with Session([stubborn], secrets=SECRETS) as session:
        result = await session.call("stubborn")
        assert shown.is_set()
        go.set()
        with anyio.fail_after(60):
            async for event in session.events():
                if event.type == "call_late":
                    break
    assert not result.ok
    assert result.kind == "timeout"
    output = [event.data["text"] for event in session.trace if event.type == "call_output"]
    assert "".join(output) == "[secret] and more"
