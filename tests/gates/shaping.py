"""What the tests of the shape gate share: a tool that gives one value, and everything its answer leads to."""

import json
import re
from typing import Any

from handrail import Session, Tool

OBJECT = {"type": "object"}
MARKER = re.compile(
    r"\n?\[… (?P<left>[\d,]+) of (?P<total>[\d,]+) characters left out(?:; full output: (?P<ref>a_[0-9a-f]+))?\]\n?"
)


class Printed:
    """The whole of a text, as a sandbox has it."""

    def __init__(self, data: bytes, *, incomplete: bool = False) -> None:
        self.data, self.incomplete = data, incomplete

    def __call__(self, start: int, length: int, /) -> bytes:
        return self.data[start : start + length]


def giving(value: Any, **options: Any) -> Tool:
    return Tool("t", OBJECT, lambda context, arguments: value, **options)


async def answer(value: Any, *, tokens: int | None = None, **options: Any) -> tuple[Any, dict[str, str]]:
    """The result, and every artifact it names with its content."""
    async with Session([giving(value, **options)]) as session:
        session.tokens_left = tokens
        result = await session.call("t")
        named = set(re.findall(r"a_[0-9a-f]{32}", json.dumps(result.to_envelope("t"))))
        return result, {ref: (await session.artifacts.read(ref)).decode() for ref in named}


def numbered(count: int) -> str:
    return "".join(f"{n:09} " for n in range(count // 10))
