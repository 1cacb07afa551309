"""Put what an MCP server asks its user to the person at the terminal, field by field."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.panel import Panel
from rich.text import Text

from handrail.cli._terminal import WIDEST, Terminal
from handrail.contract.errors import BadSchema
from handrail.policy.approval import visible
from handrail.schema.describe import describe
from handrail.schema.prepare import Prepared, prepare
from handrail.schema.validate import Validator

MAX_QUESTION_CHARS = 4_000
"""Characters of a question that are shown."""
MAX_FIELDS_COUNT = 30
"""Values that one question may ask for."""
MAX_CHOICES_COUNT = 100
"""Choices of one value that are shown."""
MAX_LINE_CHARS = 600
"""Characters of a field's description, or of a choice, that are shown."""
YES_OR_NO = {"y": True, "yes": True, "n": False, "no": False}


class ServerQuestions:
    """Asks once there is a terminal; without one, and where the person does not answer, the server is told so."""

    def __init__(self) -> None:
        self.terminal: Terminal | None = None
        """The person's terminal; set it once they can type there."""

    async def __call__(self, server: str, question: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The answer, by field; None if the person declines."""
        if self.terminal is None:
            return None
        async with self.terminal.turn:
            return await self._answer(self.terminal, server, question, schema)

    async def _answer(
        self, terminal: Terminal, server: str, question: str, schema: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        given = schema.get("properties")
        fields = {name: field for name, field in given.items() if isinstance(field, Mapping)} if given else {}
        body = Text(visible(question[:MAX_QUESTION_CHARS]))
        body.append("\n\nIt gets what you type. Ctrl-D declines.", style="dim")
        title = Text(f"The MCP server {visible(server, lines=False)} asks")
        terminal.print(Panel(body, title=title, border_style="yellow", width=min(terminal.width, WIDEST)))
        terminal.forget()
        if len(fields) > MAX_FIELDS_COUNT:
            terminal.print(Text(f"It asks for {len(fields):,} values at once. That was declined.", style="red"))
            return None
        if not fields:
            return {} if await self._agrees(terminal) else None
        required = schema.get("required")
        answer: dict[str, Any] = {}
        for name, field in fields.items():
            said = await self._field(terminal, name, field, required=isinstance(required, list) and name in required)
            if said is None:
                return None
            answer |= said
        return answer

    async def _agrees(self, terminal: Terminal) -> bool:
        return (await terminal.line("[y]es, [n]o? ") or "").strip().lower() in ("y", "yes")

    async def _field(
        self, terminal: Terminal, name: str, field: Mapping[str, Any], *, required: bool
    ) -> dict[str, Any] | None:
        """The field with what was typed, or without it where it may be left out; None for end of input."""
        choices = _choices(field)
        for number, (_, words) in enumerate(choices[:MAX_CHOICES_COUNT], 1):
            terminal.print(Text(f"  {number}. {visible(words[:MAX_LINE_CHARS], lines=False)}"))
        if len(choices) > MAX_CHOICES_COUNT:
            terminal.print(Text(f"  and {len(choices) - MAX_CHOICES_COUNT:,} more"))
        asked = _asked(name, field, required=required)
        while (line := await terminal.line(asked)) is not None:
            text = line.strip()
            if not text and (not required or "default" in field):
                return {}
            try:
                ready = prepare({name: _meant(text, field, choices)}, _checks(name, field), own=False, tool=name)
            except BadSchema as error:
                terminal.print(Text(visible(f"This cannot be answered: {error}", lines=False), style="red"))
                return None
            if isinstance(ready, Prepared):
                return dict(ready.arguments)
            errors = ready.data.get("errors") or [{"message": ready.message}]
            terminal.print(Text(visible(errors[0]["message"], lines=False), style="red"))
        return None


def _checks(name: str, field: Mapping[str, Any]) -> Validator:
    return Validator.lenient({"type": "object", "properties": {name: dict(field)}, "required": [name]})[0]


def _asked(name: str, field: Mapping[str, Any], *, required: bool) -> str:
    """One line: what the field is called, what it is about, and what an empty line means."""
    about = field.get("description") or field.get("title")
    wanted = describe(field, field)
    parts = [about if isinstance(about, str) else "", "" if wanted == "any value" else wanted]
    if "default" in field:
        parts.append(f"empty: {field['default']!r}")
    elif not required:
        parts.append("empty: left out")
    listed = "; ".join(part[:MAX_LINE_CHARS] for part in parts if part)
    return visible(f"{name[:MAX_LINE_CHARS]} ({listed}): " if listed else f"{name[:MAX_LINE_CHARS]}: ", lines=False)


def _choices(field: Mapping[str, Any]) -> Sequence[tuple[Any, str]]:
    """The values that can be chosen, each with the words for it."""
    items = field.get("items")
    if isinstance(items, Mapping):
        field = items
    for keyword in ("oneOf", "anyOf"):
        if isinstance(field.get(keyword), list):
            listed = [each for each in field[keyword] if isinstance(each, Mapping) and "const" in each]
            return [(each["const"], str(each.get("title") or each["const"])) for each in listed]
    members = field.get("enum")
    if not isinstance(members, list):
        return []
    names = field.get("enumNames")
    words = names if isinstance(names, list) and len(names) == len(members) else members
    return [(member, str(word)) for member, word in zip(members, words, strict=True)]


def _meant(text: str, field: Mapping[str, Any], choices: Sequence[tuple[Any, str]]) -> Any:
    """The value that the text means: a choice by its number or words, yes or no, several with commas between them."""
    if field.get("type") == "array":
        one = field.get("items")
        inner = one if isinstance(one, Mapping) else {}
        return [_meant(part.strip(), inner, choices) for part in text.split(",") if part.strip()]
    if choices:
        if text.isdecimal() and 0 < int(text) <= len(choices):
            return choices[int(text) - 1][0]
        return next((value for value, words in choices if text in (words, str(value))), text)
    if field.get("type") == "boolean":
        return YES_OR_NO.get(text.lower(), text)
    return text
