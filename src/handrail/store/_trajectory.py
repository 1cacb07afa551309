"""A stored session as a trajectory for evaluation and training: OpenAI's chat messages, or ATIF."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from handrail.contract.event import Event
from handrail.contract.model import Usage
from handrail.contract.version import __version__

ATIF: Final = "ATIF-v1.6"
"""Version of the format, the first with everything that a trajectory of ours has."""


def as_chat(events: Iterable[Event]) -> dict[str, Any]:
    """`{"messages": […], "reward": x}`: one line of a file of conversations. Each call has its answer."""
    messages: list[dict[str, Any]] = []
    reward: float | None = None
    for event in _own(events):
        data = event.data
        if event.type == "session_started" and data.get("system"):
            messages.append({"role": "system", "content": data["system"]})
        elif event.type in ("user", "steered"):
            messages.append({"role": "user", "content": data["text"]})
        elif event.type == "model_answered":
            messages.append(_assistant(data))
        elif event.type == "call_ended" and _asked_for(messages, event.call_id):
            content = json.dumps(data["result"], ensure_ascii=False)
            messages.append({"role": "tool", "tool_call_id": event.call_id, "content": content})
        elif event.type == "scored":
            reward = data["reward"]
    return {"messages": messages, "reward": reward}


def _assistant(data: Mapping[str, Any]) -> dict[str, Any]:
    named = [(call["id"], {"name": call["name"], "arguments": _text(call["arguments"])}) for call in data["calls"]]
    calls = [{"id": id, "type": "function", "function": function} for id, function in named]
    return {"role": "assistant", "content": data["text"], **({"tool_calls": calls} if calls else {})}


def _asked_for(messages: list[dict[str, Any]], call: str | None) -> bool:
    """Whether the last answer made this call; calls that tools make are no messages."""
    last: dict[str, Any] = next((each for each in reversed(messages) if each["role"] == "assistant"), {})
    return any(each["id"] == call for each in last.get("tool_calls", ()))


def as_atif(id: str, events: Iterable[Event]) -> dict[str, Any]:
    """A trajectory of the Agent Trajectory Interchange Format; the reward is in `extra`, null where there is none."""
    steps: list[dict[str, Any]] = []
    agent = {"name": "handrail", "version": __version__, "model_name": ""}
    extra: dict[str, Any] = {"reward": None}
    total, answered = Usage(), 0
    for event in _own(events):
        data = event.data
        if event.type == "session_started":
            agent["model_name"] = data.get("model") or ""
            _add(steps, event, "system", data.get("system") or "")
        elif event.type in ("user", "steered"):
            _add(steps, event, "user", data["text"])
        elif event.type == "model_answered":
            total, answered = total + Usage(**data["usage"]), answered + 1
            _add(steps, event, "agent", data["text"], **_agent_step(data))
        elif event.type == "call_ended":
            _observe(steps, event)
        elif event.type == "scored":
            extra |= {name: data.get(name) for name in ("reward", "task", "sample", "meta")}
    final = {
        "total_prompt_tokens": total.input_tokens, "total_completion_tokens": total.output_tokens,
        "total_cached_tokens": total.cache_read, "total_cost_usd": total.cost, "total_steps": len(steps),
    }  # fmt: skip
    return {
        "schema_version": ATIF, "session_id": id, "agent": agent, "steps": steps, "final_metrics": final,
        "extra": extra,
    }  # fmt: skip


def _add(steps: list[dict[str, Any]], event: Event, source: str, message: str, **more: Any) -> None:
    if message or source == "agent":
        when = datetime.fromtimestamp(event.time, UTC).isoformat()
        steps.append({"step_id": len(steps) + 1, "timestamp": when, "source": source, "message": message, **more})


def _agent_step(data: Mapping[str, Any]) -> dict[str, Any]:
    usage, tokens = data["usage"], data.get("tokens") or {}
    metrics = {
        "prompt_tokens": usage.get("input_tokens"), "completion_tokens": usage.get("output_tokens"),
        "cached_tokens": usage.get("cache_read"), "cost_usd": usage.get("cost"),
        "prompt_token_ids": tokens.get("prompt") or None, "completion_token_ids": tokens.get("output") or None,
        "logprobs": tokens.get("logprobs") or None,
    }  # fmt: skip
    calls = [
        {"tool_call_id": call["id"], "function_name": call["name"], "arguments": _object(call["arguments"])}
        for call in data["calls"]
    ]
    return {"model_name": data["model"], "tool_calls": calls or None, "metrics": metrics}


def _observe(steps: list[dict[str, Any]], event: Event) -> None:
    """Put a result into the step whose call it answers."""
    for step in reversed(steps):
        if any(call["tool_call_id"] == event.call_id for call in step.get("tool_calls") or ()):
            result = {"source_call_id": event.call_id, "content": _text(event.data["result"])}
            step.setdefault("observation", {"results": []})["results"].append(result)
            return


def _own(events: Iterable[Event]) -> Iterable[Event]:
    """Events of the session's own conversation: what its tasks said and called is not in it."""
    return (event for event in events if event.parent is None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _object(arguments: Any) -> dict[str, Any]:
    """The arguments as an object; a text that is none is kept whole."""
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        value = None
    return dict(value) if isinstance(value, Mapping) else {"arguments": _text(arguments)}
