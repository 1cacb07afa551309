"""How much of a model's context a conversation takes: an estimate that learns from the provider's counts."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import to_json

from handrail.contract.limits import ANSWER_TOKENS, HOSTED_WINDOW
from handrail.contract.model import Message

IMAGE_TOKENS: Final = 1_600.0
"""Estimated tokens of a picture."""
FRAME_TOKENS: Final = 8.0
"""Estimated tokens of a message, a call or a result beside its text."""
MIN_LEARNED_TOKENS: Final = 2_000.0
"""Estimate of a request from which on the provider's count teaches the ratio; smaller requests are mostly frame."""
MIN_RATIO: Final = 0.4
MAX_RATIO: Final = 3.0
SLOWLY: Final = 0.1
"""Share by which the ratio of counted to estimated tokens goes down when a provider counts fewer."""
BYTES_PER_TOKEN: Final = 3.3
"""Bytes of UTF-8 in a token, wide characters apart."""
TOKENS_PER_WIDE: Final = 0.9
"""Tokens of a wide character, such as a Chinese one."""
_as_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode
_WIDE: Final = re.compile("[\u1100-\u11ff\u2e80-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]")


def estimate_tokens(text: str) -> float:
    """Estimate the tokens of a text: 0.9 for a wide character, 1 for 3.3 other bytes of UTF-8."""
    if text.isascii():
        return len(text) / BYTES_PER_TOKEN
    narrow = _WIDE.sub("", text)
    wide = len(text) - len(narrow)
    return TOKENS_PER_WIDE * wide + len(narrow.encode("utf-8", "replace")) / BYTES_PER_TOKEN


def estimate_json_tokens(value: Any) -> float:
    """Estimate the tokens of a value as JSON."""
    try:
        text = to_json(value, fallback=str)  # several times as fast as json
    except (TypeError, ValueError, RecursionError):  # a lone surrogate
        return estimate_tokens(_as_json(value))
    return len(text) / BYTES_PER_TOKEN if text.isascii() else estimate_tokens(text.decode())


def estimate_message_tokens(message: Message) -> float:
    """Estimate the tokens of a user's or an assistant's message."""
    tokens = FRAME_TOKENS + estimate_tokens(message.text) if message.text else FRAME_TOKENS
    for call in message.calls:
        arguments: Any = call.arguments
        if type(arguments) is str:  # the estimate of joined texts is the sum of theirs
            tokens += FRAME_TOKENS + estimate_tokens(call.name + arguments)
        else:
            tokens += FRAME_TOKENS + estimate_tokens(call.name) + estimate_json_tokens(dict(arguments))
    if message.images:
        tokens += IMAGE_TOKENS * len(message.images)
    return tokens if message.keep is None else tokens + estimate_json_tokens(message.keep)


class Window:
    """The context of one model. An estimate times the ratio, which is learned from the provider's counts, is tokens."""

    def __init__(self, model: object) -> None:
        self.size = _positive(getattr(model, "window", None)) or HOSTED_WINDOW
        answer = _positive(getattr(model, "max_tokens", None)) or ANSWER_TOKENS
        self.room = self.size - min(answer, self.size // 4)
        """Tokens for everything but the answer."""
        self.ratio = 1.0
        self.fixed = 0.0
        """Estimate of the system text and the tools, which are in every request."""
        self._counted: tuple[int, float] | None = None
        """The provider's last count, and the estimate of the conversation at that time."""

    def learn(self, sent: float, now: float, usage: Mapping[str, Any]) -> None:
        """Learn from a count: of a request estimated at `sent`, after whose answer the conversation is at `now`."""
        tokens, sent = usage.get("input_tokens") or 0, sent + self.fixed
        if tokens < MIN_RATIO * sent:  # not counted, or not all of it
            self._counted = None
            return
        self._counted = (tokens + (usage.get("output_tokens") or 0), now)
        if sent >= MIN_LEARNED_TOKENS:
            seen = min(tokens / sent, MAX_RATIO)
            self.ratio = seen if seen > self.ratio else self.ratio + SLOWLY * (seen - self.ratio)

    def overflowed(self, estimate: float) -> None:
        """Note that the provider says that a conversation of this estimate does not fit."""
        self._counted = (max(self.size, self.used(estimate)), estimate)

    def used(self, estimate: float) -> int:
        """Tokens of a conversation of this estimate."""
        if self._counted is None:
            return round(self.ratio * (estimate + self.fixed))
        tokens, then = self._counted
        if estimate >= then:
            return round(tokens + self.ratio * (estimate - then))
        return round(tokens * (estimate + self.fixed) / (then + self.fixed))  # something was taken out

    def left(self, estimate: float) -> int:
        """Tokens that are left for what comes next."""
        return max(0, self.room - self.used(estimate))

    def estimate_of(self, tokens: float) -> float:
        """The estimate that so many tokens have."""
        return tokens / self.ratio


def _positive(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
