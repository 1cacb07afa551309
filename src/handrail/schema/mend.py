"""The one way in for arguments: parse, validate, repair and convert them, or say why not. Never raises."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from handrail.contract.result import Failure
from handrail.schema.bounce import bounce
from handrail.schema.explain import Convert, NotConvertible
from handrail.schema.parse import NotJson, parse, plain
from handrail.schema.places import ROOT
from handrail.schema.references import MARK, references
from handrail.schema.repair import NO, GaveUp, Repair, Repairer
from handrail.schema.settle import Settler
from handrail.schema.syntax import read_nearly
from handrail.schema.validate import Problem, Validator
from handrail.schema.words import dotted, shorten, show

LONGEST_REPAIRED: Final = 1 << 20
"""Characters of text beyond which no repair is tried."""
MOST_WARNINGS: Final = 20
_PLAINER: Final = {
    "Unterminated string starting at": "a string is not closed",
    "Expecting value": "a value should be there",
    "Expecting ',' delimiter": "a comma or a closing bracket should be there",
    "Expecting ':' delimiter": "a colon should be there",
    "Expecting property name enclosed in double quotes": "a key in double quotes should be there",
    "Extra data": "there is something after the object",
    "Invalid control character at": "a string has a raw control character",
    "Invalid \\escape": "a string has an escape that JSON does not know",
}
Known = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Mended:
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
        return tuple(repair for repair in self.repairs if repair.loud and repair.changed_value and repair.consequential)


class _Refused(Exception):
    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems


def mend(
    arguments: str | Mapping[str, Any],
    validator: Validator,
    *,
    own: bool = False,
    convert: Convert | None = None,
    cut: bool = False,
    tool: str = "the tool",
    artifact: Known | None = None,
) -> Mended | Failure:
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
        if not refers and _passes(value, validator, own=own):
            return Mended(
                value if isinstance(arguments, str) else arguments, value if convert is None else convert(value)
            )
        mended = _slowly(arguments, value, validator.with_references if refers else validator, own=own)
        pending = refers and _check_references(mended.arguments, artifact)
        return mended if convert is None or pending else replace(mended, converted=convert(mended.arguments))
    except NotConvertible as error:
        return bounce(tool, validator, error.problems, arguments)
    except _Refused as error:
        return bounce(tool, validator, error.problems, arguments)
    except Exception as error:  # noqa: BLE001 - nothing a model sends may raise out of here
        unknown = _problem(f"the arguments cannot be checked ({type(error).__name__})", "plain JSON", arguments)
        return bounce(tool, validator, [unknown], arguments)


def _read(text: str) -> Any:
    try:
        return parse(text)
    except NotJson:
        return NO


def _passes(value: Any, validator: Validator, *, own: bool) -> bool:
    """Whether the call is valid and plainly holds nothing to be tidied."""
    if type(value) is not dict or not validator.is_valid(value):
        return False
    traits = validator.traits
    if traits.unusual or (traits.open and not traits.declared.issuperset(value)):
        return False
    nested = traits.nested
    for name, held in value.items():
        kind = type(held)
        if kind is str or kind is float:
            if _is_suspect(held, own):
                return False
        elif name in nested and (kind is dict or kind is list) and _holds_suspect(held, own):
            return False
    return True


def _is_suspect(value: Any, own: bool) -> bool:
    return (own and value == "") or (type(value) is float and value.is_integer())


def _holds_suspect(value: Any, own: bool) -> bool:
    level = [value]
    while level:
        inner: list[Any] = []
        for item in level:
            inner.extend(item.values() if type(item) is dict else item)
        level = []
        for item in inner:
            if type(item) is dict or type(item) is list:
                level.append(item)
            elif _is_suspect(item, own):
                return True
    return False


def _slowly(arguments: str | Mapping[str, Any], value: Any, validator: Validator, *, own: bool) -> Mended:
    text = arguments if isinstance(arguments, str) else None
    repairer = Repairer(validator, own=own, text=text)
    found = _repaired(value, text, repairer)
    settler = Settler(repairer)
    if text is None or len(text) <= LONGEST_REPAIRED:
        found = _settled(settler, found)
    given = arguments if not isinstance(arguments, str) and found is value else found
    return Mended(given, found, tuple(repairer.repairs), _warnings(repairer, settler))


def _may_refer(arguments: str | Mapping[str, Any], value: Any) -> bool:
    """Whether references may be inside; cheap for the many calls that have none."""
    if isinstance(arguments, str):
        return MARK in arguments or "\\u" in arguments
    return any(isinstance(held, dict | list) for held in value.values()) and any(True for _ in references(value))


def _value(arguments: str | Mapping[str, Any]) -> Any:
    if isinstance(arguments, str):
        return _read(arguments)
    value = arguments if type(arguments) is dict else dict(arguments)
    reason = plain(value)
    if reason is not None:
        raise _Refused([_problem(f"the arguments are not plain JSON: {reason}", "plain JSON", None)])
    return value


def _repaired(value: Any, text: str | None, repairer: Repairer) -> Any:
    validator = repairer.validator
    if value is not NO and validator.is_valid(value):
        return value
    if text is not None and len(text) > LONGEST_REPAIRED:
        raise _Refused(_not_json(text) if value is NO else validator.problems(value))
    opened = _opened(value, text, repairer)
    if opened in ("", None) and not validator.traits.declared and validator.is_valid({}):
        repairer.note("no arguments", (), opened, {}, changed=False)
        return {}
    if opened is NO:
        raise _Refused(_not_json(text or ""))
    try:
        found = repairer.whole(opened)
    except (GaveUp, RecursionError):
        found = NO
    if found is NO or not validator.is_valid(found):
        raise _Refused(validator.problems(repairer.seen))
    return found


def _opened(value: Any, text: str | None, repairer: Repairer) -> Any:
    """The value behind a text that is not strict JSON, or behind a string that holds one."""
    if text is not None and not text.strip():
        return ""
    for _ in range(3):
        if value is NO and text is not None:
            try:
                value, notes = read_nearly(text)
            except NotJson:
                return NO
            repairer.take_notes(notes)
        if not isinstance(value, str) or not value.strip():
            return value
        repairer.note("double-encoded", (), value, "…", changed=False)
        text, value = value, _read(value)
    return value


def _settled(settler: Settler, value: Any) -> Any:
    repairs = settler.repairer.repairs
    mark = len(repairs)
    try:
        found = settler.settle(ROOT, value)
    except (GaveUp, RecursionError):
        found = NO
    if found is NO or not settler.validator.is_valid(found):
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
    said = [str(repair) for repair in repairer.repairs if repair.loud]
    said += [f"`{dotted(path)}` is not in the schema; it was passed on as it is" for path in settler.unknown]
    more = len(said) - MOST_WARNINGS
    return (*said[:MOST_WARNINGS], *([f"and {more} more"] if more > 0 else []))


def _not_json(text: str) -> list[Problem]:
    try:
        parse(text)
    except NotJson as error:
        here = shorten(text[error.position : error.position + 40], 40)
        near = f" at character {error.position}, near {show(here)}" if error.position and here else ""
        ended = "; it ends before the object is closed" if error.position >= len(text.rstrip()) - 1 else ""
        reason = _PLAINER.get(error.message, error.message)
        return [_problem(f"the arguments are not JSON: {reason}{near}{ended}", "one JSON object", text)]
    return [_problem("the arguments are not one JSON object", "one JSON object", text)]


def _problem(message: str, expected: str, received: Any) -> Problem:
    return Problem("", message, expected, show(received))
