"""The facts in a session's first event, so that a later reader knows with which tools and rules it began."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any

from handrail.contract.version import __version__
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.gate import SessionState
from handrail.toolkit.tool import Tool


def facts_of(tools: Iterable[Tool], shared: SessionState, opened_by: Mapping[str, Any]) -> dict[str, Any]:
    """The data of `session_started`."""
    return {
        "version": __version__,
        "system": "",
        "model": "",
        "tools": {tool.name: _hash(tool) for tool in tools},
        "policy": shared.policy.mode,
        "budget": asdict(shared.budget),
        "workspace": None if shared.sandbox is None else shared.sandbox.workspace,
        "sandbox": None if shared.sandbox is None else _report(shared.sandbox),
        "parent": None,
        "forked_from": None,
        **opened_by,
    }


def _hash(tool: Tool) -> str:
    """Changes when the tool's schema does."""
    return sha256(json.dumps(tool.parameters, sort_keys=True).encode()).hexdigest()[:16]


def _report(sandbox: Sandbox) -> dict[str, Any]:
    report = sandbox.report
    guarantees = {guarantee.feature: guarantee.standing for guarantee in report.guarantees}
    return {"driver": report.driver, "network": report.network, "promises": guarantees}
