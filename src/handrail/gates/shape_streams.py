"""Show a command's answer: each stream within its own cap, its end and the exit code always there."""

from collections.abc import Iterator
from typing import Any, Final

from handrail.contract.errors import ToolFailed
from handrail.contract.result import SCALARS, ArtifactRef, Excerpt
from handrail.gates.shape_caps import Caps
from handrail.gates.shape_cut import HEAD, LONGEST_SEQUENCE, beginning, cut, ending, excerpt
from handrail.gates.shape_keep import Keeper

STREAMS: Final = ("stdout", "stderr")
_WIDEST: Final = 4


def has_streams(value: dict[str, Any]) -> bool:
    """Whether this is what a command came to."""
    return "exit_code" in value and isinstance(value.get("stdout"), str) and isinstance(value.get("stderr"), str)


async def shape_streams(value: dict[str, Any], caps: Caps, keeper: Keeper) -> dict[str, Any]:
    """The same with each stream cut; the very object when nothing was."""
    shaped = {name: await _stream(name, value[name], getattr(caps, name), keeper) for name in STREAMS}
    return value if all(shaped[name] is value[name] for name in STREAMS) else {**value, **shaped}


async def _stream(name: str, text: str, cap: int, keeper: Keeper) -> str:
    if isinstance(text, Excerpt) or len(text) <= cap:  # an excerpt is within its cap by now
        return text
    kept = await keeper.keep(text, name)
    keeper.note_cut(name, len(text), cap, kept)
    return cut(text, cap, kept)


async def settle_excerpts(value: Any, caps: Caps, keeper: Keeper) -> Any:
    """The same with every Excerpt inside it within its cap, and its whole stored; the very object if it has none."""
    settled: dict[int, Excerpt] = {}
    for name, part in _excerpts(value, ""):
        if id(part) not in settled:  # one text may stand in two fields
            settled[id(part)] = await _within(part, name, caps, keeper)
    return _replaced(value, settled) if settled else value


def _excerpts(value: Any, name: str) -> Iterator[tuple[str, Excerpt]]:
    """Every Excerpt, and the name of the field in which it is."""
    if isinstance(value, Excerpt):
        yield name, value
    elif isinstance(value, dict) and not SCALARS.issuperset(map(type, value.values())):
        for key, held in value.items():
            yield from _excerpts(held, key)
    elif isinstance(value, list | tuple) and not SCALARS.issuperset(map(type, value)):
        for held in value:
            yield from _excerpts(held, name)


def _replaced(value: Any, settled: dict[int, Excerpt]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(held, settled) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(held, settled) for held in value]
    return settled.get(id(value), value)


async def _within(part: Excerpt, name: str, caps: Caps, keeper: Keeper) -> Excerpt:
    """It was cut before, by the sandbox or by the gates of a call inside this one; now it is cut from its whole."""
    stream = "stderr" if name == "stderr" else "stdout"
    cap = min(part.shown, caps.text if not name else getattr(caps, stream))
    kept = await keeper.whole(part, stream)
    keeper.note_cut(name or "The answer", part.total, cap, kept)
    if cap == part.shown and "\x1b" not in part:
        return part.of(kept)
    return await _again(part, cap, kept, keeper)


async def _again(part: Excerpt, cap: int, kept: ArtifactRef | None, keeper: Keeper) -> Excerpt:
    """A smaller excerpt, for which only the two ends of the whole are read."""
    head = int(cap * HEAD)
    tail, first, last = cap - head, part.head, part.tail
    if kept is not None:
        try:
            room = (tail + LONGEST_SEQUENCE) * _WIDEST
            begins = await keeper.artifacts.read(kept, 0, (head + LONGEST_SEQUENCE) * _WIDEST)
            ends = await keeper.artifacts.read(kept, max(0, kept.size - room), room)
            first, last = begins.decode("utf-8", "replace"), _whole(ends).decode("utf-8", "replace")
        except ToolFailed:  # changed on disk: what the tool gave is what there is
            kept = None
    return excerpt(beginning(first, head), ending(last, tail), part.total, kept)


def _whole(data: bytes) -> bytes:
    """Without the end of a character whose beginning was cut off."""
    skip = next((at for at, byte in enumerate(data[:_WIDEST]) if byte & 0xC0 != 0x80), 0)
    return data[skip:]
