"""What a policy says of calls, found through the only door, where there is nobody to ask."""

import json
from typing import Any

from handrail import Budget, Policy, Session, Tool

LOOSE = Budget(calls=None, refusals=None)


async def verdicts(
    policy: Policy, tool: str, values: list[Any], *, field: str, sandbox: Any = None, **options: Any
) -> dict[Any, str]:
    """For each value: `runs`, `asks` (there is nobody to ask) or `denied`."""
    parameters = {"type": "object", "properties": {field: {}}, "required": [field]}
    made = Tool(tool, parameters, lambda context, arguments: "ran", needs=["files"] if sandbox else (), **options)
    found = {}
    async with Session([made], policy=policy, sandbox=sandbox, budget=LOOSE) as session:
        for value in values:
            result = await session.call(tool, {field: value})
            if not result.ok:
                assert result.kind == "rejected", result
            asks = not result.ok and "needs approval" in result.message
            found[json.dumps(value)] = "runs" if result.ok else "asks" if asks else "denied"
    return found


async def commands(policy: Policy, lines: list[str]) -> dict[str, str]:
    found = await verdicts(policy, "bash", list(lines), field="command", effects=["executes"])
    return {json.loads(line): verdict for line, verdict in found.items()}
