"""Find the passage of a text that comes closest to one that is not in it, and say what differs, in bounded time."""

from collections import Counter
from typing import Final

MOST_LINES: Final = 50_000
MOST_SOUGHT: Final = 200
"""Lines of the text and of the passage that are looked at."""
LONGEST_LINE: Final = 500
"""Characters of a line that are compared."""
MOST_PLACES: Final = 8
"""Places of one line of the passage that are followed up."""
TRIED: Final = 8
SHOWN: Final = 12
ENOUGH: Final = 0.5


def closest(text: str, wanted: str) -> str:
    """A sentence and the passage with its line numbers, or that nothing comes close."""
    lines = [line.removesuffix("\r") for line in text.split("\n", MOST_LINES)[:MOST_LINES]]
    sought = [line.removesuffix("\r") for line in wanted.removesuffix("\n").split("\n")[:MOST_SOUGHT]]
    grams = _grams(sought)
    scored = [(_alike(_grams(lines[at : at + len(sought)]), grams), -at) for at in _candidates(lines, sought)]
    score, place = max(scored, default=(0.0, 0))
    if score < ENOUGH:
        return "Nothing in it comes close; read the file again."
    passage = lines[-place : -place + len(sought)]
    shown = "\n".join(f"{n - place + 1}: {line[:300]}" for n, line in enumerate(passage[:SHOWN]))
    return f"Closest, at line {1 - place} ({_differs(passage, sought)}):\n{shown}"


def _candidates(lines: list[str], sought: list[str]) -> list[int]:
    """Where a window may stand: where most lines are shared, spaces apart, or else where a line is most alike."""
    offsets: dict[str, list[int]] = {}
    for offset, line in enumerate(sought):
        if bare := _bare(line):
            offsets.setdefault(bare, []).append(offset)
    places: Counter[int] = Counter()
    for number, line in enumerate(lines):
        for offset in offsets.get(_bare(line), ())[:MOST_PLACES]:
            if number >= offset:
                places[number - offset] += 1
    if places:
        return sorted(places, key=lambda at: (-places[at], at))[:TRIED]
    skip = next((offset for offset, line in enumerate(sought) if _bare(line)), 0)
    first = _grams(sought[skip : skip + 1])
    ranked = sorted(range(len(lines)), key=lambda number: -_alike(_grams(lines[number : number + 1]), first))
    return [max(0, number - skip) for number in ranked[:TRIED]]


def _grams(lines: list[str]) -> Counter[str]:
    """The three-letter pieces of some lines; spaces count as one."""
    text = " ".join(" ".join(line[:LONGEST_LINE].split()) for line in lines)
    return Counter(text[at : at + 3] for at in range(max(1, len(text) - 2)))


def _alike(one: Counter[str], other: Counter[str]) -> float:
    """The share of the pieces that both have: 1 for the same text, 0 for strangers."""
    return 2 * (one & other).total() / max(1, one.total() + other.total())


def _bare(line: str, longest: int = LONGEST_LINE) -> str:
    return "".join(line[:longest].split())


def _differs(passage: list[str], sought: list[str]) -> str:
    if [_bare(line, 1 << 20) for line in passage] == [_bare(line, 1 << 20) for line in sought]:
        return "only the spaces differ"
    for number, (here, there) in enumerate(zip(passage, sought, strict=False)):
        if here != there:
            shown = f"there it is {_from_difference(here, there)!r}, you sent {_from_difference(there, here)!r}"
            return f"line {number + 1} of your text differs: {shown}"
    return "it is shorter than your text"


def _from_difference(line: str, other: str) -> str:
    """A piece of the line that shows where it leaves the other."""
    same = next((at for at, (one, two) in enumerate(zip(line, other, strict=False)) if one != two), len(other))
    return line[max(0, min(same, len(line)) - 60) :][:120].strip()
