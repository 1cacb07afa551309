"""Keep every answer to a size the model can read, say what was left out, and keep that where it can be read."""

import json
from dataclasses import replace
from typing import Any, Final

from handrail.artifacts.page import page
from handrail.contract.errors import ToolFailed
from handrail.contract.result import ArtifactRef, Excerpt, Failure, Image, Result, Success, to_wire
from handrail.gates.shape_caps import Caps, caps_for, percent_of
from handrail.gates.shape_cut import cut
from handrail.gates.shape_fields import shape_fields
from handrail.gates.shape_file import shape_file
from handrail.gates.shape_keep import JSON, Keeper
from handrail.gates.shape_lists import LISTS, shape_list
from handrail.gates.shape_streams import STREAMS, has_streams, settle_excerpts, shape_streams
from handrail.toolkit.gate import Next, Step

SMALL: Final = frozenset({bool, int, float, type(None)})
QUICK: Final = 1_000
"""Characters up to which an answer is passed on without a second look."""
QUICK_FIELDS: Final = 16
MOST_WARNINGS: Final = 50
LONGEST_WARNING: Final = 2_000


async def shape(step: Step, proceed: Next) -> Result:
    """An answer stays what it is: a Failure never becomes a Success, nor the other way round."""
    result = await proceed(step)
    if not result.ok or result.warnings or not _is_quick(result.value, step):
        result = await _shaped(step, result)
    return replace(result, warnings=(*result.warnings, *step.warnings)) if step.warnings else result


def _is_quick(value: Any, step: Step) -> bool:
    """Whether it is plainly small; nearly every answer is."""
    kind = type(value)
    if kind in SMALL:
        return True
    if step.tool.output_cap is not None:
        return False
    if kind is str:
        return len(value) <= QUICK
    return kind is dict and len(value) <= QUICK_FIELDS and 0 <= _flat_size(value) <= QUICK


def _flat_size(value: dict[str, Any]) -> int:
    """The characters of its texts, where it holds nothing but plain values; -1 where there is more inside."""
    size = 0
    for held in value.values():
        kind = type(held)
        if kind is str:
            size += len(held)
        elif kind not in SMALL and (held or (kind is not list and kind is not dict)):
            return -1
    return size


async def _shaped(step: Step, result: Result) -> Result:
    caps = caps_for(step.tool.output_cap, percent_of(step.shared.tokens_left))
    keeper = Keeper(step.context.artifacts)
    if result.ok:
        shaped = await _success(result, caps, keeper)
    else:
        shaped = await _failure(result, caps, keeper)
    if not shaped.warnings and not keeper.notes:
        return shaped
    return replace(shaped, warnings=_warnings([*shaped.warnings, *keeper.notes], keeper.outdated))


def _warnings(said: list[str], outdated: str | None) -> tuple[str, ...]:
    """As many as can be read, without those that a later one corrects."""
    last = len(said) - 1
    said = [text for at, text in enumerate(said) if outdated is None or at == last or outdated not in text]
    more = len(said) - MOST_WARNINGS
    shown = [cut(text, LONGEST_WARNING) for text in said[:MOST_WARNINGS]]
    return (*shown, f"and {more} more warnings") if more > 0 else tuple(shown)


async def _success(result: Success, caps: Caps, keeper: Keeper) -> Result:
    value = result.value
    try:
        shaped = await settle_excerpts(value, caps, keeper)
        if isinstance(shaped, str):
            shaped = await _text(shaped, caps.text, keeper)
        else:
            shaped = await _value(shaped, caps, keeper)
    except (TypeError, ValueError, RecursionError) as error:
        return Failure("execution_error", f"The tool's answer cannot be written as JSON: {error}")
    return result if shaped is value else replace(result, value=shaped)


async def _failure(failure: Failure, caps: Caps, keeper: Keeper) -> Failure:
    if len(failure.message) > caps.text or isinstance(failure.message, Excerpt):
        message = await settle_excerpts(failure.message, caps, keeper)
        failure = replace(failure, message=await _text(message, caps.text, keeper))
    if not failure.data:
        return failure
    try:
        shaped = await _value(await settle_excerpts(dict(failure.data), caps, keeper), caps, keeper)
    except (TypeError, ValueError, RecursionError) as error:
        keeper.notes.append(f"The data of this failure cannot be written as JSON and was left out: {error}")
        return replace(failure, data={})
    return replace(failure, data=shaped if isinstance(shaped, dict) else {"text": shaped})


async def _text(text: str, cap: int, keeper: Keeper) -> str:
    if isinstance(text, Excerpt) or len(text) <= cap:  # an excerpt is within its cap by now
        return text
    kept = await keeper.keep(text, "answer.txt")
    keeper.note_cut("The answer", len(text), cap, kept)
    return cut(text, cap, kept)


async def _value(value: Any, caps: Caps, keeper: Keeper) -> Any:
    """A JSON value by its kind, and whatever it is, within the cap for anything else."""
    if type(value) is dict and len(value) <= QUICK_FIELDS and (size := _flat_size(value)) >= 0:
        return await _object(value, size, caps, keeper)
    handles: list[ArtifactRef] = []
    text = _write(value, handles)
    if lost := {handle.ref for handle in handles if not keeper.artifacts.show(handle)}:
        value = _without(value, lost)
        keeper.notes.append("An artifact that this answer names is gone; it is shown as null.")
    if not isinstance(value, dict):
        if len(text) <= caps.other:
            return value
        kept = await keeper.keep(text, "answer.json", JSON)
        keeper.note_cut("The answer", len(text), caps.other, kept)
        return cut(text, caps.other, kept)
    return await _object(value, len(text), caps, keeper)


async def _object(value: dict[str, Any], size: int, caps: Caps, keeper: Keeper) -> Any:
    """An object of about so many characters."""
    if has_streams(value):
        value = await shape_streams(value, caps, keeper)
        return await shape_fields(value, caps.other, keeper, apart=STREAMS)
    if isinstance(kind := value.get("kind"), str):
        value = await _by_kind(kind, value, size, caps, keeper)
    return value if size <= caps.other else await shape_fields(value, caps.other, keeper)


async def _by_kind(kind: str, value: dict[str, Any], size: int, caps: Caps, keeper: Keeper) -> dict[str, Any]:
    if kind in LISTS:
        return await shape_list(value, size, caps, keeper)
    if kind == "file" and isinstance(value.get("text"), str):
        return await shape_file(value, caps, keeper)
    if kind == "artifact" and len(value.get("text", "")) > caps.file:
        try:
            part = await page(keeper.artifacts, value["ref"], value["start"], caps.file)
            return part if value["text"].startswith(part["text"]) else value
        except (ToolFailed, KeyError, TypeError, AttributeError):
            return value  # no page of ours
    return value


def _write(value: Any, handles: list[ArtifactRef]) -> str:
    """The value as JSON, noting the artifacts in it. Raises TypeError, ValueError or RecursionError."""

    def other(held: Any) -> Any:
        if isinstance(held, ArtifactRef):
            handles.append(held)
        elif not isinstance(held, Image) and to_wire(held) is held:
            raise TypeError(f"{type(held).__name__} has no JSON form")
        return to_wire(held)

    return json.dumps(value, ensure_ascii=False, default=other)


def _without(value: Any, lost: set[str]) -> Any:
    """The value with null in place of every artifact that is gone."""
    if isinstance(value, ArtifactRef):
        return None if value.ref in lost else value
    if isinstance(value, dict):
        return {name: _without(held, lost) for name, held in value.items()}
    return [_without(held, lost) for held in value] if isinstance(value, list | tuple) else value
