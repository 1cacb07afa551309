"""The floor: what any Python program pays to run a tool that a model asked for, and nothing else."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from bench.measure import Stopwatch
from handrail import tool


@tool
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def texts(count: int) -> list[str]:
    """Arguments as a model sends them, no two alike."""
    return [json.dumps({"a": number, "b": 2}) for number in range(count)]


def floor_call(count: int) -> float:
    """CPU seconds of one call in a bare asyncio loop: json.loads, call, json.dumps, list append."""
    return asyncio.run(_bare(_add, texts(count)))


async def _bare(function: Callable[..., Awaitable[Any]], arguments: list[str]) -> float:
    log: list[str] = []
    with Stopwatch() as watch:
        for text in arguments:
            log.append(json.dumps(await function(**json.loads(text))))
    return watch.cpu / len(arguments)


async def _add(a: int, b: int = 1) -> int:
    return a + b
