"""Fakes for tests of programs that use Handrail: a scripted model, approvers, a recorder, drivers and their tests."""

from handrail.contract.model import Message, Turn
from handrail.drivers.memory import MemoryDriver
from handrail.policy.approvers import HeldApprovals, approve_all, deny_all, edit_with, never_answers
from handrail.testing.plugin import driver_conformance
from handrail.testing.recorder import EventRecorder
from handrail.testing.scripted import Request, ScriptedModel

__all__ = [
    "EventRecorder", "HeldApprovals", "MemoryDriver", "Message", "Request", "ScriptedModel", "Turn",
    "approve_all", "deny_all", "driver_conformance", "edit_with", "never_answers",
]  # fmt: skip
