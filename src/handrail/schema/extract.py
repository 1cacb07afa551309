"""Find the one call that a model wrote as text: tagged, fenced, bare JSON or a Python call."""

import ast
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from handrail.schema.parse import NotJson, parse
from handrail.schema.syntax import read_one

LONGEST: Final = 1 << 20
"""Characters of text that are searched."""
MOST_STARTS: Final = 64
"""Braces at which an object is looked for."""
_NAMES: Final = ("name", "tool", "tool_name", "function")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "input")
_AROUND: Final = ("tool_call", "tool_calls", "function_call", "function", "call")
_OPEN: Final = re.compile(
    r'\{\s*+"(?:name|tool|tool_name|function)"\s*+:\s*+"([A-Za-z0-9_-]{1,64})"\s*+,'
    r'\s*+"(?:arguments|parameters|args|input)"\s*+:\s*+(?=\{)'
)
_CLOSING: Final = re.compile(r"\s*+(?:```|</?tool_call>|\s)*+")
_FENCES: Final = re.compile(r"```[^\n`]*+\n(.*?)```", re.DOTALL)
_MISSING_BRACE: Final = "the closing brace of the call was missing and was supplied; the arguments were whole"


@dataclass(frozen=True, slots=True)
class Found:
    """A call as it was written; its arguments are text for preflight to read."""

    name: str
    arguments: str
    warnings: tuple[str, ...] = ()


def extract(text: str, known: Collection[str], *, cut: bool) -> tuple[str, str] | None:
    """The name and the arguments of the one call to a known tool; None when there is none, or more than one."""
    found = find(text, known, cut=cut)
    return None if found is None else (found.name, found.arguments)


def find(text: str, known: Collection[str], *, cut: bool) -> Found | None:
    """As `extract`, with what was supplied. The last call of an answer that was cut is never taken."""
    if cut or len(text) > LONGEST:
        return None
    try:
        spans = list(_python_spans(text, known))
        calls = [call for _, _, call in spans]
        for start, end, _ in reversed(spans):  # what a Python call holds is its own
            text = text[:start] + " " * (end - start) + text[end:]
        calls += _json_calls(text, known)
    except (RecursionError, MemoryError):
        return None
    return calls[0] if len(calls) == 1 else None


def _json_calls(text: str, known: Collection[str]) -> list[Found]:
    calls: list[Found] = []
    at = text.find("{")
    for _ in range(MOST_STARTS):
        if at < 0:
            return calls
        try:
            value, end = read_one(text, at)
        except NotJson:
            unfinished, end = _unfinished(text, at, known)
            calls += unfinished
        else:
            calls += _calls_in(value, known)
        at = text.find("{", end)
    return [] if at >= 0 else calls


def _unfinished(text: str, at: int, known: Collection[str]) -> tuple[list[Found], int]:
    """A call whose arguments are whole and whose own brace is missing at the very end."""
    head = _OPEN.match(text, at)
    if head is None or head[1] not in known:
        return [], at + 1
    try:
        _, end = read_one(text, head.end())
    except NotJson:
        return [], at + 1
    rest = _CLOSING.match(text, end)
    if rest is None or rest.end() != len(text):
        return [], at + 1
    return [Found(head[1], text[head.end() : end], (_MISSING_BRACE,))], len(text)


def _calls_in(value: Any, known: Collection[str]) -> Iterator[Found]:
    if isinstance(value, list):
        for item in value:
            yield from _calls_in(item, known)
    if not isinstance(value, dict):
        return
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
    arguments = next((value[key] for key in _ARGUMENTS if key in value), None)
    if name is not None and arguments is not None:
        if name in known:
            yield Found(name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))
        return
    for key in _AROUND:
        yield from _calls_in(value.get(key), known)


def _python_spans(text: str, known: Collection[str]) -> Iterator[tuple[int, int, Found]]:
    """Python calls that stand alone: the whole text, a whole fence, or a whole line outside of fences."""
    whole = _python_call(text, known)
    if whole is not None:
        yield 0, len(text), whole
        return
    at = 0
    for fence in _FENCES.finditer(text):
        yield from _lines(text, at, fence.start(), known)
        call = _python_call(fence[1], known)
        if call is not None:
            yield fence.start(), fence.end(), call
        at = fence.end()
    yield from _lines(text, at, len(text), known)


def _lines(text: str, start: int, end: int, known: Collection[str]) -> Iterator[tuple[int, int, Found]]:
    for line in re.finditer(r"[^\n]++", text[start:end]):
        call = _python_call(line[0], known)
        if call is not None:
            yield start + line.start(), start + line.end(), call


def _python_call(text: str, known: Collection[str]) -> Found | None:
    source = text.strip().removeprefix("<tool_call>").removesuffix("</tool_call>").strip()
    if not source.endswith((")", ")]")) or source.removeprefix("[").partition("(")[0].strip() not in known:
        return None
    try:
        body = ast.parse(source, mode="eval").body
        if isinstance(body, ast.List) and len(body.elts) == 1:
            body = body.elts[0]
        if not isinstance(body, ast.Call) or not isinstance(body.func, ast.Name) or body.args:
            return None
        arguments = {word.arg: ast.literal_eval(word.value) for word in body.keywords}
        written = json.dumps(arguments, allow_nan=False, ensure_ascii=False)
        if None in arguments or parse(written) is None:
            return None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return Found(body.func.id, written) if body.func.id in known else None
