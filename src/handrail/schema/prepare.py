"""The one way in for arguments: parse, validate, repair and convert them, or say why not. Never raises."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from handrail.contract.result import Failure
from handrail.schema._fast_path import passes
from handrail.schema._nearly_json import read_nearly
from handrail.schema._repairer import NO, GaveUp, Repairer
from handrail.schema._tidy import Settler
from handrail.schema.artifact_refs import MARK, references
from handrail.schema.describe import dotted, shorten, show
from handrail.schema.explain import Convert, NotConvertible
from handrail.schema.navigate import ROOT, Spec
from handrail.schema.parse import BLANK, DEEPEST_VALUE, NotJson, parse, plain
from handrail.schema.refuse import refuse
from handrail.schema.repair import Repair
from handrail.schema.validate import Problem, Validator

LONGEST_REPAIRED: Final = 1 << 20
"""Characters of text beyond which no repair is tried."""
MOST_WARNINGS: Final = 20
NAME_KEYS: Final = ("name", "tool", "function")
"""Keys under which a call names its tool."""
ARGUMENT_KEYS: Final = ("arguments", "parameters", "input", "args")
"""Keys under which a call holds its arguments."""
_PLAIN_REASONS: Final = {
    "Unterminated string starting at": "a string is not closed",
    "Expecting value": "a value should be there",
    "Expecting ',' delimiter": "a comma or a closing bracket should be there",
    "Expecting ':' delimiter": "a colon should be there",
    "Expecting property name enclosed in double quotes": "a key in double quotes should be there",
    "Extra data": "there is something after the object",
    "Invalid control character at": "a string has a raw control character",
    "Invalid \\escape": "a string has an escape that JSON does not know",
}
_TOO_MANY_KEYS: Final = Problem("", "the arguments have too many keys that are not declared", "declared keys", "others")
Known = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Prepared:
    """Arguments that fit, and what was done to them."""

    arguments: Mapping[str, Any]
    """Plain JSON, valid; the very object that was given when a valid mapping was."""
    converted: Mapping[str, Any]
    """The same in the function's own types; as they are where a reference has still to be filled in."""
    repairs: tuple[Repair, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def doubtful(self) -> tuple[Repair, ...]:
        """The repairs that changed the value of a consequential field: not to be run without asking."""
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
    artifact: Known | None = None,
) -> Prepared | Failure:
    """Arguments as the tool may have them, or the bounce.

    `own`: the schema was derived, so a blank in optional text is a filler. `cut`: the model was cut off in this
    call, which is then refused. `artifact`: whether a reference is known; without it none is accepted.
    """
    try:
        if cut:
            raise _Refused(
                [_problem("the answer was cut off inside this call, so it is not whole", "a whole call", arguments)]
            )
        value = _value(arguments)
        refers = artifact is not None and _may_refer(arguments, value)
        if not refers and passes(value, validator, own=own):
            return Prepared(
                value if isinstance(arguments, str) else arguments, value if convert is None else convert(value)
            )
        prepared = _slowly(arguments, value, validator.with_references if refers else validator, own=own, tool=tool)
        pending = refers and _check_references(prepared.arguments, artifact)
        return prepared if convert is None or pending else replace(prepared, converted=convert(prepared.arguments))
    except NotConvertible as error:
        return refuse(tool, validator, error.problems, arguments, convert=convert)
    except _Refused as error:
        return refuse(tool, validator, error.problems, arguments, convert=convert)
    except Exception as error:  # noqa: BLE001 - nothing a model sends may raise out of here
        unknown = _problem(f"the arguments cannot be checked ({type(error).__name__})", "plain JSON", arguments)
        return refuse(tool, validator, [unknown], arguments, convert=convert)


def _read(text: str) -> Any:
    try:
        return parse(text)
    except NotJson:
        return NO


def _slowly(arguments: str | Mapping[str, Any], value: Any, validator: Validator, *, own: bool, tool: str) -> Prepared:
    text = arguments if isinstance(arguments, str) else None
    repairer = Repairer(validator, own=own, text=text)
    found = _repaired(value, text, repairer, tool)
    settler = Settler(repairer)
    if text is None or len(text) <= LONGEST_REPAIRED:
        found = _settled(settler, found)
    given = arguments if not isinstance(arguments, str) and found is value else found
    return Prepared(given, found, tuple(repairer.repairs), _warnings(repairer, settler))


def _may_refer(arguments: str | Mapping[str, Any], value: Any) -> bool:
    """Whether references may be inside; cheap for the many calls that have none."""
    if isinstance(arguments, str):
        return MARK in arguments or "\\u" in arguments
    return any(isinstance(item, dict | list) for item in value.values()) and any(True for _ in references(value))


def _value(arguments: str | Mapping[str, Any]) -> Any:
    if isinstance(arguments, str):
        return _read(arguments)
    value = arguments if type(arguments) is dict else dict(arguments)
    reason = plain(value)
    if reason is not None:
        raise _Refused([_problem(f"the arguments are not plain JSON: {reason}", "plain JSON", None)])
    return value


def _repaired(value: Any, text: str | None, repairer: Repairer, tool: str) -> Any:
    validator = repairer.validator
    if text is not None and len(text) > LONGEST_REPAIRED:
        if value is not NO and validator.is_valid(value):
            return value
        raise _Refused(_not_json(text) if value is NO else validator.problems(value))
    opened = _without_call(_opened(value, text, repairer, tool), repairer, tool)
    if opened in ("", None) and not validator.traits.declared and validator.is_valid({}):
        repairer.note("no arguments", (), opened, {}, changed=False)
        return {}
    if validator.is_valid(opened):
        return opened
    try:
        found = repairer.whole(opened)
    except (GaveUp, RecursionError):
        found = NO
    if found is NO or not validator.is_valid(found):
        raise _Refused(validator.problems(repairer.seen))
    return found


def _opened(value: Any, text: str | None, repairer: Repairer, tool: str) -> Any:
    """The value behind a text that is not strict JSON, or behind a string that holds one."""
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


def _without_call(value: Any, repairer: Repairer, tool: str) -> Any:
    """The arguments of a call that was sent, whole, as the arguments: `{"name": this tool, "arguments": …}`.

    Where the schema says that unknown keys are wanted, what fits it is left as it is.
    """
    spec = repairer.validator.spec(ROOT)
    for _ in range(DEEPEST_VALUE):
        call = value[0] if isinstance(value, list) and len(value) == 1 else value
        if not isinstance(call, dict) or (_wants_others(spec) and repairer.validator.is_valid(call)):
            return value
        wrapped = _wrapped(call, spec.properties, tool)
        if wrapped is None:
            return value
        outer, inner = wrapped
        mark = len(repairer.repairs)
        inner = _opened(_read(inner), inner, repairer, tool) if isinstance(inner, str) else inner
        if any(key in spec.properties and not (isinstance(inner, dict) and key in inner) for key in outer):
            del repairer.repairs[mark:]
            return value
        repairer.note("wrapper taken off", (), {**outer, "…": "…"}, "…", changed=False)
        value = inner
    return value


def _wrapped(value: dict[str, Any], declared: Collection[str], tool: str) -> tuple[dict[str, Any], Any] | None:
    """What is around the arguments, and the arguments; None where the value is no call of this tool, and nothing more.

    Refuses a call of another tool.
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
        message = f"the arguments hold a call of {show(name)}, and {show(tool)} was called"
        raise _Refused([_problem(message, f"the arguments of {tool} alone", value)])
    return None


def _is_schema(values: Mapping[str, Any]) -> bool:
    """Whether the description of the arguments was sent instead of arguments."""
    return any(isinstance(item, dict) and item.keys() & {"type", "$ref", "anyOf", "enum"} for item in values.values())


def _wants_others(spec: Spec) -> bool:
    return spec.get("additionalProperties") is not None or spec.patterned


def _settled(settler: Settler, value: Any) -> Any:
    repairs = settler.repairer.repairs
    mark = len(repairs)
    try:
        found = settler.settle(ROOT, value)
    except (GaveUp, RecursionError):
        found = NO
    if settler.problems:
        raise _Refused(settler.problems)
    if found is NO or not settler.validator.is_valid(found):
        if settler.moved:
            raise _Refused(settler.validator.problems(value if found is NO else found) or [_TOO_MANY_KEYS])
        del repairs[mark:]
        return value
    return found


def _check_references(value: Any, artifact: Known | None) -> bool:
    """Whether there are references still to be filled in. Refuses one that nobody knows."""
    pending = False
    for path, reference in references(value):
        pending = True
        if artifact is None or not artifact(reference):
            where = dotted(path)
            message = f"`{where}` refers to {show(reference)}, and there is no such artifact"
            raise _Refused([Problem(where, message, "a reference that was given to you", show(reference))])
    return pending


def _warnings(repairer: Repairer, settler: Settler) -> tuple[str, ...]:
    warnings = [str(repair) for repair in repairer.repairs if repair.loud]
    warnings += [f"`{dotted(path)}` is not in the schema; it was passed on as it is" for path in settler.unknown]
    more = len(warnings) - MOST_WARNINGS
    return (*warnings[:MOST_WARNINGS], *([f"and {more} more"] if more > 0 else []))


def _not_json(text: str, nearly: NotJson | None = None) -> list[Problem]:
    """Why a text is refused; `nearly` says what stopped the repair, which is told where it came further."""
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
