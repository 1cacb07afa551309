"""Totals: what a batch has done so far, in numbers."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import monotonic

from handrail.batch.task import LOST, Done
from handrail.contract.model import Usage


@dataclass(slots=True)
class Totals:
    """Counts over the results of a batch, those of earlier starts included."""

    tasks: int
    """Samples of tasks that belong to the batch."""
    done: int = 0
    """Samples that have a result."""
    lost: int = 0
    solved: int = 0
    """Results with a reward of at least 1."""
    rewarded: int = 0
    """Results that have a reward."""
    reward: float = 0.0
    """Sum of the rewards."""
    running: int = 0
    new: int = 0
    """Results of this start."""
    usage: Usage = Usage()
    reasons: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    """How often each error was met, in this start and in the results of earlier ones."""
    stopped: str = ""
    """Why the batch stopped by itself; empty if it did not."""
    interrupted: bool = False
    """Whether a person stopped it."""
    began: float = field(default_factory=monotonic)

    def add(self, done: Done, *, new: bool = True) -> None:
        """Count a result."""
        self.done += 1
        self.new += new
        self.lost += done.reason == LOST
        self.reasons[done.reason] += 1
        self.usage += done.usage
        self.errors.update(set(done.errors) if not new else ())
        if done.reward is not None:
            self.rewarded += 1
            self.reward += done.reward
            self.solved += done.reward >= 1

    def add_all(self, results: Iterable[Done]) -> None:
        """Count the results of earlier starts."""
        for done in results:
            self.add(done, new=False)

    @property
    def seconds(self) -> float:
        """Seconds since this start."""
        return monotonic() - self.began

    @property
    def rate(self) -> float:
        """Results per second of this start."""
        return self.new / self.seconds if self.new else 0.0

    @property
    def left(self) -> float | None:
        """Seconds until the end at this rate; None while nothing is known."""
        return (self.tasks - self.done) / self.rate if self.new else None

    @property
    def cost_in_all(self) -> float | None:
        """Dollars that the whole batch will cost if the rest costs as much; None where no price is known."""
        return None if self.usage.cost is None or not self.done else self.usage.cost / self.done * self.tasks
