"""Hold a run to its requests to the model, their tokens and their price; all tasks of the run share them."""

from collections import OrderedDict
from math import inf, isfinite

import anyio

from handrail.contract.limits import MAX_OPEN_REQUESTS_COUNT, Budget
from handrail.contract.model import Usage


class BudgetSpent(Exception):
    """The budget of the run is used up; the message says which part of it."""


class Requests:
    """The requests of one run: how many were made, how many are out, and what their answers took."""

    __slots__ = (
        "_budget", "_most", "_out", "_waiting", "cost", "count", "is_metered", "tokens", "uncounted", "unpriced",
    )  # fmt: skip

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._most = inf if budget.requests is None else budget.requests
        self.is_metered = budget.tokens is not None or budget.cost is not None
        """Whether tokens and cost of an answer are counted."""
        self._out = 0
        self._waiting: OrderedDict[anyio.Event, None] | None = None
        """Requests that wait for a place, the first one first."""
        self.count = 0
        self.tokens = 0
        self.cost = 0.0
        self.unpriced = self.uncounted = False
        """Whether an answer came without a price, or without a count of its tokens."""

    def check(self) -> None:
        """Raise BudgetSpent unless another request may go out."""
        budget = self._budget
        if self.count >= self._most:
            raise BudgetSpent(f"All {budget.requests:,} requests to the model of this run are used.")
        if budget.tokens is not None and self.tokens >= budget.tokens:
            raise BudgetSpent(f"All {budget.tokens:,} tokens of this run are used: {self.tokens:,} were counted.")
        if budget.cost is not None and self.cost >= budget.cost:
            raise BudgetSpent(f"The ${budget.cost:g} of this run are used: its requests cost ${self.cost:g}.")

    def begin(self) -> bool:
        """Count a request, if a place is free. Raises BudgetSpent. `end` gives the place back."""
        if self.is_metered or self.count >= self._most:  # a round of every run comes here
            self.check()
        if self._out >= MAX_OPEN_REQUESTS_COUNT:
            return False
        self._out += 1
        self.count += 1
        return True

    async def wait(self) -> None:
        """Wait for a place, the first to ask first, then count the request. Raises BudgetSpent."""
        place = anyio.Event()
        if self._waiting is None:
            self._waiting = OrderedDict()
        self._waiting[place] = None
        try:
            await place.wait()
            self.check()  # others may have used the rest meanwhile
        except BaseException:
            if place.is_set():
                self.end()
            else:
                del self._waiting[place]
            raise
        self.count += 1

    def end(self) -> None:
        """Give the place of a request to whoever waits for one, or back."""
        if self._waiting:
            self._waiting.popitem(last=False)[0].set()
        else:
            self._out -= 1

    def spend(self, usage: Usage) -> str:
        """Count an answer's tokens and cost. Returns a warning for what cannot be counted, the first time."""
        if not self.is_metered:
            return ""
        counted = (usage.input_tokens or 0) + (usage.output_tokens or 0)
        self.tokens += max(0, counted)
        is_priced = usage.cost is not None and isfinite(usage.cost)
        self.cost += max(0.0, usage.cost) if usage.cost is not None and is_priced else 0.0
        if self._budget.cost is not None and not is_priced and not self.unpriced:
            self.unpriced = True
            return (
                "The price of an answer is not known, which counts as 0: "
                f"Budget(cost={self._budget.cost:g}) may not hold."
            )
        if self._budget.tokens is not None and counted <= 0 and not self.uncounted:
            self.uncounted = True
            return (
                "The model does not say how many tokens an answer took, which counts as 0: "
                f"Budget(tokens={self._budget.tokens}) may not hold."
            )
        return ""
