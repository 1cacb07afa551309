"""Show a change to a text as a unified diff, bounded in size and time."""

from difflib import unified_diff
from typing import Final

from handrail.contract.truncated import cut

MAX_COMPARED_LINES_COUNT: Final = 20_000
"""Changed lines above which they are shown as one block, without looking for common lines."""
MAX_TEXT_BYTES: Final = 4 << 20
CONTEXT_LINES: Final = 3


def difference(old: str, new: str, path: str, cap: int) -> str:
    """Return at most `cap` characters of the output of `diff -u`; empty if the texts are the same."""
    if old == new:
        return ""
    if len(old) > MAX_TEXT_BYTES or len(new) > MAX_TEXT_BYTES:
        return f"[{path} is too large for a diff: {len(old):,} characters became {len(new):,}]"
    before, after = lines_of(old), lines_of(new)
    head = _common_start(before, after)
    tail = _common_start(before[head:][::-1], after[head:][::-1])
    first = max(0, head - CONTEXT_LINES)
    last = max(0, tail - CONTEXT_LINES)
    left, right = before[first : len(before) - last], after[first : len(after) - last]
    if len(left) > MAX_COMPARED_LINES_COUNT or len(right) > MAX_COMPARED_LINES_COUNT:
        left, right = before[head : len(before) - tail], after[head : len(after) - tail]
        lines = [f"@@ -{head + bool(left)},{len(left)} +{head + bool(right)},{len(right)} @@\n"]
        lines += [f"-{line}" for line in left] + [f"+{line}" for line in right]
    else:
        lines = [_renumbered(line, first) for line in unified_diff(left, right, n=CONTEXT_LINES)][2:]
    text = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    text = f"--- {path}\n+++ {path}\n{text}"
    return cut(text, cap)


def lines_of(text: str) -> list[str]:
    """The lines with their line feeds, which alone end a line, as in every other tool."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop().removesuffix("\n")
    return [*lines, last] if last else lines


def _common_start(left: list[str], right: list[str]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _renumbered(line: str, by: int) -> str:
    """A hunk's header, its line numbers counted from the start of the file."""
    if not by or not line.startswith("@@"):
        return line
    _, old, new, rest = line.split(" ", 3)
    return f"@@ {_shift(old, by)} {_shift(new, by)} {rest}"


def _shift(span: str, by: int) -> str:
    start, comma, count = span[1:].partition(",")
    return f"{span[0]}{int(start) + by}{comma}{count}"
