"""What an MCP server asks the person fits on a screen, however much it asks."""

from io import StringIO
from typing import Any

import anyio
import pytest
from rich.console import Console, RenderableType

from handrail.cli._server_questions import ServerQuestions

pytestmark = pytest.mark.anyio


class TypedTerminal:
    """A terminal at which everything was typed beforehand."""

    width = 100

    def __init__(self, *lines: str) -> None:
        self.turn, self.shown = anyio.Lock(), StringIO()
        self._lines = list(lines)
        self._console = Console(file=self.shown, width=self.width)

    def print(self, what: RenderableType) -> None:
        self._console.print(what)

    def forget(self) -> None: ...

    async def line(self, question: str, until: float | None = None) -> str | None:
        self.shown.write(question)
        return self._lines.pop(0) if self._lines else None

    async def edit(self, text: str) -> str | None:
        return None


async def asked(properties: dict[str, Any], *lines: str) -> tuple[Any, str]:
    """What the server is told, and what the person saw."""
    questions, terminal = ServerQuestions(), TypedTerminal(*lines)
    questions.terminal = terminal
    answer = await questions("raw", "?", {"type": "object", "properties": properties})
    return answer, terminal.shown.getvalue()


async def test_a_question_with_ten_thousand_fields_is_declined_and_the_person_is_told() -> None:
    few = {f"f{number}": {"type": "string"} for number in range(3)}
    assert (await asked(few, "a", "b", "c"))[0] == {"f0": "a", "f1": "b", "f2": "c"}
    answer, shown = await asked({f"f{number}": {"type": "string"} for number in range(10_000)}, *["x"] * 10_000)
    assert answer is None
    assert "10,000 values at once" in shown


async def test_a_field_with_long_words_and_many_choices_is_shown_in_part() -> None:
    field = {"type": "string", "description": "d" * 100_000, "enum": [f"c{number}" for number in range(50_000)]}
    answer, shown = await asked({"n" * 10_000: field}, "c49999")
    assert answer == {"n" * 10_000: "c49999"}
    assert "and 49,900 more" in shown
    assert len(shown) < 10_000
