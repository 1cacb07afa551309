"""Recordings of conversations, so that a command in a process of its own has a model that needs no network."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from handrail import Call, Message, Success, Turn
from handrail.models import Recording
from handrail.testing import ScriptedModel
from tests.cli.terminal import Terminal, begun, say, terminal

Answer = Turn | str


def called(*calls: tuple[str, dict[str, Any]], text: str = "") -> Turn:
    """An answer that makes these calls."""
    return Turn(text, tuple(Call(f"c{number}", *each) for number, each in enumerate(calls)), "tool_use")


def bash(command: str, **more: Any) -> Turn:
    return called(("bash", {"command": command, **more}))


def recorded(path: Path, *talks: tuple[str, Sequence[Answer]], before: Sequence[Message] = ()) -> str:
    """Record what a model answers to each prompt, and return the name to open it by."""
    asked: list[tuple[Sequence[Message], Answer]] = []
    messages = list(before)
    for prompt, turns in talks:
        messages.append(Message("user", prompt))
        for turn in turns:
            asked.append((tuple(messages), turn))
            messages += after(turn)
    return recorded_answers(path, asked)


def after(turn: Answer) -> list[Message]:
    """An answer and what its calls gave, as the next question has them."""
    text, calls = (turn, ()) if isinstance(turn, str) else (turn.text, turn.calls)
    results = [Message("tool", results=tuple(Success(None) for _ in calls))] if calls else []
    return [Message("assistant", text, calls), *results]


def recorded_answers(path: Path, asked: Sequence[tuple[Sequence[Message], Answer]]) -> str:
    """Record the answer to each of these questions, also of conversations inside of others."""

    async def main() -> None:
        model = Recording(ScriptedModel([turn for _, turn in asked]), path)
        for messages, _ in asked:
            assert [piece async for piece in model.ask(messages, [])]

    anyio.run(main)
    return f"recorded:{path}"


@contextmanager
def chatting(
    work: Path, home: Mapping[str, str], prompt: str, answers: Sequence[Answer], *words: str, columns: int = 80
) -> Iterator[Terminal]:
    """`handrail chat` in a terminal, where this prompt was sent to a model with these answers."""
    model = recorded(work.parent / "r", (prompt, answers))
    with terminal("chat", "--model", model, *words, cwd=work, columns=columns, env=home) as screen:
        begun(screen)
        say(screen, prompt)
        yield screen
