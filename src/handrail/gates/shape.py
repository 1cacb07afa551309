"""Keep every answer to a size the model can read, say what was left out, and keep that where it can be read."""

import json
from dataclasses import replace
from typing import Any, Final, NamedTuple

from handrail.artifacts.store import ArtifactTooLarge, keep_stream
from handrail.contract.limits import Caps
from handrail.contract.result import ArtifactRef, Failure, Image, Result, Success, images_in, with_image
from handrail.contract.truncated import Truncated, cut
from handrail.contract.wire import to_wire
from handrail.gates._json_texts import is_heavy
from handrail.gates._long import LongValue
from handrail.gates._overflow import JSON, TOO_LARGE, OverflowStore
from handrail.gates._shorten import excerpts_in, settle_excerpts, shorten_object, shorten_text
from handrail.toolkit.gate import Next, SessionState, Step

SMALL: Final = frozenset({bool, int, float, type(None)})
QUICK: Final = 1_000
"""Characters up to which an answer is passed on without a second look."""
QUICK_FIELDS: Final = 16
MAX_WARNINGS_COUNT: Final = 50
MAX_WARNING_CHARS: Final = 2_000


async def shape(step: Step, proceed: Next) -> Result:
    """An answer stays what it is: a Failure never becomes a Success, nor the other way round."""
    result = await proceed(step)
    if step.by_script and result.ok and type(result.value) not in SMALL:
        by_reference = await _for_script(step, result)
        if by_reference is not result:
            return by_reference
    if not result.ok or result.warnings or (type(result.value) not in SMALL and not _is_quick(result.value, step)):
        result = await _shaped(step, result)
    return replace(result, warnings=(*result.warnings, *step.warnings)) if step.warnings else result


async def _for_script(step: Step, result: Success) -> Result:
    """A script is given a large value by reference: the value is kept whole, and is in no event."""
    try:
        value = await _by_reference(step, result.value)
    except (TypeError, ValueError, RecursionError) as error:
        return Failure("execution_error", f"The tool's answer cannot be written as JSON: {error}")
    except ArtifactTooLarge:
        return Failure("execution_error", TOO_LARGE)
    except OSError as error:
        return Failure("execution_error", f"The tool's answer could not be kept for the script: {error}")
    if value is result.value:
        return result
    value = await _with_refs(step, value)
    return replace(result, value=value, warnings=(*result.warnings, *step.warnings))


async def _by_reference(step: Step, value: Any) -> Any:
    """The value, or a reference to it where it is large. Pictures stay where they are, beside references to the rest;
    so do texts that lack their middle, so that what is incomplete is only they.

    Raises TypeError, ValueError, RecursionError or OSError.
    """
    if type(value) in SMALL or isinstance(value, Image | ArtifactRef):
        return value
    if isinstance(value, Truncated):
        return await _excerpt_by_reference(step, value)
    if not isinstance(value, str) and (images_in(value) or next(excerpts_in(value, ""), None)):
        held = list(value.values() if isinstance(value, dict) else value)
        made = [await _by_reference(step, each) for each in held]
        if all(new is old for new, old in zip(made, held, strict=True)):
            return value
        return dict(zip(value, made, strict=True)) if isinstance(value, dict) else made
    artifacts, name = step.context.artifacts, f"{step.tool.name}.value"
    if not isinstance(value, str) and is_heavy(value):
        return await LongValue(OverflowStore(artifacts), step.context.caps).by_reference(value, name)
    text = value if isinstance(value, str) else json.dumps(to_wire(value), ensure_ascii=False)
    if step.shared.budget.inlines(text):
        return value
    return await artifacts.put(text, media_type=None if isinstance(value, str) else JSON, name=name)


async def _excerpt_by_reference(step: Step, part: Truncated) -> ArtifactRef:
    artifacts, whole, name = step.context.artifacts, part.whole, f"{step.tool.name}.value"
    if isinstance(whole, ArtifactRef):
        return whole
    if whole is None:
        return await artifacts.put(part, name=name, incomplete=True)
    return await keep_stream(artifacts, whole, name, incomplete=lambda: whole.incomplete)


def _is_quick(value: Any, step: Step) -> bool:
    """Whether it is plainly small; nearly every answer is."""
    kind = type(value)
    if step.tool.output_cap is not None:
        return False
    most = min(QUICK, _smallest_cap(step.shared))
    if kind is str:
        return len(value) <= most
    return kind is dict and len(value) <= QUICK_FIELDS and 0 <= _flat_size(value) <= most


class _SmallestCap(NamedTuple):
    """The smallest of the caps that a session has had last: they change once a round, and are asked at every call."""

    of: Caps
    chars: int


def _smallest_cap(shared: SessionState) -> int:
    known: _SmallestCap | None = shared.kept.get(_SmallestCap)
    if known is None or known.of is not shared.caps_now:
        known = shared.kept[_SmallestCap] = _SmallestCap(shared.caps_now, shared.caps_now.smallest)
    return known.chars


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
    caps = step.context.caps if result.ok else _caps_of_failure(step)
    overflow = OverflowStore(step.context.artifacts)
    if result.ok:
        shaped = await _success(result, caps, overflow)
        if images_in(shaped.value):
            shaped = replace(shaped, value=await _with_refs(step, shaped.value))
    else:
        shaped = await _failure(result, caps, overflow)
    if not shaped.warnings and not overflow.notes:
        return shaped
    return replace(shaped, warnings=_warnings([*shaped.warnings, *overflow.notes]))


def _caps_of_failure(step: Step) -> Caps:
    """A failure is cut for a script too: it is given the message alone."""
    return step.shared.caps.fitting(step.shared.tokens_left, step.tool.output_cap)


async def _with_refs(step: Step, value: Any) -> Any:
    """Keep the pictures in the value, so that the transcript and the model can name them."""
    artifacts = step.context.artifacts
    for path, image in images_in(value):
        ref = (await artifacts.put(image.data, media_type=image.media_type)).ref
        artifacts.show(ref)
        step.images.append({"path": path, "ref": ref})
        value = with_image(value, path, replace(image, ref=ref))
    return value


def _warnings(messages: list[str]) -> tuple[str, ...]:
    """Keep only as many warnings as a model reads."""
    more = len(messages) - MAX_WARNINGS_COUNT
    shown = [cut(text, MAX_WARNING_CHARS) for text in messages[:MAX_WARNINGS_COUNT]]
    return (*shown, f"and {more} more warnings") if more > 0 else tuple(shown)


async def _success(result: Success, caps: Caps, overflow: OverflowStore) -> Result:
    value = result.value
    try:
        light = await _light(value, caps, overflow)
        shaped = await settle_excerpts(light, caps, overflow)
        if shaped is not light:
            caps = _around_excerpts(caps)
        if isinstance(shaped, str):
            shaped = await shorten_text(shaped, "", caps.value, overflow)
        else:
            shaped = await _value(shaped, caps, overflow)
    except (TypeError, ValueError, RecursionError) as error:
        return Failure("execution_error", f"The tool's answer cannot be written as JSON: {error}")
    except ArtifactTooLarge:
        return Failure("execution_error", TOO_LARGE)
    return result if shaped is value else replace(result, value=shaped)


async def _light(value: Any, caps: Caps, overflow: OverflowStore) -> Any:
    """The value; where its texts are very long, they are stored already, so that it is not copied as a whole."""
    return value if isinstance(value, str) or not is_heavy(value) else await LongValue(overflow, caps).shortened(value)


def _around_excerpts(caps: Caps) -> Caps:
    """For a value with texts that were cut to caps of their own: what is around them may need as much room again."""
    return replace(caps, value=max(caps.value, caps.other))


async def _failure(failure: Failure, caps: Caps, overflow: OverflowStore) -> Failure:
    if len(failure.message) > caps.value or isinstance(failure.message, Truncated):
        message = await settle_excerpts(failure.message, caps, overflow)
        failure = replace(failure, message=await shorten_text(message, "", caps.value, overflow))
    if not failure.data:
        return failure
    try:
        data = await _light(dict(failure.data), caps, overflow)
        settled = await settle_excerpts(data, caps, overflow)
        shaped = await _value(settled, caps if settled is data else _around_excerpts(caps), overflow)
    except (TypeError, ValueError, RecursionError, ArtifactTooLarge) as error:
        overflow.notes.append(f"The data of this failure cannot be written as JSON and was left out: {error}")
        return replace(failure, data={})
    return replace(failure, data=shaped if isinstance(shaped, dict) else {"text": shaped})


async def _value(value: Any, caps: Caps, overflow: OverflowStore) -> Any:
    """A JSON value within its caps."""
    if type(value) is dict and len(value) <= QUICK_FIELDS and (size := _flat_size(value)) >= 0:
        return await shorten_object(value, size, caps, overflow)
    handles: list[ArtifactRef] = []
    text = _write(value, handles)
    if lost := {handle.ref for handle in handles if not overflow.artifacts.show(handle)}:
        value = _without(value, lost)
        overflow.notes.append("An artifact that this answer names is gone; it is shown as null.")
    if not isinstance(value, dict):
        if len(text) <= caps.value:
            return value
        kept = await overflow.keep_json(text, "answer.json")
        overflow.note_cut("The answer", len(text), caps.value, kept)
        return cut(text, caps.value, kept)
    return await shorten_object(value, len(text), caps, overflow)


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


def collapsed(value: Any) -> str | None:
    """The line in place of an old listing when room is needed: its count and its path. None for anything else."""
    if not isinstance(value, dict) or value.get("kind") != "listing":
        return None
    entries = value.get("entries")
    count = value.get("entry_count", len(entries) if isinstance(entries, list) else 0)
    return f"{count} entries in {value.get('path', '.')}"
