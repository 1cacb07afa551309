"""Time things so that a busy machine does little harm: interleaved rounds, CPU time, ratios within a round."""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, process_time
from types import TracebackType
from typing import Final

ROUNDS: Final = 5
UNITS: Final = {"s": 1.0, "ms": 1e3, "µs": 1e6}
"""What a second is in each unit; a row may have another unit, and then its value is shown as it is."""

Sample = Callable[[], float]
"""Does the work once and gives back its seconds, per call or in all."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work a run puts in: five rounds of everything, or one small round to see that it works."""

    rounds: int = ROUNDS
    divide: int = 1

    def count(self, whole: int) -> int:
        return max(2, whole // self.divide)


FULL: Final = Effort()
QUICK: Final = Effort(rounds=1, divide=50)


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds of one thing, one number per round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.rounds)

    @property
    def least(self) -> float:
        return min(self.rounds)

    def against(self, floor: "Times") -> float:
        """The median of the ratios within each round, so that a slow minute slows both sides of a ratio."""
        return median(mine / its for mine, its in zip(self.rounds, floor.rounds, strict=True))

    def minus(self, other: "Times") -> "Times":
        return Times(tuple(mine - its for mine, its in zip(self.rounds, other.rounds, strict=True)))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `bound` is the most that the ratio may be, or the value where there is no ratio."""

    name: str
    value: float
    unit: str
    ratio: float | None = None
    at_best: float | None = field(default=None, kw_only=True)
    """The ratio of the least times, which others' load on the machine disturbs least."""
    bound: float | None = field(default=None, kw_only=True)

    @property
    def ok(self) -> bool:
        judged = self.value if self.ratio is None else self.ratio
        return self.bound is None or judged <= self.bound


def row(name: str, times: Times, unit: str, *, floor: Times | None = None, bound: float | None = None) -> Row:
    """The median in `unit`, and its ratio to the floor's."""
    value = times.median * UNITS[unit]
    if floor is None:
        return Row(name, value, unit, bound=bound)
    return Row(name, value, unit, times.against(floor), at_best=times.least / floor.least, bound=bound)


def interleave(samples: Mapping[str, Sample], rounds: int) -> dict[str, Times]:
    """Take every sample once per round, all of them in each round; the first, which warms up, is thrown away."""
    taken: dict[str, list[float]] = {name: [] for name in samples}
    for number in range(rounds + 1):
        for name, sample in samples.items():
            gc.collect()
            seconds = sample()
            if number:
                taken[name].append(seconds)
    return {name: Times(tuple(seconds)) for name, seconds in taken.items()}


class Stopwatch:
    """CPU seconds of the whole process, all threads, and wall seconds, between `with` and its end."""

    cpu = 0.0
    wall = 0.0

    def __enter__(self) -> "Stopwatch":
        self._wall, self._cpu = perf_counter(), process_time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cpu, self.wall = process_time() - self._cpu, perf_counter() - self._wall


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned text."""
    heads = ("name", "value", "unit", "ratio", "at best", "bound", "ok")
    cells = [heads, *(_cells(row) for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(heads))]
    return "\n".join(_line(line, widths) for line in cells)


def _cells(row: Row) -> tuple[str, ...]:
    judged = "" if row.bound is None else "yes" if row.ok else "NO"
    ratio, at_best, bound = _number(row.ratio), _number(row.at_best), _number(row.bound)
    return (row.name, _number(row.value), row.unit, ratio, at_best, bound, judged)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = {0, 2, 6}  # names and words; the rest are numbers
    padded = (
        cell.ljust(width) if place in left else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()
