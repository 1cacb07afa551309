"""Prepare a call's arguments: parse, validate, repair and convert them, or say what is wrong. Never raises."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from handrail.contract.result import Failure
from handrail.schema._fast_path import passes
from handrail.schema._nearly_json import read_nearly
from handrail.schema._normalize import Normalizer
from handrail.schema._repairer import NO, GaveUp, Repairer
from handrail.schema.artifact_refs import MARK, references
from handrail.schema.describe import dotted, shorten, show
from handrail.schema.explain import Convert, NotConvertible
from handrail.schema.navigate import ROOT, Spec
from handrail.schema.parse import BLANK, DEEPEST_VALUE, NotJson, parse, plain
from handrail.schema.refuse import refuse
from handrail.schema.repair import Repair
from handrail.schema.validate import Problem, Validator

MAX_REPAIRED_CHARS: Final = 1 << 20
"""Length of the longest text that is repaired, in characters."""
MAX_WARNINGS_COUNT: Final = 20
NAME_KEYS: Final = ("name", "tool", "function")
"""Keys under which a call names its tool."""
ARGUMENT_KEYS: Final = ("arguments", "parameters", "input", "args")
"""Keys under which a call holds its arguments."""
_PLAIN_REASONS: Final = {
    "Unterminated string starting at": "a string is not closed",
    "Expecting value": "a value is missing",
    "Expecting ',' delimiter": "a comma or a closing bracket is missing",
    "Expecting ':' delimiter": "a colon is missing",
    "Expecting property name enclosed in double quotes": "a key in double quotes is missing",
    "Extra data": "there is something after the object",
    "Invalid control character at": "a string has an unescaped control character",
    "Invalid \\escape": "a string has an escape that is not valid JSON",
}
_CUT_OFF: Final = "the answer was cut off inside this call, so the call is incomplete"
_TOO_MANY_KEYS: Final = Problem("", "the arguments have too many keys that are not declared", "declared keys", "others")
Fault = Callable[[str], str]
"""Function that says what is wrong with a reference, as the end of a sentence; "" if nothing is."""


@dataclass(slots=True)
class Prepared:
    """Valid arguments, and what was done to them."""

    arguments: Mapping[str, Any]
    """Valid plain JSON; the given object itself if it was a valid mapping."""
    converted: Mapping[str, Any]
    """The same arguments in the function's own types; not converted if a reference is still to be filled in."""
    repairs: tuple[Repair, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def doubtful(self) -> tuple[Repair, ...]:
        """The repairs that changed the value of a consequential field: the call is not run without approval."""
        return tuple(repair for repair in self.repairs if repair.doubtful)


class _Refused(Exception):
    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems


def prepare(
    arguments: str | Mapping[str, Any],
    validator: Validator,
    *,
    own: bool = False,
    convert: Convert | None = None,
    cut: bool = False,
    tool: str = "the tool",
    artifact: Fault | None = None,
) -> Prepared | Failure:
    """The arguments as the tool accepts them, or a Failure that says what to send instead.

    `own`: the schema was derived, so a blank optional text means absent. `cut`: the model was cut off in this call,
    which is then refused. `artifact` tells what is wrong with a reference; without it references are not accepted.
    """
    try:
        if cut:
            raise _Refused([_problem(_CUT_OFF, "a complete call", arguments)])
        value = _value(arguments)
        if validator.overloaded_by(value):
            raise _Refused([validator.overload(value)])
        refers = artifact is not None and _may_refer(arguments, value)
        if not refers and type(value) is dict and validator.is_valid(value) and passes(value, validator, own=own):
            given = value if isinstance(arguments, str) else arguments
            return Prepared(given, value if convert is None else convert(value))
        prepared = _repair_and_normalize(
            arguments, value, validator.with_references if refers else validator, own=own, tool=tool
        )
        pending = refers and _check_references(prepared.arguments, artifact)
        return prepared if convert is None or pending else replace(prepared, converted=convert(prepared.arguments))
    except (NotConvertible, _Refused) as error:
        problems = error.problems
    except Exception as error:  # noqa: BLE001 - nothing a model sends may raise out of here
        problems = [_problem(f"the arguments cannot be checked ({type(error).__name__})", "plain JSON", arguments)]

    def as_it_is(candidate: Mapping[str, Any]) -> dict[str, Any]:
        return _unchanged(candidate, validator, own=own, convert=convert, tool=tool)

    return refuse(tool, validator, problems, arguments, convert=as_it_is)


def _unchanged(
    example: Mapping[str, Any], validator: Validator, *, own: bool, convert: Convert | None, tool: str
) -> dict[str, Any]:
    """An example, converted. Raises NotConvertible if it would be refused itself, or repaired."""
    repairer = Repairer(validator, own=own, text=None)
    normalizer = Normalizer(repairer)
    try:
        _normalized(normalizer, _repaired(example, None, repairer, tool))
    except _Refused as error:
        raise NotConvertible(error.problems) from None
    changed = [*(repair.path for repair in repairer.repairs), *map(dotted, normalizer.unknown)]
    if changed:
        raise NotConvertible([Problem(path, "would be repaired", "", "") for path in changed])
    return dict(example) if convert is None else convert(example)


def _read(text: str) -> Any:
    try:
        return parse(text)
    except NotJson:
        return NO


def _repair_and_normalize(
    arguments: str | Mapping[str, Any], value: Any, validator: Validator, *, own: bool, tool: str
) -> Prepared:
    text = arguments if isinstance(arguments, str) else None
    repairer = Repairer(validator, own=own, text=text)
    result = _repaired(value, text, repairer, tool)
    normalizer = Normalizer(repairer)
    if text is None or len(text) <= MAX_REPAIRED_CHARS:
        result = _normalized(normalizer, result)
    given = arguments if not isinstance(arguments, str) and result is value else result
    return Prepared(given, result, tuple(repairer.repairs), _warnings(repairer, normalizer))


def _may_refer(arguments: str | Mapping[str, Any], value: Any) -> bool:
    """Whether the arguments may contain references; cheap for the many calls that have none."""
    if isinstance(arguments, str):
        return MARK in arguments or "\\u" in arguments
    inner = value.values() if isinstance(value, dict) else ()
    return any(isinstance(item, dict | list) for item in inner) and any(True for _ in references(value))


def _value(arguments: str | Mapping[str, Any]) -> Any:
    if isinstance(arguments, str):
        return _read(arguments)
    value = dict(arguments) if isinstance(arguments, Mapping) and type(arguments) is not dict else arguments
    reason = plain(value)
    if reason is not None:
        raise _Refused([_problem(f"the arguments are not plain JSON: {reason}", "plain JSON", value)])
    return value


def _repaired(value: Any, text: str | None, repairer: Repairer, tool: str) -> Any:
    validator = repairer.validator
    if text is not None and len(text) > MAX_REPAIRED_CHARS:
        if value is not NO and validator.is_valid(value):
            return value
        raise _Refused(_not_json(text) if value is NO else validator.problems(value))
    opened = _unwrap_call(_decoded(value, text, repairer, tool), repairer, tool)
    if opened in ("", None) and not validator.traits.declared and validator.is_valid({}):
        repairer.note("no arguments", (), opened, {}, changed=False)
        return {}
    if validator.is_valid(opened):
        return opened
    try:
        result = repairer.whole(opened)
    except (GaveUp, RecursionError):
        result = NO
    if result is NO or not validator.is_valid(result):
        raise _Refused(validator.problems(repairer.seen))
    return result


def _decoded(value: Any, text: str | None, repairer: Repairer, tool: str) -> Any:
    """The value of a text that is nearly JSON, or of JSON that was encoded twice."""
    if text is not None and not text.strip(BLANK):
        return ""
    for _ in range(3):
        if value is NO and text is not None:
            try:
                value, notes = read_nearly(text, repairer.keys, tool)
            except NotJson as error:
                raise _Refused(_not_json(text, error)) from None
            repairer.take_notes(notes)
        if not isinstance(value, str) or not value.strip():
            return value
        repairer.note("double-encoded", (), value, "…", changed=False)
        text, value = value, _read(value)
    return value


def _unwrap_call(value: Any, repairer: Repairer, tool: str) -> Any:
    """The inner arguments, if a whole call was sent as the arguments: `{"name": this tool, "arguments": …}`.

    If the schema accepts additional keys, valid arguments are left alone.
    """
    spec = repairer.validator.spec(ROOT)
    for _ in range(DEEPEST_VALUE):
        call = value[0] if isinstance(value, list) and len(value) == 1 else value
        if not isinstance(call, dict) or (_wants_others(spec) and repairer.validator.is_valid(call)):
            return value
        wrapped = _wrapper_and_arguments(call, spec.properties, tool)
        if wrapped is None:
            return value
        outer, inner = wrapped
        mark = len(repairer.repairs)
        inner = _decoded(_read(inner), inner, repairer, tool) if isinstance(inner, str) else inner
        if any(key in spec.properties and not (isinstance(inner, dict) and key in inner) for key in outer):
            del repairer.repairs[mark:]
            return value
        repairer.note("wrapper taken off", (), {**outer, "…": "…"}, "…", changed=False)
        value = inner
    return value


def _wrapper_and_arguments(
    value: dict[str, Any], declared: Collection[str], tool: str
) -> tuple[dict[str, Any], Any] | None:
    """The wrapper and the arguments in it; None if the value is not exactly a call of this tool.

    Raises _Refused for a call of another tool.
    """
    if len(value) > 3:
        return None
    outer = dict(value)
    if outer.keys() == {"type", "properties"} and outer["type"] == "object":
        inner = outer.pop("properties")
        fits = isinstance(inner, dict) and not inner.keys().isdisjoint(declared) and not _is_schema(inner)
        return (outer, inner) if fits and "properties" not in declared else None
    kind = outer.pop("type", "function")
    if kind == "function" and "type" in value and outer.keys() == {"function"} and isinstance(outer["function"], dict):
        outer = dict(outer["function"])
    name = next((outer.pop(key) for key in NAME_KEYS if isinstance(outer.get(key), str)), None)
    if name is None or kind != "function" or len(outer) != 1 or (key := next(iter(outer))) not in ARGUMENT_KEYS:
        return None
    around = {name: value[name] for name in value if name != key}
    if key in declared:
        return None
    if name == tool:
        return around, outer[key]
    if around.keys().isdisjoint(declared):
        message = f"the arguments are a call of {show(name)}, but {show(tool)} was called"
        raise _Refused([_problem(message, f"the arguments of {tool} alone", value)])
    return None


def _is_schema(values: Mapping[str, Any]) -> bool:
    """Whether a schema was sent instead of arguments."""
    return any(isinstance(item, dict) and item.keys() & {"type", "$ref", "anyOf", "enum"} for item in values.values())


def _wants_others(spec: Spec) -> bool:
    return spec.get("additionalProperties") is not None or spec.patterned


def _normalized(normalizer: Normalizer, value: Any) -> Any:
    repairs = normalizer.repairer.repairs
    mark = len(repairs)
    try:
        result = normalizer.normalize(ROOT, value)
    except (GaveUp, RecursionError):
        result = NO
    if normalizer.problems:
        raise _Refused(normalizer.problems)
    if result is NO or not normalizer.validator.is_valid(result):
        if normalizer.moved:
            raise _Refused(normalizer.validator.problems(value if result is NO else result) or [_TOO_MANY_KEYS])
        del repairs[mark:]
        return value
    return result


def _check_references(value: Any, artifact: Fault | None) -> bool:
    """Whether there are references to be filled in. Raises _Refused for one that cannot be."""
    pending = False
    for path, reference in references(value):
        pending = True
        if artifact is not None and (fault := artifact(reference)):
            where = dotted(path)
            message = f"`{where}` refers to {show(reference)}, but {fault}"
            raise _Refused([Problem(where, message, "a reference that was given to you", show(reference))])
    return pending


def _warnings(repairer: Repairer, normalizer: Normalizer) -> tuple[str, ...]:
    warnings = [str(repair) for repair in repairer.repairs if repair.loud]
    warnings += [f"`{dotted(path)}` is not in the schema; it was passed on unchanged" for path in normalizer.unknown]
    more = len(warnings) - MAX_WARNINGS_COUNT
    return (*warnings[:MAX_WARNINGS_COUNT], *([f"and {more} more"] if more > 0 else []))


def _not_json(text: str, nearly: NotJson | None = None) -> list[Problem]:
    """Why a text is not JSON. `nearly` is the error that stopped the repair; it is reported if it came further."""
    try:
        parse(text)
    except NotJson as strict:
        error = nearly if nearly is not None and nearly.position >= strict.position else strict
        here = shorten(text[error.position : error.position + 40], 40)
        near = f" at character {error.position}, near {show(here)}" if error.position and here else ""
        ended = "; it ends before the object is closed" if error.position >= len(text.rstrip()) - 1 else ""
        reason = _PLAIN_REASONS.get(error.message, error.message)
        return [_problem(f"the arguments are not JSON: {reason}{near}{ended}", "one JSON object", text)]
    return [_problem("the arguments are not one JSON object", "one JSON object", text)]


def _problem(message: str, expected: str, received: Any) -> Problem:
    return Problem("", message, expected, show(received))
