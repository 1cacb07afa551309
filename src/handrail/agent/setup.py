"""What an Agent stands on: its model, and its session where it was not given one."""

from collections.abc import Iterable
from typing import Any

from handrail.contract.approval import Approver
from handrail.contract.errors import HandrailError
from handrail.contract.limits import Budget
from handrail.contract.model import Model
from handrail.policy.policy import Policy
from handrail.session.session import Session
from handrail.toolkit.toolbox import Toolbox, ToolLike


def open_model(model: str | Model) -> Model:
    """The model itself; names of providers' models are not built yet."""
    if isinstance(model, str):
        raise HandrailError(f"the model {model!r} is named, and providers are not built yet; give a Model object")
    if not callable(getattr(model, "ask", None)):
        raise HandrailError(f"{type(model).__name__} is no Model: it has no `ask`")
    return model


def make_session(
    session: Session | None,
    tools: Iterable[ToolLike] | Toolbox,
    *,
    sandbox: Any,
    policy: Policy,
    approver: Approver | None,
    budget: Budget,
) -> Session:
    """The given session, which already has its tools and rules, or a new one."""
    if session is None:
        return Session(tools, sandbox=sandbox, policy=policy, approver=approver, budget=budget)
    extra = {"tools": tools, "sandbox": sandbox, "approver": approver}
    given = [name for name, value in extra.items() if value is not None and value != ()]
    given += [
        name
        for name, value, default in (("policy", policy, Policy()), ("budget", budget, Budget()))
        if value != default
    ]
    if given:
        raise HandrailError(f"give {', '.join(given)} to the Session, not to an Agent that was given one")
    return session
