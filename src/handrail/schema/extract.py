"""Find the one call that a model wrote as text: tagged, fenced, bare JSON, Python, or a name above its arguments."""

import ast
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from handrail.schema._nearly_json import ObjectInText, read_one
from handrail.schema.parse import NotJson, parse

MAX_SEARCHED_CHARS: Final = 1 << 20
"""Length of text that is searched, in characters."""
MAX_STARTS_COUNT: Final = 64
"""Number of opening braces that are tried."""
_NAME_KEYS: Final = ("name", "tool", "tool_name", "function")
_ARGUMENT_KEYS: Final = ("arguments", "parameters", "args", "input", "params")
_HARMLESS_KEYS: Final = frozenset(
    {"id", "call_id", "tool_call_id", "type", "index", "role", "thought", "thoughts", "thinking", "reasoning"}
)
"""Keys beside the name and the arguments that cannot be misplaced arguments."""
_WRAPPER_KEYS: Final = ("tool_call", "tool_calls", "function_call", "function", "call")
_OPEN: Final = re.compile(
    r'\{\s*+"(?:name|tool|tool_name|function)"\s*+:\s*+"([A-Za-z0-9_-]{1,64})"\s*+,'
    r'\s*+"(?:arguments|parameters|args|input|params)"\s*+:\s*+(?=\{)'
)
_CLOSING: Final = re.compile(r"\s*+(?:```|</?tool_call>|\s)*+")
_GOES_ON: Final = re.compile(r"[\s}\])]*+,\s*+(?:[\"'\u2018-\u201f]|[\w-]++\s*+[:=])")
_TAG: Final = re.compile(r"<[^<>]{1,40}+>\s*+")
_FENCES: Final = re.compile(r"```[^\n`]*+\n(.*?)```", re.DOTALL)
_LINES: Final = re.compile(r"([^\n]++)")
_MISSING_BRACE: Final = "the closing brace of the call was missing and was added; the arguments were complete"


Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call as written; its arguments are still text."""

    name: str
    arguments: str
    warnings: tuple[str, ...] = ()


def find(text: str, known: Collection[str], *, cut: bool) -> FoundCall | None:
    """The one call to a known tool, with warnings about what was added; None if there is none, or more than one.

    An answer that was cut off is never searched.
    """
    if cut or len(text) > MAX_SEARCHED_CHARS or not known:
        return None
    begun = re.compile(rf"(?<![A-Za-z0-9_.])(?:{'|'.join(map(re.escape, sorted(known)))})\(")
    try:
        calls, outside = _json_calls(text, known)
    except (NotJson, RecursionError):
        calls, outside = [], text
    if begun.search(outside):
        return _python_only(text, known, begun)
    return calls[0] if len(calls) == 1 else None


def _json_calls(text: str, known: Collection[str]) -> tuple[list[FoundCall], str]:
    """The calls written as objects, and the text outside all objects.

    Raises NotJson if an object begins but does not end: what is inside it is not a call of its own.
    """
    calls: list[FoundCall] = []
    outside: list[str] = []
    done, at = 0, text.find("{")
    for _ in range(MAX_STARTS_COUNT):
        if at < 0:
            return calls, "".join([*outside, text[done:]])
        unfinished = _unfinished(text, at, known)
        if unfinished is not None:
            return [*calls, unfinished], "".join([*outside, text[done:at]])
        before = text[:at].rstrip()
        one = read_one(text, len(before) - 1 if before.endswith("[") else at)  # a list is read as a whole
        outside.append(text[done:at])
        done = at + 1
        if one is not None:
            result = [*_calls_in(text, one, (), one.value, known), *_named_above(text, one, known)]
            if result and _GOES_ON.match(text, one.end):
                raise NotJson("there is more after the end of the object", one.end)
            calls += result
            done = one.end
        at = text.find("{", done)
    raise NotJson("there are too many braces", at)


def _unfinished(text: str, at: int, known: Collection[str]) -> FoundCall | None:
    """A call with complete arguments that lacks only its own closing brace, at the very end of the text."""
    head = _OPEN.match(text, at)
    if head is None or head[1] not in known:
        return None
    inner = read_one(text, head.end())
    if inner is None or text[:at].rstrip().endswith("["):
        return None
    rest = _CLOSING.match(text, inner.end)
    if rest is None or rest.end() != len(text):
        return None
    return FoundCall(head[1], text[inner.start : inner.end], (_MISSING_BRACE,))


def _calls_in(text: str, one: ObjectInText, path: Path, value: Any, known: Collection[str]) -> Iterator[FoundCall]:
    if isinstance(value, list):
        for at, item in enumerate(value):
            yield from _calls_in(text, one, (*path, at), item, known)
    if not isinstance(value, dict):
        return
    named, key = _name_and_arguments(value)
    if named is None or key is None:
        for around in _WRAPPER_KEYS:
            inside = list(_calls_in(text, one, (*path, around), value.get(around), known))
            if inside and isinstance(value[around], dict):
                _refuse_beside(value, around)
            yield from inside
    elif value[named] in known:
        _refuse_beside(value, named, key)
        start, end = one.spans.get((*path, key), (0, 0))
        written = text[start:end] or json.dumps(value[key], ensure_ascii=False)
        yield FoundCall(value[named], value[key] if isinstance(value[key], str) else written)


def _name_and_arguments(value: dict[str, Any]) -> tuple[str | None, str | None]:
    named = next((key for key in _NAME_KEYS if isinstance(value.get(key), str)), None)
    return named, next((key for key in _ARGUMENT_KEYS if key in value), None)


def _refuse_beside(value: dict[str, Any], *known: str) -> None:
    """Raise NotJson if a call has a key beside its name and arguments that may be a misplaced argument."""
    if not value.keys() - set(known) <= _HARMLESS_KEYS:
        raise NotJson("there is something beside the name and the arguments")


def _named_above(text: str, one: ObjectInText, known: Collection[str]) -> Iterator[FoundCall]:
    """A call whose name stands alone on the line above its arguments."""
    before = text[: one.start].rstrip()
    name = _TAG.sub("", before[before.rfind("\n") + 1 :]).strip()
    if name not in known or "\n" not in text[len(before) : one.start] or not isinstance(one.value, dict):
        return
    named, key = _name_and_arguments(one.value)
    if key is None or named is None or one.value[named] != name:  # else it is found as a call of its own
        yield FoundCall(name, text[one.start : one.end])


def _python_only(text: str, known: Collection[str], begun: re.Pattern[str]) -> FoundCall | None:
    """A Python call that stands alone: the whole text, or one fence or line and no other call."""
    whole = _python_call(text, known)
    starts = list(islice(begun.finditer(text), 2))
    if whole is not None or len(starts) != 1:
        return whole
    for piece in (*_FENCES.finditer(text), *_LINES.finditer(text)):
        if piece.start(1) <= starts[0].start() < piece.end(1):
            call = _python_call(piece[1], known)
            alone = "{" not in text[: piece.start(1)] and "{" not in text[piece.end(1) :]
            if call is not None and alone and not _GOES_ON.match(text, piece.end(1)):
                return call
    return None


def _python_call(text: str, known: Collection[str]) -> FoundCall | None:
    source = text.strip().removeprefix("<tool_call>").removesuffix("</tool_call>").strip().rstrip("; \t\r\n")
    name, _, inside = source.removeprefix("[").partition("(")
    if not source.endswith((")", ")]")) or name.strip() not in known:
        return None
    if inside.lstrip().startswith("{"):
        return _object_call(source, name.strip())
    try:
        body = ast.parse(source, mode="eval").body
        if isinstance(body, ast.List) and len(body.elts) == 1:
            body = body.elts[0]
        if not isinstance(body, ast.Call) or not isinstance(body.func, ast.Name) or body.args or _has_odd_keys(body):
            return None
        arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in body.keywords}
        written = json.dumps(arguments, allow_nan=False, ensure_ascii=False)
        if None in arguments or parse(written) is None:
            return None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return FoundCall(body.func.id, written) if body.func.id in known else None


def _object_call(source: str, name: str) -> FoundCall | None:
    """A Python call with one object: `read({"path": "a"})`."""
    try:
        one = read_one(source, source.index("{"))
    except (NotJson, RecursionError):
        return None
    if one is None or source[one.end :].strip() != ")" or source.startswith("["):
        return None
    return FoundCall(name, source[one.start : one.end])


def _has_odd_keys(body: ast.Call) -> bool:
    """Whether a dict in the call has duplicate keys, or a key that is not text."""
    for node in ast.walk(body):
        if isinstance(node, ast.Dict):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            if len(set(keys)) != len(node.keys):
                return True
    return False
