"""What preflight costs: a valid call against bare parsing and validating of the same text, and hostile text by size."""

import json
from collections.abc import Callable
from typing import Any, Final

from bench.growth import exponent
from bench.measure import Effort, Row, Stopwatch, interleave, row
from handrail.schema.parse import parse
from handrail.schema.prepare import Prepared, prepare
from handrail.schema.validate import Validator

FAST: Final = 2.0
LINEAR: Final = 1.15
SIZES: Final = (32, 128, 512)
"""Thousands of characters, all below the size at which repair is no longer tried."""
TEXT: Final = {"type": "string"}
EDITS: Final = {
    "type": "object",
    "properties": {"old": TEXT, "new": TEXT},
    "required": ["old", "new"],
    "additionalProperties": False,
}
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "path": TEXT,
        "limit": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["fast", "slow"]},
        "tags": {"type": "array", "items": TEXT},
        "ids": {"type": "array", "items": {"type": "integer"}},
        "edits": {"type": "array", "items": EDITS},
        "deep": {"type": "boolean"},
    },
    "required": ["path"],
    "additionalProperties": False,
}
CALLS: Final[dict[str, dict[str, Any]]] = {
    "five fields": {"path": "src/main.py", "limit": 20, "mode": "fast", "tags": ["a", "b"], "deep": True},
    "a list of 20 objects": {"path": "a", "edits": [{"old": f"line {n}", "new": f"text {n}"} for n in range(20)]},
    "100 kB of text": {"path": "line of text\n" * 8_000},
}
HOSTILE: Final[dict[str, Callable[[int], str]]] = {
    "open string": lambda size: '{"path": "' + "a\\" * (size // 2),
    "quotes": lambda size: "{" + "'\"" * (size // 2),
    "nearly JSON": lambda size: "{'path': 'a', 'tags': [" + "'a'," * (size // 4) + "]}",
    "wrong items": lambda size: '{"path": "a", "ids": [' + '"x",' * (size // 4) + '"x"]}',
    "unknown keys": lambda size: "{" + ",".join(f'"k{n}": {n}' for n in range(size // 14)) + "}",
}


def rows(effort: Effort) -> list[Row]:
    checks = Validator(SCHEMA)
    return [*_fast(checks, effort), *_hostile(checks, effort)]


def _fast(checks: Validator, effort: Effort) -> list[Row]:
    found: list[Row] = []
    loads, is_valid = json.loads, checks.is_valid
    for name, value in CALLS.items():
        text = json.dumps(value)
        assert isinstance(_prepare(text, checks), Prepared)
        count = effort.count(2_000_000 // len(text))
        times = interleave(
            {
                "bare": lambda t=text, n=count: _each(lambda: is_valid(loads(t)), n),  # type: ignore[misc]
                "parse": lambda t=text, n=count: _each(lambda: parse(t), n),  # type: ignore[misc]
                "prepare": lambda t=text, n=count: _each(lambda: _prepare(t, checks), n),  # type: ignore[misc]
            },
            effort.rounds,
        )
        floor = times["bare"]
        found += [
            row(f"{name}: json.loads and is_valid", floor, "µs", floor=floor),
            row(f"{name}: strict parsing alone", times["parse"], "µs", floor=floor),
            row(f"{name}: preflight", times["prepare"], "µs", floor=floor, bound=FAST),
        ]
    return found


def _hostile(checks: Validator, effort: Effort) -> list[Row]:
    found: list[Row] = []
    for name, make in HOSTILE.items():
        texts = {size: make(size * 1_000 // effort.divide) for size in SIZES}
        samples = {f"{size}": lambda t=text: _each(lambda: _prepare(t, checks), 1) for size, text in texts.items()}
        times = interleave(samples, effort.rounds)
        found += [row(f"{name}, {size} kB", times[f"{size}"], "ms") for size in SIZES]
        grown = exponent([len(text) for text in texts.values()], [times[f"{size}"].median for size in SIZES])
        found.append(Row(f"{name}: growth exponent", grown, "", bound=LINEAR))
    return found


def _prepare(text: str, checks: Validator) -> object:
    return prepare(text, checks, own=True, convert=None, cut=False, tool="edit")


def _each(work: Callable[[], object], count: int) -> float:
    with Stopwatch() as watch:
        for _ in range(count):
            work()
    return watch.cpu / count
