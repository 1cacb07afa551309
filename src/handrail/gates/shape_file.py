"""Show as many whole lines of a file as fit, and the offset to go on with."""

from typing import Any, Final

from handrail.gates.shape_caps import Caps
from handrail.gates.shape_cut import cut
from handrail.gates.shape_keep import Keeper

GO_ON: Final = "go on with offset="


async def shape_file(value: dict[str, Any], caps: Caps, keeper: Keeper) -> dict[str, Any]:
    """The very object when its text fits; a first line that alone is too long shows its beginning and end."""
    text: str = value["text"]
    if text.count("\n") + (text[-1:] != "\n") <= caps.lines and len(text.encode("utf-8", "replace")) <= caps.file:
        return value
    lines = _by_newline(text)
    fitting = _fitting(lines, caps)
    if fitting == len(lines):
        return value
    shown = "".join(lines[:fitting])
    if not fitting:
        kept = await keeper.keep(lines[0], "line.txt")
        shown, fitting = cut(lines[0], caps.file, kept), 1
    first = value.get("start_line", 1)
    last = first + fitting - 1
    total = value.get("total_lines")
    keeper.outdated = GO_ON
    keeper.notes.append(f"Only lines {first} to {last} of {total or 'many'} are shown; {GO_ON}{last + 1}.")
    return {**value, "text": shown, "end_line": last, "truncated": True}


def _by_newline(text: str) -> list[str]:
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _fitting(lines: list[str], caps: Caps) -> int:
    room = caps.file
    for at, line in enumerate(lines[: caps.lines]):
        room -= len(line.encode("utf-8", "replace"))
        if room < 0:
            return at
    return min(len(lines), caps.lines)
