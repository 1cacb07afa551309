"""Make what a person is asked: the call as it is, safe to show, with the rule that would remember it."""

import os
from collections.abc import Iterator
from copy import deepcopy
from os import urandom
from time import time
from typing import Any, Final

import anyio

from handrail.contract.approval import ApprovalRequest
from handrail.policy.approval import render, visible
from handrail.policy.glob import escape
from handrail.policy.match import Place, first_property, is_path, matches, named_property, text_of
from handrail.policy.rule import Rule
from handrail.sandbox.sandbox import Sandbox
from handrail.schema.parse import arguments_hash
from handrail.schema.references import references
from handrail.toolkit.gate import Step

LONGEST_RULE: Final = 1_000
SHOWN: Final = (
    "id", "tool", "risk", "arguments_hash", "text", "repairs", "reason", "suggested_rule", "sandbox", "expires_at",
)  # fmt: skip
"""What the transcript keeps of a request."""


async def request_for(step: Step, reason: str, wait: float) -> ApprovalRequest:
    """Bound to the arguments as they are now: whoever gets it may do with his copy what he likes."""
    sandbox, tool = step.rules.sandbox, step.tool
    arguments = deepcopy(dict(step.arguments))
    repairs = tuple(visible(f"{r.path}: {r.before!r} became {r.after!r}")[:1_000] for r in step.repairs)
    return ApprovalRequest(
        id=urandom(16).hex(),
        call_id=step.call.id,
        tool=tool.name,
        risk=tool.risk,
        effects=frozenset(tool.effects),
        arguments=arguments,
        arguments_hash=arguments_hash(step.arguments),
        text=render(tool.name, arguments),
        repairs=repairs,
        reason=reason,
        suggested_rule=await suggest(step),
        sandbox=f"{sandbox.report.driver}:{sandbox.workspace}" if sandbox is not None else "none",
        expires_at=time() + wait,
    )


def shown(request: ApprovalRequest) -> dict[str, Any]:
    """The request as an event."""
    return {name: getattr(request, name) for name in SHOWN}


async def suggest(step: Step) -> str:
    """The narrowest rule that means this call: its tool, and the value of the first property that it has.

    Empty where no rule means exactly this value, or where it cannot be shown in full: that is not remembered.
    """
    tool, arguments = step.tool, step.arguments
    if not arguments and not tool.parameters.get("properties"):
        return tool.name
    name = next((name for name in (first_property(tool), *arguments) if name in arguments), None)
    if name is None:
        return ""
    text = text_of(arguments[name])
    if len(text) > LONGEST_RULE or visible(text) != text or any(True for _ in references([arguments[name]])):
        return ""
    if is_path(tool, name) and text.endswith("/"):  # as a rule it would mean everything below
        return ""
    inner = escape(text)
    for form in (inner, f"{name}={inner}"):
        if named_property(form, tool) == (name, inner):
            rule = f"{tool.name}({form})"
            return rule if await matches(Rule(rule), tool, arguments, places_of(step), exact=True) else ""
    return ""


class Places:
    """Where the call's relative paths begin, and how they are followed: in the sandbox, on this machine, or either."""

    __slots__ = ("_step",)  # nothing is found out before a path is looked at

    def __init__(self, step: Step) -> None:
        self._step = step

    def __iter__(self) -> Iterator[Place]:
        sandbox = self._step.rules.sandbox
        if sandbox is not None:
            yield _inside(sandbox)
        if sandbox is None or not self._step.tool.needs:
            yield Place(os.getcwd(), _host_path)


def places_of(step: Step) -> Places:
    """Of this call; they may be gone through many times."""
    return Places(step)


def _inside(sandbox: Sandbox) -> Place:
    stat = sandbox.stat

    async def real_path(path: str) -> str:
        found = await stat(path)
        if found.type == "symlink":
            raise OSError(f"{path} is a link that leads nowhere yet")
        return found.real_path

    return Place(sandbox.workspace, real_path)


async def _host_path(path: str) -> str:
    return await anyio.to_thread.run_sync(os.path.realpath, path)
