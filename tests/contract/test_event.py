"""An Event is a frozen dataclass, however it is filled in."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from handrail import Event

MADE = Event(3, 1.5, "user", None, "call_1", {"text": "hi"})


def test_an_event_cannot_be_changed_and_can_be_copied() -> None:
    with pytest.raises(FrozenInstanceError):
        MADE.seq = 4  # type: ignore[misc]
    assert MADE == copy.deepcopy(MADE) == pickle.loads(pickle.dumps(MADE)) == replace(replace(MADE, seq=4), seq=3)
    assert repr(MADE) == ("Event(seq=3, time=1.5, type='user', call_id=None, parent='call_1', data={'text': 'hi'})"), (
        "each value is in its own field"
    )
    assert replace(MADE, parent=None) != MADE, "the control"


def test_an_event_of_somebodys_own_kind_is_one_too() -> None:
    class Plain(Event):
        pass

    @dataclass(frozen=True)
    class Named(Event):
        name: str = "mine"

    made = Plain(3, 1.5, "user", None, "call_1", {"text": "hi"})
    named = Named(3, 1.5, "user", None, "call_1", {"text": "hi"}, "yours")
    assert [(each.seq, each.time, each.type, each.call_id, each.parent, each.data) for each in (made, named)] == [
        (3, 1.5, "user", None, "call_1", {"text": "hi"})
    ] * 2
    assert (type(made), named.name) == (Plain, "yours")
    with pytest.raises(FrozenInstanceError):
        made.seq = 4  # type: ignore[misc]
