"""Find the passage of a text that comes closest to one that is not in it, and say what differs."""

from difflib import SequenceMatcher
from typing import Final

MOST_LINES: Final = 50_000
TRIED: Final = 8
SHOWN: Final = 12
ENOUGH: Final = 0.5
BY_CHARACTERS: Final = 2_000


def closest(text: str, wanted: str) -> str:
    """A sentence and the passage with its line numbers, or that nothing comes close."""
    lines, sought = text.splitlines()[:MOST_LINES], wanted.splitlines() or [wanted]
    size = len(sought)
    best = max(_candidates(lines, sought), key=lambda at: _score(lines, sought, at), default=None)
    if best is None or _score(lines, sought, best) < ENOUGH:
        return "Nothing in it comes close; read the file again."
    passage = lines[best : best + size]
    shown = "\n".join(f"{best + n + 1}: {line[:300]}" for n, line in enumerate(passage[:SHOWN]))
    return f"Closest, at line {best + 1} ({_differs(passage, sought)}):\n{shown}"


def _candidates(lines: list[str], sought: list[str]) -> list[int]:
    """Where a window may stand: where most lines are shared, spaces apart, or else where the first line is alike."""
    known = {_bare(line) for line in sought if _bare(line)}
    places: dict[int, int] = {}
    for number, line in enumerate(lines):
        if _bare(line) in known:
            for offset, other in enumerate(sought):
                if _bare(other) == _bare(line) and number >= offset:
                    places[number - offset] = places.get(number - offset, 0) + 1
    if places:
        return sorted(places, key=lambda at: -places[at])[:TRIED]
    first = next((line for line in sought if _bare(line)), sought[0])
    skip = sought.index(first)
    ranked = sorted(range(len(lines)), key=lambda n: -_alike(lines[n], first))
    return [max(0, n - skip) for n in ranked[:TRIED]]


def _alike(line: str, other: str) -> float:
    """A quick upper bound of how alike two lines are, by the words they share."""
    one, two = set(line.split()), set(other.split())
    return len(one & two) / max(1, len(one | two)) + (0.5 if _bare(line)[:12] == _bare(other)[:12] else 0)


def _bare(line: str) -> str:
    return "".join(line.split())


def _score(lines: list[str], sought: list[str], at: int) -> float:
    """By characters where the passage is short enough for that, else by lines."""
    here = lines[at : at + len(sought)]
    passage, wanted = "\n".join(here), "\n".join(sought)
    if len(passage) < BY_CHARACTERS and len(wanted) < BY_CHARACTERS:
        return SequenceMatcher(None, passage, wanted, autojunk=False).ratio()
    return SequenceMatcher(None, here, sought).ratio()


def _differs(passage: list[str], sought: list[str]) -> str:
    if [_bare(line) for line in passage] == [_bare(line) for line in sought]:
        return "only the spaces differ"
    for number, (here, there) in enumerate(zip(passage, sought, strict=False)):
        if here != there:
            shown = f"there it is {here.strip()[:120]!r}, you sent {there.strip()[:120]!r}"
            return f"line {number + 1} of your text differs: {shown}"
    return "it is shorter than your text"
