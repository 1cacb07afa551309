"""How much of a model's context a conversation takes: an estimate that learns from the provider's counts."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import to_json

from handrail.contract.limits import ANSWER_TOKENS, HOSTED_WINDOW
from handrail.contract.model import Message

IMAGE_WEIGHT: Final = 1_600.0
MESSAGE_WEIGHT: Final = 8.0
"""Of a message, a call or a result, beside its text."""
LEAST_LEARNED: Final = 2_000.0
"""Weight of a request from which on its count says something about the ratio; smaller ones are mostly frame."""
LOWEST_RATIO: Final = 0.4
HIGHEST_RATIO: Final = 3.0
SLOWLY: Final = 0.1
BYTES_PER_TOKEN: Final = 3.3
"""Of UTF-8, wide characters apart."""
_as_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode
_WIDE: Final = re.compile("[\u1100-\u11ff\u2e80-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]")


def weigh(text: str) -> float:
    """About how many tokens a text has: 0.9 for a wide character, 1 for 3.3 other bytes of UTF-8."""
    if text.isascii():
        return len(text) / BYTES_PER_TOKEN
    narrow = _WIDE.sub("", text)
    return 0.9 * (len(text) - len(narrow)) + len(narrow.encode("utf-8", "replace")) / BYTES_PER_TOKEN


def weigh_json(value: Any) -> float:
    """About how many tokens a value has as JSON."""
    try:
        text = to_json(value, fallback=str)  # several times as fast as json
    except (TypeError, ValueError, RecursionError):  # a lone surrogate
        return weigh(_as_json(value))
    return len(text) / BYTES_PER_TOKEN if text.isascii() else weigh(text.decode())


def weigh_message(message: Message) -> float:
    """About how many tokens a user's or an assistant's message has."""
    weight = MESSAGE_WEIGHT + weigh(message.text) + IMAGE_WEIGHT * len(message.images)
    for call in message.calls:
        arguments = call.arguments
        inside = weigh(arguments) if isinstance(arguments, str) else weigh_json(dict(arguments))
        weight += MESSAGE_WEIGHT + weigh(call.name) + inside
    return weight if message.keep is None else weight + weigh_json(message.keep)


class Window:
    """The context of one model. Weights are estimates; times the ratio, which is learned, they are tokens."""

    def __init__(self, model: object) -> None:
        self.size = _positive(getattr(model, "window", None)) or HOSTED_WINDOW
        answer = _positive(getattr(model, "max_tokens", None)) or ANSWER_TOKENS
        self.room = self.size - min(answer, self.size // 4)
        """Tokens for everything but the answer."""
        self.ratio = 1.0
        self.fixed = 0.0
        """The weight of the system text and the tools, which are in every request."""
        self._counted: tuple[int, float] | None = None
        """The provider's last count, and the weight of the conversation at that time."""

    def learn(self, sent: float, now: float, usage: Mapping[str, Any]) -> None:
        """Take up a count: of a request of weight `sent`, after whose answer the conversation has weight `now`."""
        tokens, sent = usage.get("input_tokens") or 0, sent + self.fixed
        if tokens < LOWEST_RATIO * sent:  # not counted, or not all of it
            self._counted = None
            return
        self._counted = (tokens + (usage.get("output_tokens") or 0), now)
        if sent >= LEAST_LEARNED:
            seen = min(tokens / sent, HIGHEST_RATIO)
            self.ratio = seen if seen > self.ratio else self.ratio + SLOWLY * (seen - self.ratio)

    def overflowed(self, weight: float) -> None:
        """The provider says that a conversation of this weight does not fit."""
        self._counted = (max(self.size, self.used(weight)), weight)

    def used(self, weight: float) -> int:
        """Tokens of a conversation of this weight."""
        if self._counted is None:
            return round(self.ratio * (weight + self.fixed))
        tokens, then = self._counted
        if weight >= then:
            return round(tokens + self.ratio * (weight - then))
        return round(tokens * (weight + self.fixed) / (then + self.fixed))  # something was taken out

    def left(self, weight: float) -> int:
        """Tokens that are left for what comes next."""
        return max(0, self.room - self.used(weight))

    def weight_of(self, tokens: float) -> float:
        """The weight that so many tokens have."""
        return tokens / self.ratio


def _positive(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
