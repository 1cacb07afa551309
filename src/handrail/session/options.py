"""The options that a new session and one that is resumed both take."""

from collections.abc import Sequence
from typing import Any, TypedDict

from handrail.artifacts.store import Artifacts, Scope
from handrail.contract.approval import Approver
from handrail.contract.event import Reader
from handrail.contract.limits import Budget, Caps
from handrail.policy.policy import Policy
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Host
from handrail.toolkit.gate import Gate
from handrail.toolkit.toolbox import Tools
from handrail.toolkit.tracing import Tracing


class SessionOptions(TypedDict, total=False):
    """Options of a session; Session explains them."""

    tools: Tools
    sandbox: Sandbox | None
    policy: Policy
    approver: Approver | None
    budget: Budget
    caps: Caps
    artifacts: Artifacts | Scope | None
    readers: Sequence[Reader]
    state: Any
    host: Host | None
    gates: Sequence[Gate] | None
    tracing: Tracing | None
    secrets: Sequence[str]
    call_timeout: float | None
    door: bool
