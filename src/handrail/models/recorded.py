"""Record a conversation with a model as JSON lines, and play it back over live tools, without a network."""

import json
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from handrail.contract.call import Call
from handrail.contract.errors import HandrailError
from handrail.contract.model import (
    CallDelta,
    Message,
    Model,
    ModelEvent,
    ModelFailed,
    TextDelta,
    ThinkingDelta,
    Turn,
    Usage,
)
from handrail.schema.parse import recordable
from handrail.scrub import SHORTEST, Scrubber

VERSION: Final = 1
SHOWN: Final = 200
"""Length of a difference that a message shows, in characters."""


class Recording:
    """A model that records its requests and answers. The file must not exist yet; it is private.

    The key of the model, every text in `secrets`, and the secrets of the session that asks it are replaced before
    anything is written.

    Example:
        ```python
        from handrail.models import Recording, open_model

        async with Agent(Recording(ScriptedModel(["It is 42."]), "talk.jsonl")) as agent:
            await agent.run("What is 41 + 1?")
        async with Agent(open_model("recorded:talk.jsonl")) as agent:
            print((await agent.run("What is 41 + 1?")).text)
        #> It is 42.
        ```
    """

    def __init__(self, model: Model, path: str | os.PathLike[str], *, secrets: Sequence[str] = ()) -> None:
        self._model = model
        self._path = Path(path)
        keys = (key for key in getattr(model, "secrets", ()) if len(key.strip()) >= SHORTEST)
        self._scrubbers = [_scrubber((*keys, *secrets))]
        self._told: list[Any] = []
        self.name = str(getattr(model, "name", "") or type(model).__name__)
        known = {key: getattr(model, key) for key in ("window", "max_tokens") if hasattr(model, key)}
        self.__dict__ |= known
        try:
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            raise HandrailError(f"{path} exists already; a recording begins a new file") from None
        self._write({"recording": VERSION, "model": self.name, **known})

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, system: str = ""
    ) -> AsyncIterator[ModelEvent]:
        pieces: list[Any] = []
        told = [_message_to_json(message) for message in messages]
        line = {**self._question(told), "pieces": pieces}
        answer = self._model.ask(messages, tools, system=system)
        try:
            async for event in answer:
                if isinstance(event, Turn):
                    self._write({**line, "turn": _turn_to_json(event)})
                    self._told = told
                else:
                    pieces.append([type(event).__name__, *asdict(event).values()])
                yield event
        except ModelFailed as error:
            kept = {"transient": error.transient, "retry_after": error.retry_after, "kind": error.kind}
            self._write({**line, "failed": {"message": str(error), **kept}})
            self._told = told
            raise
        finally:
            if close := getattr(answer, "aclose", None):
                await close()

    def _question(self, told: Sequence[Any]) -> dict[str, Any]:
        """New messages since the last recorded request, and the number of messages before them."""
        same = 0
        for old, new in zip(self._told, told, strict=False):
            if old != new:
                break
            same += 1
        return {"after": same, "messages": told[same:]}

    def scrub(self, scrubber: Scrubber) -> None:
        """Write nothing from now on that this Scrubber replaces."""
        if scrubber not in self._scrubbers:
            self._scrubbers.append(scrubber)

    def _write(self, line: Mapping[str, Any]) -> None:
        for scrubber in self._scrubbers:
            pieces = {"pieces": _without(scrubber, line["pieces"])} if "pieces" in line else {}
            line = scrubber.data({**line, **pieces})
        with self._path.open("a", encoding="ascii") as file:
            file.write(json.dumps(line) + "\n")


class Recorded:
    """A recorded conversation, played back: replays the recorded answers while requests match.

    User texts and calls are compared, with `strict` results too. The first difference ends the playback. `secrets`
    are the texts that were hidden when it was recorded.
    """

    def __init__(self, path: str | os.PathLike[str], *, strict: bool = False, secrets: Sequence[str] = ()) -> None:
        self._path = path
        self._strict = strict
        self._scrubber = _scrubber(secrets)
        head, self._lines = _read(Path(path))
        self.name = str(head["model"])
        self.__dict__ |= {key: head[key] for key in ("window", "max_tokens") if isinstance(head.get(key), int)}
        self._told: list[Any] = []
        self._asked = 0

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, system: str = ""
    ) -> AsyncIterator[ModelEvent]:
        if self._asked == len(self._lines):
            raise ModelFailed(f"{self._path}: the recording has ended after {self._asked} answers")
        line = self._lines[self._asked]
        self._asked += 1
        self._compare(line, [self._scrubber.data(_message_to_json(message)) for message in messages])
        for kind, *values in line["pieces"]:
            yield PIECES[kind](*values)
        if failed := line.get("failed"):
            message, kept = failed["message"], {key: failed[key] for key in ("transient", "retry_after", "kind")}
            raise ModelFailed(message, **kept)
        yield _turn_from_json(line["turn"])

    def _compare(self, line: Mapping[str, Any], now: Sequence[Any]) -> None:
        self._told = [*self._told[: line["after"]], *line["messages"]]
        for number, (then, told) in enumerate(zip_longest(_joined(self._told), _joined(now)), 1):
            for what, old, new in _differences(then, told, self._strict):
                raise ModelFailed(
                    f"{self._path}: question {self._asked} is not the recorded one: message {number}, {what}: "
                    f"recorded {_short(old)}, now {_short(new)}"
                )


PIECES: Final[Mapping[str, type[TextDelta] | type[ThinkingDelta] | type[CallDelta]]] = {
    "TextDelta": TextDelta,
    "ThinkingDelta": ThinkingDelta,
    "CallDelta": CallDelta,
}


def _scrubber(secrets: Sequence[str]) -> Scrubber:
    """A Scrubber for these secrets; empty ones are left out."""
    if isinstance(secrets, str | bytes) or not isinstance(secrets, Iterable):
        return Scrubber(secrets)  # which says what is wrong
    return Scrubber([each for each in secrets if each or not isinstance(each, str)])


def _without(scrubber: Scrubber, pieces: Sequence[Any]) -> list[Any]:
    """The pieces of an answer without secrets, which may be split over them: [kind, …, text]."""
    texts: dict[tuple[Any, ...], list[str]] = {}
    for *key, text in pieces:
        texts.setdefault(tuple(key), []).append(str(text))
    whole = {key: "".join(each) for key, each in texts.items()}
    streams = {key: scrubber.stream() for key, text in whole.items() if scrubber.text(text) is not text}
    made = [[*key, streams[tuple(key)].add(text) if tuple(key) in streams else text] for *key, text in pieces]
    return made + [[*key, rest] for key, stream in streams.items() if (rest := stream.end())]


def _joined(told: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages as they are sent now: a user's text after results, or after another text, is joined to it."""
    made: list[Mapping[str, Any]] = []
    for message in told:
        if message["role"] == "user" and made and made[-1]["role"] != "assistant":
            text = "\n\n".join(each for each in (made[-1]["text"], message["text"]) if each)
            made[-1] = {**made[-1], "text": text, "images": [*made[-1]["images"], *message["images"]]}
        else:
            made.append(message)
    return made


def _differences(then: Any, now: Any, strict: bool) -> Iterator[tuple[str, Any, Any]]:
    if then is None or now is None or then["role"] != now["role"]:
        yield "who speaks", then and then["role"], now and now["role"]
        return
    if then["role"] != "assistant":
        yield from _unequal("the user's text", then["text"], now["text"])
        yield from _unequal("the user's pictures", then["images"], now["images"])
    named = [(call["name"], _arguments(call)) for call in then["calls"]]
    yield from _unequal("the calls", named, [(call["name"], _arguments(call)) for call in now["calls"]])
    if strict:
        for number, (old, new) in enumerate(zip_longest(then["results"], now["results"]), 1):
            yield from _unequal(f"result {number}", old, new)


def _unequal(what: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    if old != new:
        yield what, old, new


def _arguments(call: Mapping[str, Any]) -> Any:
    """The value of the arguments, however they are spaced."""
    try:
        return json.loads(call["arguments"]) if isinstance(call["arguments"], str) else call["arguments"]
    except (ValueError, RecursionError):
        return call["arguments"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[:SHOWN] + " …"


def _message_to_json(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "text": message.text,
        "calls": [_call_to_json(call) for call in message.calls],
        "results": [result.to_envelope("") for result in message.results],
        "images": [[image.media_type, sha256(image.data).hexdigest()] for image in message.images],
    }


def _call_to_json(call: Call) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": recordable(call.arguments)}


def _turn_to_json(turn: Turn) -> dict[str, Any]:
    calls = [_call_to_json(call) for call in turn.calls]
    return {"text": turn.text, "calls": calls, "stop": turn.stop, "usage": asdict(turn.usage), "keep": turn.keep}


def _turn_from_json(turn: Mapping[str, Any]) -> Turn:
    calls = tuple(Call(call["id"], call["name"], call["arguments"]) for call in turn["calls"])
    return Turn(turn["text"], calls, turn["stop"], Usage(**turn["usage"]), turn["keep"])


def _read(path: Path) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """The first line, and one line for each answer. Raises HandrailError for any other file."""
    try:
        head, *lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise HandrailError(f"the recording {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise HandrailError(f"{path} is not a recording of a conversation: {error}") from error
    if not isinstance(head, dict) or head.get("recording") != VERSION:
        raise HandrailError(f"{path} is not a recording of a conversation: its first line does not say so")
    for line in lines:
        if not isinstance(line, dict) or not {"after", "messages", "pieces"} <= line.keys():
            raise HandrailError(f"{path} is not a recording of a conversation: a line has no messages")
    return head, lines
