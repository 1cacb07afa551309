"""Go on with a stored session: end what was open, and restore what lasts."""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from handrail.contract.errors import HandrailError, WeakerThanAsked
from handrail.contract.event import Event
from handrail.gates.permit import approvals_of
from handrail.policy.rule import Rule
from handrail.schema.globs import SPECIAL
from handrail.store.ends import open_ends

if TYPE_CHECKING:
    from handrail.session.core import SessionCore
    from handrail.store.store import Store
    from handrail.store.stored import StoredSession


class ResumedSession:
    """A stored session that is claimed, with its events: a Session goes on with it."""

    def __init__(self, store: "Store", id: str) -> None:
        self.artifacts = store.artifacts
        self.stored: StoredSession = store.claim(id, exists=True)
        try:
            self.events: tuple[Event, ...] = tuple(store.events(id))
        except BaseException:
            self.stored.close()
            raise


def restore(core: "SessionCore", past: tuple[Event, ...], *, other: bool, weaker: bool) -> None:
    """Restore the state of the session from its past. Raises HandrailError where it cannot be gone on with."""
    try:
        check_surroundings(past, core.facts(), other=other, weaker=weaker)
        _restore(core, past)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise HandrailError(f"session {core.id!r} cannot be resumed, its events are damaged: {error!r}") from error


def check_surroundings(past: tuple[Event, ...], now: Mapping[str, Any], *, other: bool, weaker: bool) -> None:
    """Raise HandrailError if the workspace is another one, or the sandbox is weaker, than the session had."""
    then = _latest(past)
    if then.get("workspace") != now["workspace"] and then.get("workspace") is not None and not other:
        raise HandrailError(
            f"the session worked in {then['workspace']}, and this sandbox has {now['workspace'] or 'no workspace'}: "
            "give it that workspace, or allow_other_workspace=True"
        )
    had, has = _enforced(then), _enforced(now)
    if lost := sorted(had - has):
        raise_weaker = f"the session's sandbox enforced {', '.join(lost)}, and this one does not"
        if not weaker:
            raise WeakerThanAsked(f"{raise_weaker}: open a stronger one, or give ", "")


def _restore(core: "SessionCore", past: tuple[Event, ...]) -> None:
    """Write the ends of what was open, and restore memory, remembered rules, loaded tools and the count of calls."""
    same = _same_rules(_latest(past), core.facts())
    approvals = approvals_of(core.shared)
    for event in past:
        if event.type == "call_ended" and "memory" in event.data:
            core.memories.restore(event.data["memory"])
        elif event.type == "approval_settled" and _is_exact(event.data.get("rule")) and same:
            approvals.remembered.append(Rule(event.data["rule"]))
        elif event.type == "approval_settled" and event.data["decision"] == "deferred":
            approvals.used.discard((event.data["tool"], event.data["arguments_hash"]))
        elif event.type == "call_started" and "approved" in event.data:
            approvals.used.add((event.data["tool"], event.data["approved"]))
        elif event.type == "tools_loaded" and event.parent is None:
            core.tools.restore_loaded(event.data["tools"])
    core.call_count = _own_calls(past)
    for type, call_id, parent, data in open_ends(past, "interrupted"):
        core.emit(type, call_id, parent, data)
    core.emit("session_resumed", data=core.facts())


def _is_exact(rule: str | None) -> bool:
    """Whether a remembered rule covers one value: the file may have been written by others, and a glob covers more."""
    return bool(rule) and SPECIAL.isdisjoint(rule or "")


def ids_in(past: tuple[Event, ...]) -> Iterator[str]:
    """The ids of all calls, accepted or only asked for."""
    for event in past:
        if event.type == "call_started" and event.call_id:
            yield event.call_id
        elif event.type == "model_answered":
            yield from (call["id"] for call in event.data["calls"])


def _own_calls(past: tuple[Event, ...]) -> int:
    """How many calls the session has accepted; those of tasks are counted by the sessions of the tasks."""
    tasks = {event.parent for event in past if event.type == "run_started" and event.parent}
    ids = [event.call_id for event in past if event.type == "call_started" and event.call_id]
    inside = [id for id in ids if not tasks.isdisjoint(accumulate(id.split("/"), "{}/{}".format))]
    return len(ids) - len(inside)


def _latest(past: tuple[Event, ...]) -> Mapping[str, Any]:
    """The session's facts when it was opened the last time."""
    found = (event.data for event in reversed(past) if event.type in ("session_started", "session_resumed"))
    return next(found, {})


def _enforced(facts: Mapping[str, Any]) -> set[str]:
    guarantees = (facts.get("sandbox") or {}).get("promises", {})
    return {feature for feature, standing in guarantees.items() if standing == "enforced"}


def _same_rules(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a rule that a person accepted then means the same now."""
    drivers = [(facts.get("sandbox") or {}).get("driver") for facts in (then, now)]
    return then.get("policy") == now["policy"] and drivers[0] == drivers[1]
