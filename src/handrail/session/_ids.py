"""The ids of a session's calls: each is used once, and every provider accepts those of a model's answer."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from typing import Final

from handrail.contract.call import Call

_ACCEPTED: Final = re.compile("[A-Za-z0-9_-]{1,64}")
_KEPT_OF_LONG: Final = 40


class CallIds:
    """Which ids were used. Some models use the same ids in every answer."""

    def __init__(
        self, used: Iterable[str] = (), clean: Callable[[str], str] | None = None, *, prefix: str = ""
    ) -> None:
        self._used: dict[str, object] = dict.fromkeys(used)
        self._clean = clean
        """Removes secrets. An id with one in it is not used."""
        self._prefix = prefix
        """Beginning of every id, in the session of a task."""
        self._numbers = count(len(self._used) + 1)

    def __contains__(self, id: str) -> bool:
        return id in self._used

    def _is_secret(self, id: str) -> bool:
        return self._clean is not None and self._clean(id) != id

    def next(self) -> str:
        """An id for a call that was given none."""
        return f"{self._prefix}call_{next(self._numbers)}"

    def take(self, call: Call) -> Call:
        """The call, with another id if its own was used already."""
        if self._clean is not None and self._is_secret(call.id):
            call = replace(call, id=self.next())
        taken = object()
        while self._used.setdefault(call.id, taken) is not taken:  # in one step: calls come from several threads
            call = replace(call, id=f"{call.id}_{next(self._numbers)}")
        return call

    def for_answer(self, calls: Iterable[Call]) -> tuple[Call, ...]:
        """The calls of an answer with new ids, which after the prefix every provider accepts; none is taken yet."""
        made: dict[str, Call] = {}
        for call in calls:
            usable = _ACCEPTED.fullmatch(call.id) and (self._clean is None or not self._is_secret(call.id))
            id = call.id if usable else f"call_{next(self._numbers)}"
            while (full := self._prefix + id) in self._used or full in made:
                id = f"{id[:_KEPT_OF_LONG]}_{next(self._numbers)}"
            made[full] = call if full == call.id else replace(call, id=full)
        return tuple(made.values())
