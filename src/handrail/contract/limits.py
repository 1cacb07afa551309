"""Every size and every wait in one place: what a sandbox may use, what a run may spend, how long anybody waits."""

from dataclasses import dataclass
from math import isnan
from typing import Final

from handrail.contract.errors import HandrailError

TOOL_TIMEOUT: Final = 120.0
"""Seconds a tool may take, unless it sets its own `timeout`."""
APPROVAL_WAIT: Final = 300.0
"""Seconds a person has to answer a request, unless the approver has its own `.wait`."""
BUDGET_GRACE: Final = 5.0
"""Seconds a tool that keeps its own clock has to stop and answer once the seconds of its run are over."""
LIMIT_GRACE: Final = 0.5
"""Seconds between TERM and KILL when a limit ends a command."""
USER_GRACE: Final = 3.0
"""Seconds between TERM and KILL when a person or the model ends a command."""
KILL_WAIT: Final = 1.0
"""Seconds a driver has to confirm a KILL; then the call is answered without it."""
SLOW_DRIVER: Final = 2.0
"""Seconds that a driver may add to a command, before or after it, without a warning."""
JOB_START_WAIT: Final = 30.0
"""Seconds a driver has to start a job."""
CODE_FILE_WAIT: Final = 2.0
"""Seconds to remove the file of a program that `run_code` ran."""
SANDBOX_CLOSE_WAIT: Final = 10.0
"""Seconds a driver has to close."""
READER_WAIT: Final = 5.0
"""Seconds a reader may take over one event, and to finish when its session ends."""
GUARD_START_WAIT: Final = 20.0
"""Seconds the guard has to say that it runs."""
GUARD_SILENCE: Final = 60.0
"""Seconds the guard may be silent over a request before it is taken for dead."""
GUARD_END_WAIT: Final = 3.0
"""Seconds the guard has to end by itself when it is closed."""
GUARD_KILL_WAIT: Final = 2.0
"""Seconds a killed guard has to be gone."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandbox may use; None means no limit. Sizes are in bytes, cpu in seconds per process."""

    memory: int | None = None
    processes: int | None = 512
    cpu: float | None = None
    open_files: int | None = 4096
    file_size: int | None = None
    tmp: int | None = 1 << 30
    workspace: int | None = None


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
