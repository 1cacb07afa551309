"""What a provider may do wrong, each by a raw server: one request, one clear failure, and no call that was cut runs."""

import json
import socket
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

import anyio
import pytest

from handrail import Agent, Call, Message, ModelFailed, Success, Turn, Usage, tool
from handrail.models import open_model
from tests.models.asking import KEY, NAMES, PROVIDERS, answered, ask, everything, model_at
from tests.models.shapes import CALL, CUT_AT_MAX_TOKENS, END, REFUSED, SHAPES
from tests.models.wire import STREAM, Answer, Seen, Wire, always, events, serving, status, stream

pytestmark = pytest.mark.anyio
PROMPT = Message("user", "Go.")
every_provider = pytest.mark.parametrize("provider", PROVIDERS)


def streamed(provider: str, *data: Any) -> bytes:
    return stream(*data, end=END.get(provider, "data: [DONE]\n\n"))


async def failure(provider: str, answer: Answer, **options: Any) -> ModelFailed:
    """How the one request fails."""
    with serving(answer) as wire:
        with pytest.raises(ModelFailed) as failed:
            await ask(model_at(wire, provider, **options), PROMPT)
        assert len(wire.seen) == 1, "exactly one request for one question"
    assert KEY not in str(failed.value)
    assert str(failed.value).startswith(NAMES[provider])
    return failed.value


async def turn_of(provider: str, *data: Any, **options: Any) -> Turn:
    with serving(always(streamed(provider, *data))) as wire:
        return await ask(model_at(wire, provider, **options), PROMPT)


@every_provider
@pytest.mark.parametrize(
    ("code", "kind", "transient"),
    [
        (400, "error", False),
        (401, "key", False),
        (402, "quota", False),
        (403, "key", False),
        (404, "no_such_model", False),
        (408, "error", True),
        (429, "busy", True),
        (500, "error", True),
        (502, "error", True),
        (503, "busy", True),
        (529, "busy", True),
    ],
)
async def test_a_status_is_a_failure_of_its_kind(provider: str, code: int, kind: str, transient: bool) -> None:
    body = {"error": {"message": f"Said with {KEY} in it.", "type": "t", "code": "c", "status": "s"}}
    failed = await failure(provider, always(status(code, body)))
    assert (failed.kind, failed.transient, failed.retry_after) == (kind, transient, None)
    assert "Said with [api_key] in it." in str(failed)


@every_provider
@pytest.mark.parametrize("seconds", [2, 3600])
async def test_the_wait_that_a_provider_asks_for_is_passed_on(provider: str, seconds: int) -> None:
    failed = await failure(provider, always(status(429, Retry_After=str(seconds))))
    assert (failed.kind, failed.retry_after) == ("busy", seconds)


async def test_the_wait_that_google_asks_for_in_its_answer_is_passed_on() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    error = {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED", "details": details}
    assert (await failure("google", always(status(429, {"error": error})))).retry_after == 34.5


@every_provider
async def test_a_key_that_the_provider_repeats_is_in_no_traceback(provider: str) -> None:
    told = await failure(provider, always(status(401, {"error": {"message": f"wrong: {KEY}"}})))
    assert KEY not in "".join(traceback.format_exception(told))
    other = await failure(provider, always(status(401, {"error": {"message": "wrong"}})))
    assert "The above exception was the direct cause" in "".join(traceback.format_exception(other)), "the control"


@pytest.mark.parametrize("provider", ["anthropic", "openai", "openai-chat"])
async def test_a_key_from_the_environment_is_no_more_told_than_one_that_was_given(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, KEY)
    with serving(always(status(401, {"error": {"message": f"wrong: {KEY}"}}))) as wire:
        with pytest.raises(ModelFailed) as failed:
            await ask(model_at(wire, provider, api_key=None), PROMPT)
        assert KEY in json.dumps(wire.seen[0].headers), "the control: it was sent"
    assert "wrong: [api_key]" in str(failed.value)
    assert KEY not in "".join(traceback.format_exception(failed.value))


@pytest.mark.parametrize(
    ("provider", "code", "error", "kind"),
    [
        ("openai", 400, {"message": "too long", "code": "context_length_exceeded"}, "context"),
        ("openai-chat", 400, {"message": "too long", "code": "context_length_exceeded"}, "context"),
        ("ollama", 400, {"message": "This model's maximum context length is 4096 tokens."}, "context"),
        ("anthropic", 400, {"message": "prompt is too long: 9 tokens > 8 maximum", "type": "invalid_request_error"},
         "context"),
        ("google", 400, {"message": "The input token count (9) exceeds the maximum number of tokens allowed (8).",
                         "status": "INVALID_ARGUMENT"}, "context"),
        ("openai", 429, {"message": "pay", "code": "insufficient_quota", "type": "insufficient_quota"}, "quota"),
        ("openai", 400, {"message": "no such", "code": "model_not_found"}, "no_such_model"),
        ("anthropic", 529, {"message": "busy", "type": "overloaded_error"}, "busy"),
    ],
)  # fmt: skip
async def test_what_a_provider_says_in_its_own_words_is_understood(
    provider: str, code: int, error: Any, kind: str
) -> None:
    failed = await failure(provider, always(status(code, {"type": "error", "error": error})))
    assert failed.kind == kind
    assert failed.transient is (kind == "busy")


@every_provider
async def test_nobody_at_the_address_is_a_failure_that_may_pass(provider: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        wire = Wire(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ModelFailed) as failed:
            await ask(model_at(wire, provider), PROMPT)
    assert failed.value.transient
    assert "no server answers at http://127.0.0.1" in str(failed.value)


@every_provider
async def test_silence_before_the_answer_is_a_failure_that_may_pass(provider: str) -> None:
    failed = await failure(provider, lambda seen, out, wire: wire.release.wait() and None, timeout=0.5)
    assert failed.transient
    assert "silent" in str(failed)


@every_provider
async def test_silence_in_the_answer_is_a_cut_answer(provider: str) -> None:
    def answer(seen: Seen, out: BinaryIO, wire: Wire) -> None:
        out.write(STREAM + events(*SHAPES[provider]("Half of it", finish=None), end=""))
        out.flush()
        wire.release.wait()

    failed = await failure(provider, answer, timeout=0.5)
    assert (failed.transient, failed.kind) == (True, "cut")


def whole(provider: str) -> list[Any]:
    return SHAPES[provider]("I look.", CALL)


def clean_end(provider: str, data: list[Any]) -> bytes:
    return streamed(provider, *data)


def broken_end(provider: str, data: list[Any]) -> bytes:
    """The stream promises more bytes than come."""
    body = events(*data, end="")
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(body) + 500}\r\n\r\n"
    return head.encode() + body


@every_provider
@pytest.mark.parametrize("end", [clean_end, broken_end])
async def test_a_stream_that_ends_without_its_last_event_is_cut_at_whichever_event_it_ends(
    provider: str, end: Callable[[str, list[Any]], bytes]
) -> None:
    data = SHAPES[provider]("I look.", CALL, None)
    for length in range(1, len(data) + 1):
        failed = await failure(provider, always(end(provider, data[:length])))
        assert (failed.kind, failed.transient) == ("cut", True), f"after {length} events"


@every_provider
async def test_the_control_a_stream_with_its_last_event_is_a_whole_answer(provider: str) -> None:
    turn = await turn_of(provider, *whole(provider))
    assert (turn.text, turn.stop) == ("I look.", "tool_use")
    assert json.loads(str(turn.calls[0].arguments)) == json.loads(CALL)


@every_provider
async def test_an_answer_cut_at_max_tokens_says_so(provider: str) -> None:
    turn = await turn_of(provider, *SHAPES[provider]("", '{"path": "a', CUT_AT_MAX_TOKENS[provider]))
    assert turn.stop == "max_tokens"
    assert len(turn.calls) == 1


@every_provider
async def test_a_call_that_was_cut_is_not_run(provider: str) -> None:
    ran = []

    @tool
    def look(path: str) -> str:
        """Look."""
        ran.append(path)
        return path

    cut = streamed(provider, *SHAPES[provider]("", CALL, CUT_AT_MAX_TOKENS[provider]))
    done = streamed(provider, *SHAPES[provider]("Done."))
    with serving(always(cut, done)) as wire:
        outcome = await Agent(model_at(wire, provider), tools=[look]).run("Go.")
    assert not ran
    assert outcome.text


@every_provider
async def test_an_answer_that_was_refused_says_so(provider: str) -> None:
    turn = await turn_of(provider, *SHAPES[provider]("I cannot", "", REFUSED[provider]))
    assert turn.stop == "refused"


@every_provider
@pytest.mark.filterwarnings("ignore:NEW_REASON is not a valid FinishReason")  # google-genai says it
async def test_an_unknown_reason_to_stop_is_other(provider: str) -> None:
    turn = await turn_of(provider, *SHAPES[provider]("So", CALL, "NEW_REASON"))
    assert turn.stop == "other", "so its last call is not run"


async def test_an_answer_that_pauses_says_so() -> None:
    assert (await turn_of("anthropic", *SHAPES["anthropic"]("Wait.", "", "pause_turn"))).stop == "paused"


@every_provider
async def test_bytes_that_are_no_text_are_a_failure_or_a_text_that_can_be_sent_back(provider: str) -> None:
    marked = streamed(provider, *SHAPES[provider]("MARK"))
    with serving(always(marked.replace(b"MARK", b"\xff\xfe\xc3"))) as wire:
        try:
            text = (await ask(model_at(wire, provider), PROMPT)).text
        except ModelFailed as failed:
            text = str(failed)
        text.encode()


@every_provider
async def test_twenty_megabytes_of_text_arrive_whole(provider: str) -> None:
    pieces = [SHAPES[provider]("x" * 1_000_000, finish=None) for _ in range(20)]
    first, last = pieces[0], SHAPES[provider]("")[-(2 if provider == "anthropic" else 1) :]
    at = next(number for number, event in enumerate(first) if "x" * 1_000_000 in json.dumps(event))
    rest = first[at + 1 :]
    turn = await turn_of(provider, *first[:at], *[first[at]] * 20, *rest, *last)
    assert len(turn.text) == 20_000_000


@every_provider
async def test_nonsense_instead_of_events_is_a_failure(provider: str) -> None:
    for body in (b"", b"data: {\n\n", b"<html>", b"data: []\n\n", b"data: 1\n\n"):
        with serving(always(STREAM + body)) as wire, pytest.raises(ModelFailed):
            await ask(model_at(wire, provider), PROMPT)


async def test_an_error_in_the_stream_is_a_failure_of_its_kind() -> None:
    begun = SHAPES["anthropic"]("Half", finish=None)
    busy = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    failed = await failure("anthropic", always(stream(*begun, busy, end="")))
    assert (failed.kind, failed.transient) == ("busy", True)


async def test_a_signature_of_google_goes_back_with_its_own_part() -> None:
    with serving(always(streamed("google", *whole("google")), streamed("google", *SHAPES["google"]("Done.")))) as wire:
        model = model_at(wire, "google")
        turn = await ask(model, PROMPT)
        await ask(model, PROMPT, *answered(turn, Success("a")))
        said = wire.seen[1].body["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in said] == [None, "c2lnbmVk"]
    assert said[1]["functionCall"]["name"] == "look"


USAGES: dict[str, tuple[Any, Usage]] = {
    "anthropic": (
        {"input_tokens": 10, "output_tokens": 7, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 50},
        Usage(160, 7, 100, 50),
    ),
    "openai": (
        {"input_tokens": 160, "output_tokens": 7, "total_tokens": 167,
         "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 0},
         "output_tokens_details": {"reasoning_tokens": 3}},
        Usage(160, 7, 100, 0, 3),
    ),
    "openai-chat": (
        {"prompt_tokens": 160, "completion_tokens": 7, "total_tokens": 167,
         "prompt_tokens_details": {"cached_tokens": 100}, "completion_tokens_details": {"reasoning_tokens": 3}},
        Usage(160, 7, 100, 0, 3),
    ),
    "google": (
        {"promptTokenCount": 160, "candidatesTokenCount": 4, "thoughtsTokenCount": 3, "cachedContentTokenCount": 100},
        Usage(160, 7, 100, 0, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("provider", USAGES)
async def test_tokens_are_counted_with_what_was_cached_and_reasoned(provider: str) -> None:
    given, wanted = USAGES[provider]
    used = (await turn_of(provider, *SHAPES[provider]("Done.", usage=given))).usage
    assert used == Usage(
        wanted.input_tokens, wanted.output_tokens, wanted.cache_read, wanted.cache_write, wanted.reasoning, used.cost
    )
    assert used.cost is None, "a server on loopback has no price, whatever its model is called"


async def test_leaving_an_answer_early_ends_its_connection() -> None:
    ended = []

    def answer(seen: Seen, out: BinaryIO, wire: Wire) -> None:
        out.write(STREAM + events(*SHAPES["openai-chat"]("One", finish=None), end=""))
        out.flush()
        try:
            while not wire.release.wait(0.01):
                out.write(b": still here\n\n")
                out.flush()
        except OSError as error:
            ended.append(error)
            wire.release.set()

    with serving(answer) as wire:
        stream = model_at(wire, "openai-chat").ask([PROMPT], [], system="")
        await anext(aiter(stream))
        await stream.aclose()  # type: ignore[attr-defined]
        assert wire.release.wait(30)
    assert ended


def test_a_model_can_be_asked_from_one_event_loop_after_the_other() -> None:
    with serving(always(streamed("openai-chat", *SHAPES["openai-chat"]("Done.")))) as wire:
        model = model_at(wire, "openai-chat")
        assert [anyio.run(ask, model, PROMPT).text for _ in range(2)] == ["Done."] * 2


async def test_many_questions_at_once_do_not_wait_for_each_other() -> None:
    data = streamed("openai-chat", *SHAPES["openai-chat"]("Done."))

    def answer(seen: Seen, out: BinaryIO, wire: Wire) -> None:
        if len(wire.seen) == 20:
            wire.release.set()
        wire.release.wait()
        out.write(data)

    with serving(answer) as wire:
        model = model_at(wire, "openai-chat")
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(everything, model, PROMPT)
    assert len(wire.seen) == 20


async def test_an_agent_works_over_a_provider() -> None:
    @tool
    def look(path: str) -> str:
        """Look."""
        return f"seen {path}"

    answers = [streamed("anthropic", *whole("anthropic")), streamed("anthropic", *SHAPES["anthropic"]("Done."))]
    with serving(always(*answers)) as wire:
        agent = Agent(model_at(wire, "anthropic"), tools=[look], system="Be brief.")
        outcome = await agent.run("Go.")
    assert (outcome.reason, outcome.text) == ("done", "Done.")
    assert "seen a.txt" in json.dumps(wire.seen[1].body)
    assert [event.type for event in agent.session.trace if event.type in ("text", "call_text")] == [
        "text", "call_text", "call_text", "text",
    ]  # fmt: skip
    assert isinstance(agent.messages[1].calls[0], Call)


async def test_windows_are_known_given_or_assumed() -> None:
    assert open_model("anthropic:claude-opus-5", api_key="k").window >= 200_000  # type: ignore[attr-defined]
    assert open_model("openai-chat:mine@https://example.org/v1", api_key="k").window == 128_000  # type: ignore[attr-defined]
    assert open_model("ollama:mine").window == 8_192  # type: ignore[attr-defined]
    assert open_model("ollama:mine").max_tokens == 2_048  # type: ignore[attr-defined]
    assert open_model("ollama:mine", window=40_000, max_tokens=1).window == 40_000  # type: ignore[attr-defined]
