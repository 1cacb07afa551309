"""Show what a change did to a text: a unified diff of bounded size, made in bounded time."""

from difflib import unified_diff
from typing import Final

LONGEST_MIDDLE: Final = 20_000
"""Lines that may differ before they are shown as one block, without looking for what they share."""
LARGEST: Final = 4 << 20
LONGEST_DIFF: Final = 20_000
CONTEXT: Final = 3


def difference(old: str, new: str, path: str) -> str:
    """What `diff -u` would say of the change; empty when there is none."""
    if old == new:
        return ""
    if len(old) > LARGEST or len(new) > LARGEST:
        return f"[{path} is too large for a diff: {len(old):,} characters became {len(new):,}]"
    before, after = lines_of(old), lines_of(new)
    head = _shared(before, after)
    tail = _shared(before[head:][::-1], after[head:][::-1])
    first = max(0, head - CONTEXT)
    last = max(0, tail - CONTEXT)
    left, right = before[first : len(before) - last], after[first : len(after) - last]
    if len(left) > LONGEST_MIDDLE or len(right) > LONGEST_MIDDLE:
        left, right = before[head : len(before) - tail], after[head : len(after) - tail]
        lines = [f"@@ -{head + bool(left)},{len(left)} +{head + bool(right)},{len(right)} @@\n"]
        lines += [f"-{line}" for line in left] + [f"+{line}" for line in right]
    else:
        lines = [_moved(line, first) for line in unified_diff(left, right, n=CONTEXT)][2:]
    text = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    text = f"--- {path}\n+++ {path}\n{text}"
    if len(text) > LONGEST_DIFF:
        text = f"{text[:LONGEST_DIFF]}\n[… {len(text) - LONGEST_DIFF:,} more characters of the diff]"
    return text


def lines_of(text: str) -> list[str]:
    """The lines as every other tool counts them: a line ends in a line feed, and in nothing else."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop().removesuffix("\n")
    return [*lines, last] if last else lines


def _shared(left: list[str], right: list[str]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _moved(line: str, by: int) -> str:
    """A hunk's header with its line numbers counted from the start of the file."""
    if not by or not line.startswith("@@"):
        return line
    _, old, new, rest = line.split(" ", 3)
    return f"@@ {_shift(old, by)} {_shift(new, by)} {rest}"


def _shift(span: str, by: int) -> str:
    start, comma, count = span[1:].partition(",")
    return f"{span[0]}{int(start) + by}{comma}{count}"
