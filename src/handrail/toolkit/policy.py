"""What a session may do without asking, and how much of it."""

from dataclasses import dataclass, field
from math import isnan
from typing import Literal, get_args

from handrail.contract.errors import HandrailError

Mode = Literal["contained", "ask", "strict", "open"]


@dataclass(frozen=True, slots=True)
class Policy:
    """`contained` runs what the sandbox confines; `ask` also asks before writes and commands; `strict` denies
    everything above safe unless it is approved; `open` asks nothing."""

    mode: Mode = field(default="contained", kw_only=True)

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise HandrailError(f"policy mode {self.mode!r} is none of {', '.join(get_args(Mode))}")


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one run, that is of one user turn. None means no limit."""

    calls: int | None = 500
    refusals: int | None = 50
    """Calls that were answered without running: they do not spend `calls`."""
    seconds: float | None = None
    """Unpaused seconds since the run began: waiting for a person does not count."""
    script_calls: int | None = 50
    script_seconds: float | None = 300

    def __post_init__(self) -> None:
        for name in ("calls", "refusals", "seconds", "script_calls", "script_seconds"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or isnan(value) or value < 0):
                raise HandrailError(f"Budget.{name} is {value!r}; give a number from 0 up, or None for no limit")
