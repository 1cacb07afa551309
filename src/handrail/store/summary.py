"""A Summary: one session in a list of sessions. It is read from the session's events."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Final

from handrail.contract.event import Event
from handrail.contract.model import Usage
from handrail.store.activity import Activity, ActivityName

MAX_TITLE: Final = 80


@dataclass(frozen=True, slots=True)
class Summary:
    """One session in a list. `state` is running, interrupted, idle, or the reason for which the last run ended.

    Example:
        ```python
        store = Store("sessions.db")
        async with Agent(ScriptedModel(["It is 42."]), store=store) as agent:
            await agent.run("What is 41 + 1?")
        summary: Summary = store.sessions()[0]
        print(summary.title, summary.state, summary.calls)
        store.close()
        #> What is 41 + 1? done 0
        ```
    """

    id: str
    title: str
    """The beginning of the first prompt."""
    created: float
    updated: float
    state: str
    model: str
    calls: int
    usage: Usage
    workspace: str
    sandbox: str
    """Name of the sandbox's driver; empty without a sandbox."""
    forked: bool = False
    """Whether it is a copy of another session that nobody has gone on with."""
    activity: ActivityName = "ended"
    """Whether the session works, waits for a person or is idle in a living process; otherwise it has ended."""


@dataclass(frozen=True, slots=True)
class Digest:
    """Summary of the events so far. It is kept in the database, so that only new events need to be read."""

    title: str = ""
    created: float = 0.0
    updated: float = 0.0
    state: str = "idle"
    model: str = ""
    calls: int = 0
    usage: Usage = field(default=Usage())
    workspace: str = ""
    sandbox: str = ""
    forked: bool = False
    activity: Activity = field(default=Activity())

    @classmethod
    def from_json(cls, text: str) -> "Digest":
        """Read what `to_json` wrote; fields that are missing have their default."""
        stored = json.loads(text)
        known = {each.name: stored[each.name] for each in fields(cls) if each.name in stored}
        made = {"usage": Usage(**known.get("usage", {})), "activity": Activity(**known.get("activity", {}))}
        return cls(**{**known, **made})

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def after(self, events: Iterable[Event]) -> "Digest":
        """The digest after these events too."""
        digest = self
        for event in events:
            activity = digest.activity.after(event)
            digest = replace(digest, created=digest.created or event.time, updated=event.time, activity=activity)
            if event.parent is None:
                digest = digest._after_own(event)
            elif event.type == "model_answered":  # of a task
                digest = replace(digest, usage=digest.usage + Usage(**event.data["usage"]))
        return digest

    def summary(self, id: str, *, running: bool) -> Summary:
        """Summary for a list; `running` is whether a living process has the session open."""
        state = "running" if running else "interrupted" if self.state == "in_run" else self.state
        return Summary(
            id, self.title, self.created, self.updated, state,
            self.model, self.calls, self.usage, self.workspace, self.sandbox, self.forked,
            self.activity.name if running else "ended",
        )  # fmt: skip

    def _after_own(self, event: Event) -> "Digest":
        data = event.data
        match event.type:
            case "session_started" | "session_resumed":
                report = data.get("sandbox") or {}
                return replace(
                    self, model=data.get("model") or self.model,
                    workspace=data.get("workspace") or "", sandbox=report.get("driver", ""),
                    forked=event.type == "session_started" and bool(data.get("forked_from")),
                )  # fmt: skip
            case "run_started":
                return replace(self, state="in_run", model=data.get("model") or self.model)
            case "user":
                return replace(self, title=self.title or " ".join(data["text"].split())[:MAX_TITLE])
            case "model_answered":
                return replace(self, usage=self.usage + Usage(**data["usage"]), model=data.get("model") or self.model)
            case "call_started":
                return replace(self, calls=self.calls + 1)
            case "run_ended":
                return replace(self, state="idle" if data.get("forked") else data["reason"])
            case _:
                return self
