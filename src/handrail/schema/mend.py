"""The one way in for arguments: parse, validate, repair and convert them, or say why not. Never raises."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from handrail.contract.result import Failure
from handrail.schema.bounce import bounce
from handrail.schema.derive import Convert, NotConvertible
from handrail.schema.parse import NotJson, parse, plain
from handrail.schema.repair import Repair
from handrail.schema.validate import Problem, Validator
from handrail.schema.words import show

LONGEST_REPAIRED: Final = 1 << 20
"""Characters of text beyond which no repair is tried."""


@dataclass(frozen=True, slots=True)
class Mended:
    """Arguments that fit, and what was done to them."""

    arguments: Mapping[str, Any]
    """Plain JSON, valid; the very object that was given when a valid mapping was."""
    converted: Mapping[str, Any]
    """The same in the function's own types."""
    repairs: tuple[Repair, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def doubtful(self) -> tuple[Repair, ...]:
        """The repairs that changed the value of a consequential field: not to be run without asking."""
        return tuple(repair for repair in self.repairs if repair.changed_value and repair.consequential)


def mend(
    arguments: str | Mapping[str, Any],
    validator: Validator,
    *,
    own: bool = False,
    convert: Convert | None = None,
    cut: bool = False,
    tool: str = "the tool",
    artifact: Callable[[str], bool] | None = None,
) -> Mended | Failure:
    """Arguments as the tool may have them, or the bounce."""
    try:
        return _mend(arguments, validator, convert=convert, cut=cut, tool=tool)
    except Exception as error:  # noqa: BLE001 - nothing a model sends may raise out of here
        problem = Problem("", f"the arguments cannot be checked ({type(error).__name__})", "plain JSON", show(None))
        return bounce(tool, validator, [problem], arguments)


def _mend(
    arguments: str | Mapping[str, Any], validator: Validator, *, convert: Convert | None, cut: bool, tool: str
) -> Mended | Failure:
    if cut:
        problem = Problem("", "the answer was cut off inside this call", "a whole call", show(arguments))
        return bounce(tool, validator, [problem], arguments)
    value: Any = arguments
    if isinstance(arguments, str):
        try:
            value = parse(arguments)
        except NotJson as error:
            reason = f"the arguments are not JSON: {error.message} at character {error.position}"
            return bounce(tool, validator, [Problem("", reason, "a JSON object", show(arguments))], arguments)
    elif (reason_or_none := plain(dict(arguments))) is not None:
        return bounce(tool, validator, [Problem("", reason_or_none, "plain JSON", show(None))], arguments)
    if not validator.is_valid(value):
        return bounce(tool, validator, validator.problems(value), arguments)
    try:
        return Mended(value, value if convert is None else convert(value))
    except NotConvertible as error:
        return bounce(tool, validator, error.problems, arguments)
