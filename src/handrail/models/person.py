"""A person in place of the model: reads what the model would read, and types the calls."""

import json
import re
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from anyio.to_thread import run_sync as in_anyio_thread  # noqa: TID251 - `ask_line` may be cancelled on the loop

from handrail.contract.call import Call
from handrail.contract.model import SUMMARISE, Message, ModelEvent, ModelFailed, Turn
from handrail.schema.export import for_every_model
from handrail.schema.extract import find

HELP: Final = "Type a call, as NAME key=value … or NAME {JSON}, or the answer."
_CALL: Final = re.compile(r"\s*([A-Za-z0-9_-]{1,64})\s*(?:[({]|$|(?:[A-Za-z0-9_]+=))")
_WORD: Final = re.compile(r"[A-Za-z0-9_]+=")


class Person:
    """A person who types the answers. Each line of `ask_line` is a call, or the text that ends the work; None: no more.

    `ask_line` is a plain function that may block, such as `input`; it is given the text to show first.
    """

    name = "person"

    def __init__(self, ask_line: Callable[[str], str | None]) -> None:
        self._ask_line = ask_line
        self._began = False

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, system: str = ""
    ) -> AsyncIterator[ModelEvent]:
        if system == SUMMARISE:
            raise ModelFailed("a person is not asked for a summary")
        known = [tool["name"] for tool in for_every_model(tools)]
        answered = max((at + 1 for at, message in enumerate(messages) if message.role == "assistant"), default=0)
        shown = "\n".join(_lines(messages, answered if self._began else 0, known))
        self._began = True
        while True:
            try:
                line = await in_anyio_thread(self._ask_line, shown + "\n> ", abandon_on_cancel=True)
            except EOFError:
                line = None
            if line is None:
                raise ModelFailed("the person has left")
            call, wrong = _read(line, known)
            if call:
                yield Turn("", (call,), "tool_use")
                return
            if not wrong and line.strip():
                yield Turn(line.strip())
                return
            shown = wrong or HELP


def _lines(messages: Sequence[Message], start: int, known: Sequence[str]) -> list[str]:
    """New messages, as the model would read them."""
    lines = [f"{HELP} Tools: {', '.join(known) or 'none'}."] if start == 0 else []
    calls: tuple[Call, ...] = ()
    for number, message in enumerate(messages):
        if message.role == "assistant":
            calls = message.calls
        elif number >= start:
            for call, result in zip(calls, message.results, strict=False):
                lines.append(json.dumps(result.to_envelope(call.name), ensure_ascii=False, separators=(",", ":")))
            lines += [message.text] if message.text or message.role == "user" else []
    return lines


def _read(line: str, known: Sequence[str]) -> tuple[Call | None, str]:
    """The call in a line, if it is one; or what is wrong with it."""
    name, _, rest = line.strip().partition(" ")
    if name in known and (arguments := _typed(rest.strip())) is not None:
        return Call("person", name, arguments), ""
    if found := find(line, known, cut=False):
        return Call("person", found.name, found.arguments), ""
    if name in known:
        return None, f"The arguments of {name} are key=value words, or one JSON object."
    begun = _CALL.match(line)
    if begun and begun[1] not in known and line.strip() != begun[1]:
        return None, f"There is no tool {begun[1]!r}; there are {', '.join(known) or 'none'}."
    return None, ""


def _typed(rest: str) -> str | None:
    """Arguments as JSON; None for words that are not arguments."""
    if rest.startswith("{"):
        return rest
    try:
        words = shlex.split(rest)
    except ValueError:
        return None
    if not all(_WORD.match(word) for word in words):
        return None
    return json.dumps({key: value for key, _, value in (word.partition("=") for word in words)}, ensure_ascii=False)
