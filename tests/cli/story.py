"""Recordings of conversations, so that a command in a process of its own has a model that needs no network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from handrail import Call, Message, Success, Turn
from handrail.models import Recording
from handrail.testing import ScriptedModel

Answer = Turn | str


def called(*calls: tuple[str, dict[str, Any]], text: str = "") -> Turn:
    """An answer that makes these calls."""
    return Turn(text, tuple(Call(f"c{number}", *each) for number, each in enumerate(calls)), "tool_use")


def bash(command: str, **more: Any) -> Turn:
    return called(("bash", {"command": command, **more}))


def recorded(path: Path, *talks: tuple[str, Sequence[Answer]], before: Sequence[Message] = ()) -> str:
    """Record what a model answers to each prompt, and return the name to open it by."""

    async def main() -> None:
        model = Recording(ScriptedModel([turn for _, turns in talks for turn in turns]), path)
        messages = list(before)
        for prompt, turns in talks:
            messages.append(Message("user", prompt))
            for _ in turns:
                said: Any = [piece async for piece in model.ask(messages, [])][-1]
                messages.append(Message("assistant", said.text, said.calls))
                if said.calls:
                    messages.append(Message("tool", results=tuple(Success(None) for _ in said.calls)))

    anyio.run(main)
    return f"recorded:{path}"
