"""Handrail: the tool runtime between a language model and the side effects it causes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handrail.agent.loop import Agent
    from handrail.contract.approval import ApprovalRequest, Decision
    from handrail.contract.call import Call
    from handrail.contract.errors import HandrailError, ToolFailed
    from handrail.contract.event import Event
    from handrail.contract.limits import Budget, Limits
    from handrail.contract.result import ArtifactRef, Failure, Image, Result, Success, read_envelope
    from handrail.policy.policy import Policy
    from handrail.policy.rule import Rule
    from handrail.sandbox.sandbox import Sandbox
    from handrail.session.open import open_sandbox
    from handrail.session.session import Session
    from handrail.toolkit.bridge import run_sync
    from handrail.toolkit.context import Context
    from handrail.toolkit.tool import Tool, tool
    from handrail.toolkit.toolbox import Toolbox
    from handrail.tools.builtin import builtin_tools

_HOMES = {
    "agent.loop": ("Agent",),
    "contract.approval": ("ApprovalRequest", "Decision"),
    "contract.call": ("Call",),
    "contract.errors": ("HandrailError", "ToolFailed"),
    "contract.event": ("Event",),
    "contract.result": ("ArtifactRef", "Failure", "Image", "Result", "Success", "read_envelope"),
    "contract.limits": ("Budget", "Limits"),
    "sandbox.sandbox": ("Sandbox",),
    "session.open": ("open_sandbox",),
    "session.session": ("Session",),
    "toolkit.bridge": ("run_sync",),
    "toolkit.context": ("Context",),
    "policy.policy": ("Policy",),
    "policy.rule": ("Rule",),
    "toolkit.tool": ("Tool", "tool"),
    "toolkit.toolbox": ("Toolbox",),
    "tools.builtin": ("builtin_tools",),
}
_MODULES = {name: f"handrail.{module}" for module, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "Agent", "ApprovalRequest", "ArtifactRef", "Budget", "Call", "Context", "Decision", "Event", "Failure",
    "HandrailError", "Image", "Limits", "Policy", "Result", "Rule", "Sandbox", "Session", "Success", "Tool",
    "ToolFailed", "Toolbox", "builtin_tools", "open_sandbox", "read_envelope", "run_sync", "tool",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import handrail` costs next to nothing."""
    if name not in _MODULES:
        raise AttributeError(f"module 'handrail' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
