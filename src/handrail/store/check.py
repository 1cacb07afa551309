"""Whether a stored session is as it was written, and the error for one that is not."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Literal

from handrail.contract.errors import HandrailError

MarkState = Literal["fits", "none", "unreadable"]
"""Whether a session's end mark is there: without one, nobody knows whether its last events are missing."""


@dataclass(frozen=True, slots=True)
class SessionCheck:
    """Findings of a check of one session.

    Example:
        ```python
        store = Store("sessions.db")
        async with Agent(ScriptedModel(["It is 42."]), store=store) as agent:
            await agent.run("What is 41 + 1?")
        check: SessionCheck = store.check(store.sessions()[0].id)
        print(check.missing, repr(check.damage))
        store.close()
        #> 0 ''
        ```
    """

    id: str
    events: int
    """Number of events that are as they were written, from the first on."""
    missing: int
    """Number of events behind those that are missing, or cannot be trusted."""
    damage: str
    """Problem with the events, and how to go on; empty if there is none."""
    without_digest: int
    """Number of events from a version that kept no digests, in which a change would not show."""
    end_mark: MarkState
    artifacts: tuple[str, ...]
    """The problem of each artifact that cannot be read."""

    @property
    def ok(self) -> bool:
        return not self.damage and not self.artifacts


class Damaged(HandrailError):
    """The file of a store is not what was written."""


class DamagedSession(Damaged):
    """A session's events are not what was written, or some are missing."""

    def __init__(self, path: Path, session: str, what: str, good: int, missing: int) -> None:
        self.good = good
        """Number of events that are as they were written, from the first on."""
        self.missing = missing
        """Number of events behind those that are missing, or cannot be trusted."""
        super().__init__(f"{path} is damaged: {what} (session {session}). {_next_step(session, good, missing)}")


def _next_step(session: str, good: int, missing: int) -> str:
    if not good:
        return f"All of its {missing} events are lost. Restore it from a copy, or remove the session."
    last = good - 1
    return (
        f"Its last good event is {last}; {missing} after it {'is' if missing == 1 else 'are'} lost. "
        f"Restore it from a copy, or go on with the good part: `handrail sessions fork {quote(session)} --at {last}`, "
        f"in a program store.fork({session!r}, at={last})."
    )
