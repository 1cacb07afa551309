"""Fakes and checks for people who build on Handrail: a scripted model, a recorder of events."""

from handrail.contract.model import Message, Turn
from handrail.testing.events import EventRecorder
from handrail.testing.scripted import Request, ScriptedModel

__all__ = ["EventRecorder", "Message", "Request", "ScriptedModel", "Turn"]
