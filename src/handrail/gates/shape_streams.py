"""Show a command's answer: each stream within its own cap, its end and the exit code always there."""

from typing import Any, Final

from handrail.contract.errors import ToolFailed
from handrail.gates.shape_caps import Caps
from handrail.gates.shape_cut import HEAD, LONGEST_SEQUENCE, MARKER, beginning, cut, ending, join
from handrail.gates.shape_keep import Keeper

STREAMS: Final = ("stdout", "stderr")
_WIDEST: Final = 4


def has_streams(value: dict[str, Any]) -> bool:
    """Whether this is what a command came to."""
    return "exit_code" in value and isinstance(value.get("stdout"), str) and isinstance(value.get("stderr"), str)


async def shape_streams(value: dict[str, Any], caps: Caps, keeper: Keeper) -> dict[str, Any]:
    """The same with each stream cut; the very object when nothing was."""
    shaped = {
        "stdout": await _stream("stdout", value["stdout"], caps.stdout, keeper),
        "stderr": await _stream("stderr", value["stderr"], caps.stderr, keeper),
    }
    return value if all(shaped[name] is value[name] for name in STREAMS) else {**value, **shaped}


async def _stream(name: str, text: str, cap: int, keeper: Keeper) -> str:
    """A sandbox may have cut it already, and the tool kept the whole: then it is made anew from that."""
    if len(text) <= cap and not _may_be_cut(text):
        return text
    for marker in MARKER.finditer(text):
        ref, total = marker["ref"], int(marker["total"].replace(",", ""))
        shown = len(text) - len(marker[0])
        if ref is None and shown <= cap:
            return text
        if ref is not None and keeper.artifacts.show(ref):
            keeper.note_cut(name, total, min(cap, shown), keeper.artifacts.info(ref))
            if shown <= cap and "\x1b" not in text:
                return text
            return await _again(text, min(cap, shown), ref, total, keeper)
    if len(text) <= cap:
        return text
    kept = await keeper.keep(text, name)
    keeper.note_cut(name, len(text), cap, kept)
    return cut(text, cap, kept.ref if kept else None)


def _may_be_cut(text: str) -> bool:
    return " characters left out" in text


async def _again(text: str, cap: int, ref: str, total: int, keeper: Keeper) -> str:
    """Cut the whole output, of which only the two ends are read."""
    head = int(cap * HEAD)
    tail = cap - head
    info = keeper.artifacts.info(ref)
    try:
        first = await keeper.artifacts.read(ref, 0, (head + LONGEST_SEQUENCE) * _WIDEST)
        room = (tail + LONGEST_SEQUENCE) * _WIDEST
        last = await keeper.artifacts.read(ref, max(0, (info.size if info else 0) - room), room)
    except ToolFailed:  # changed on disk: what the tool gave is what there is
        return cut(text, cap)
    begins = beginning(first.decode("utf-8", "replace"), head)
    ends = ending(_whole(last).decode("utf-8", "replace"), tail)
    return join(begins, ends, total, ref)


def _whole(data: bytes) -> bytes:
    """Without the end of a character whose beginning was cut off."""
    skip = next((at for at, byte in enumerate(data[:_WIDEST]) if byte & 0xC0 != 0x80), 0)
    return data[skip:]
