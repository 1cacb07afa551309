"""A recorded conversation is played back over live tools with no network, and the first difference is named."""

import json
import stat
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import (
    Agent,
    Call,
    CallDelta,
    HandrailError,
    Image,
    Message,
    ModelFailed,
    Policy,
    Success,
    TextDelta,
    ThinkingDelta,
    Turn,
    Usage,
    tool,
)
from handrail.contract.model import Model, ModelEvent
from handrail.models import Recording, open_model
from handrail.models.recorded import PIECES
from handrail.models.text import TextCalls
from handrail.testing import ScriptedModel
from tests.models.asking import KEY, PROVIDERS, ask, everything, model_at
from tests.models.record import RECORDINGS, converse
from tests.models.wire import Wire, always, serving, status

pytestmark = pytest.mark.anyio


def recording(tmp_path: Path, model: Model, **options: Any) -> tuple[Recording, Path]:
    path = tmp_path / "talk.jsonl"
    return Recording(model, path, **options), path


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_conversation_of_each_provider_is_played_back_without_a_network(provider: str, strict: bool) -> None:
    outcome = await converse(open_model(f"recorded:{RECORDINGS / provider}.jsonl", strict=strict))
    assert (outcome.reason, outcome.text) == ("done", "Both were seen.")


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_what_is_recorded_today_is_what_was_recorded(wire: Wire, provider: str, tmp_path: Path) -> None:
    """Apart from the ids and times that the provider makes up."""
    recorded, path = recording(tmp_path, model_at(wire, provider, by_name=False), secrets=[wire.url])
    await converse(recorded)

    def told(file: Path) -> Any:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return [[line["after"], line["pieces"], line["turn"]["text"], line["turn"]["stop"]] for line in lines[1:]]

    assert told(path) == told(RECORDINGS / f"{provider}.jsonl")


async def test_live_tools_run_when_a_conversation_is_played_back() -> None:
    ran = []

    @tool
    def look(path: str) -> str:
        """Look at a file."""
        ran.append(path)
        return "something else"

    model = open_model(f"recorded:{RECORDINGS}/anthropic.jsonl")
    outcome = await Agent(model, tools=[look], system="Be brief.").run("Look at two files.")
    assert sorted(ran) == ["a.txt", "b.txt"]
    assert outcome.reason == "done", "results are compared only if that was asked for"


async def test_a_result_that_differs_is_named_if_that_was_asked_for() -> None:
    @tool
    def look(path: str) -> str:
        """Look at a file."""
        return "the same" if path == "a.txt" else "changed"

    model = open_model(f"recorded:{RECORDINGS}/anthropic.jsonl", strict=True)
    outcome = await Agent(model, tools=[look], system="Be brief.").run("Look at two files.")
    assert outcome.reason == "model_error"
    assert "question 2" in outcome.text
    assert "message 3, result 1" in outcome.text
    assert "This is a.txt." in outcome.text
    assert "the same" in outcome.text


async def test_another_prompt_is_named_before_anything_runs() -> None:
    ran = []

    @tool
    def look(path: str) -> str:
        """Look at a file."""
        ran.append(path)
        return path

    outcome = await Agent(open_model(f"recorded:{RECORDINGS}/openai.jsonl"), tools=[look]).run("Look at one file.")
    assert outcome.reason == "model_error"
    assert "question 1 is not the recorded one: message 1, the user's text" in outcome.text
    assert '"Look at two files.", now "Look at one file."' in outcome.text
    assert not ran


TALK = (Message("user", "Go."), Message("assistant", "", (Call("1", "look", '{"a": 1}'),)))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (Message("assistant", "", (Call("9", "look", '{"a":2}'),)), "the calls"),
        (Message("assistant", "", (Call("9", "see", '{"a":1}'),)), "the calls"),
        (Message("assistant", "", ()), "the calls"),
        (Message("user", ""), "who speaks"),
    ],
)
async def test_a_call_that_differs_is_named(tmp_path: Path, change: Message, what: str) -> None:
    recorded, path = recording(tmp_path, ScriptedModel(["Done."]))
    await ask(recorded, *TALK)
    with pytest.raises(ModelFailed, match=what):
        await ask(open_model(f"recorded:{path}"), TALK[0], change)


async def test_ids_and_spaces_in_arguments_may_differ(tmp_path: Path) -> None:
    recorded, path = recording(tmp_path, ScriptedModel(["Done."]))
    await ask(recorded, *TALK)
    same = Message("assistant", "", (Call("7", "look", '{"a":1}'),))
    assert (await ask(open_model(f"recorded:{path}"), TALK[0], same)).text == "Done."


async def test_another_picture_of_the_user_is_named(tmp_path: Path) -> None:
    recorded, path = recording(tmp_path, ScriptedModel(["Done."]))
    await ask(recorded, Message("user", "Look.", images=(Image(b"1"),)))
    with pytest.raises(ModelFailed, match="pictures"):
        await ask(open_model(f"recorded:{path}"), Message("user", "Look.", images=(Image(b"2"),)))


async def test_a_recording_that_has_ended_says_so(tmp_path: Path) -> None:
    recorded, path = recording(tmp_path, ScriptedModel(["Done."]))
    await ask(recorded, TALK[0])
    player = open_model(f"recorded:{path}")
    await ask(player, TALK[0])
    with pytest.raises(ModelFailed, match="ended after 1 answers"):
        await ask(player, TALK[0])


async def test_everything_of_an_answer_comes_back(tmp_path: Path) -> None:
    turn = Turn(
        "Well \ud800 ü", (Call("1", "look", '{"a": [1]}'),), "max_tokens", Usage(1, 2, 3, 4, 5, 0.5), {"k": [1]}
    )
    recorded, path = recording(tmp_path, ScriptedModel([turn]))
    first = await everything(recorded, TALK[0])
    assert await everything(open_model(f"recorded:{path}"), TALK[0]) == first
    assert first[-1] == turn


async def test_failures_come_back_as_they_were(tmp_path: Path) -> None:
    failed = ModelFailed("busy", transient=True, retry_after=0.0, kind="busy")
    recorded, path = recording(tmp_path, ScriptedModel([failed, "Done."]))
    for play in (False, True):
        model = open_model(f"recorded:{path}") if play else recorded
        with pytest.raises(ModelFailed) as raised:
            await ask(model, TALK[0])
        assert (str(raised.value), raised.value.kind, raised.value.transient, raised.value.retry_after) == (
            "busy", "busy", True, 0.0,
        )  # fmt: skip
        assert (await ask(model, TALK[0])).text == "Done."


async def test_a_recording_has_neither_the_key_nor_the_given_secrets(tmp_path: Path) -> None:
    hidden = 'pa"ss\\word'
    said = Turn(f"{hidden} {KEY}", (Call("1", "look", json.dumps({"p": hidden, KEY: 1})),), keep={"k": [hidden]})

    class Talks(ScriptedModel):
        secrets = (KEY,)

    recorded, path = recording(tmp_path, Talks([said]), secrets=[hidden, ""])
    await ask(recorded, Message("user", f"Use {hidden} and {KEY}."), Message("tool", results=(Success(hidden),)))
    text = path.read_text()
    assert KEY not in text
    assert "ss\\\\" not in text
    player = open_model(f"recorded:{path}", secrets=[hidden, KEY], strict=True)
    talk = (Message("user", f"Use {hidden} and {KEY}."), Message("tool", results=(Success(hidden),)))
    assert (await ask(player, *talk)).text == "[secret] [secret]"


class Spells(ScriptedModel):
    """A model that writes its answer letter by letter, as text, as thinking and as the arguments of its calls."""

    async def ask(self, messages: Any, tools: Any, *, system: str = "") -> AsyncIterator[ModelEvent]:
        async for event in super().ask(messages, tools, system=system):
            if isinstance(event, Turn):
                for letter in event.text:
                    yield TextDelta(letter)
                    yield ThinkingDelta(letter)
                    yield CallDelta(0, "look", letter)
                yield event


@pytest.mark.parametrize("written", ["native", "text"])
async def test_a_recording_has_no_secret_of_the_session(tmp_path: Path, written: str) -> None:
    token = "sk-live-5f3a9c"
    coded = b64encode(f"user:{token}".encode()).decode()

    @tool
    def look(path: str) -> str:
        """Look at a file."""
        return f"{path} {token}"

    for name, secrets in (("control", ()), ("kept", (token,))):
        answer = Turn(f"I use {token}", (Call("1", "look", {"path": token, "as": coded}),))
        inner = Recording(Spells([answer, f"It was {token}."]), tmp_path / name)
        model: Model = TextCalls(inner) if written == "text" else inner
        async with Agent(model, tools=[look], secrets=secrets) as agent:
            await agent.run(f"Use {token}.")
        text = (tmp_path / name).read_text()
        pieces = [json.loads(line)["pieces"] for line in text.splitlines()[1:]]
        spelt = "".join(piece[-1] for each in pieces for kind in PIECES for piece in each if piece[0] == kind)
        found = [form for form in (token, coded[4:-4]) if form in text + spelt]
        assert found == ([token, coded[4:-4]] if name == "control" else [])
        assert ("I use [secret]" in spelt) == (name == "kept")
    async with Agent(
        open_model(f"recorded:{tmp_path}/kept", strict=True, calls=written), tools=[look], secrets=(token,)
    ) as again:
        assert (await again.run(f"Use {token}.")).reason == "done"


async def test_a_key_of_one_letter_is_no_secret(tmp_path: Path) -> None:
    class Local(ScriptedModel):
        secrets = ("x",)

    recorded, path = recording(tmp_path, Local(["an axe"]))
    await ask(recorded, TALK[0])
    assert "an axe" in path.read_text()


async def test_a_provider_s_key_is_not_in_the_recording_of_its_failure(tmp_path: Path) -> None:
    with serving(always(status(401, {"error": {"message": f"wrong key {KEY}"}}))) as wire:
        recorded, path = recording(tmp_path, model_at(wire, "openai"))
        with pytest.raises(ModelFailed):
            await ask(recorded, Message("user", f"My key is {KEY}."))
    assert "My key is" in path.read_text()
    assert KEY not in path.read_text()


def test_a_recording_is_private_and_never_overwrites(tmp_path: Path) -> None:
    _, path = recording(tmp_path, ScriptedModel([]))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(HandrailError, match="exists"):
        Recording(ScriptedModel([]), path)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "no", '{"recording": 99}', '{"recording": 1, "model": "m"}\n{"a": 1}']
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(HandrailError, match="not a recording"):
        open_model(f"recorded:{tmp_path / 'x'}")


def test_a_recording_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HandrailError, match="No such file"):
        open_model(f"recorded:{tmp_path / 'gone'}")


async def test_a_conversation_that_was_shortened_in_between_is_played_back(tmp_path: Path) -> None:
    """As when old rounds are summarised."""
    recorded, path = recording(tmp_path, ScriptedModel(["One.", "Two."]))
    short = (Message("user", "What came before: much."),)
    await ask(recorded, *TALK)
    await ask(recorded, *short)
    player = open_model(f"recorded:{path}")
    assert (await ask(player, *TALK)).text == "One."
    assert (await ask(player, *short)).text == "Two."


async def test_retries_and_refusals_of_a_run_are_played_back(tmp_path: Path) -> None:
    def script() -> ScriptedModel:
        busy = ModelFailed("busy", transient=True, retry_after=0.001, kind="busy")
        return ScriptedModel([busy, Turn("", (Call("1", "gone", "{}"),)), "Done."])

    recorded, path = recording(tmp_path, script())
    first = await Agent(recorded, policy=Policy()).run("Go.")
    again = await Agent(open_model(f"recorded:{path}", strict=True)).run("Go.")
    assert (first.reason, first.text) == (again.reason, again.text) == ("done", "Done.")


async def test_a_question_without_an_answer_is_no_part_of_the_recording(tmp_path: Path) -> None:
    class Slow(ScriptedModel):
        async def ask(self, messages: Any, tools: Any, *, system: str = "") -> AsyncIterator[ModelEvent]:
            if messages[-1].text == "One.":
                yield TextDelta("I wait")
                await anyio.sleep_forever()
            async for event in super().ask(messages, tools, system=system):
                yield event

    recorded, path = recording(tmp_path, Slow(["Done."]))
    first = Agent(recorded)
    with anyio.CancelScope() as scope:
        async for event in first.stream("One."):
            if event.type == "text":
                scope.cancel()
    assert (await first.run("Two.")).text == "Done."
    player = open_model(f"recorded:{path}")
    assert (await ask(player, Message("user", "One."), Message("user", "Two."))).text == "Done."


async def test_arguments_that_nobody_can_read_are_recorded_and_played_back(tmp_path: Path) -> None:
    value: Any = 1
    for _ in range(5_000):
        value = [value]
    deep = '{"path": ' + "[" * 5_000 + "]" * 5_000 + "}"

    @tool
    def look(path: str) -> str:
        """Look."""
        return path

    calls = (Call("1", "look", deep), Call("2", "look", {"path": value}))
    recorded, path = recording(tmp_path, ScriptedModel([Turn("", calls, "tool_use"), "Done."]))
    for open_it in (lambda: recorded, lambda: open_model(f"recorded:{path}")):
        agent = Agent(open_it(), tools=[look])
        assert (await agent.run("Go.")).text == "Done."
        assert {result.kind for result in agent.messages[2].results} == {"invalid_args"}
