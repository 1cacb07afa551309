"""The activity of a session, read from its events: it works, waits for a person, is idle, or has ended."""

from dataclasses import dataclass, replace
from typing import Literal

from handrail.contract.event import Event

ActivityName = Literal["works", "waits", "idle", "ended"]


@dataclass(frozen=True, slots=True)
class Activity:
    """The open ends of a session after some of its events."""

    in_run: bool = False
    calls: int = 0
    """Calls of the session itself that have not ended."""
    approvals: int = 0
    """Approvals that nobody has answered, of child sessions too."""
    question: str = ""
    """The id of a question of `ask_user` that nobody has answered."""

    def after(self, event: Event) -> "Activity":
        """The activity after one more event."""
        match event.type:
            case "approval_asked":
                return replace(self, approvals=self.approvals + 1)
            case "approval_settled":
                return replace(self, approvals=max(0, self.approvals - 1))
            case "call_started" if event.parent is None:
                return replace(self, calls=self.calls + 1)
            case "call_ended" if event.parent is None:
                return replace(self, calls=max(0, self.calls - 1))
            case "run_started" if event.parent is None:
                return Activity(in_run=True)
            case "run_ended" if event.parent is None:
                return Activity(question=self.question)
            case "question_asked" if event.parent is None:
                return replace(self, question=event.data["id"])
            case "question_answered":
                return replace(self, question="")
            case "session_resumed":
                return Activity(question=self.question)
            case _:
                return self

    @property
    def name(self) -> ActivityName:
        """One word for it, while a process has the session open."""
        if self.approvals or (self.question and not self.in_run):
            return "waits"
        return "works" if self.in_run or self.calls else "idle"
