"""The providers that can be named, one row each: all that the other files of this room must know of one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Known:
    """One provider. An empty text means: nothing of that kind, or the provider's own name."""

    begins: str = ""
    """A regular expression: how the names of its models begin."""
    has_address: bool = False
    """Whether a name may end in an address, because no model of it has an `@` inside its name."""
    kind: str = ""
    """Its name in the library, where we call it otherwise."""
    key: str = ""
    """How the variable with its key begins."""
    rules: str = ""
    """Whose rules a tool's schema follows, where they have another name."""
    asks_to_cache: bool = False
    """Whether a request must ask for caching; the others cache by themselves."""
    tells_failures: bool = False
    """Whether a result can be marked as failed."""
    has_text_results: bool = False
    """Whether results are text alone, so that the pictures of a result follow in the next message."""
    takes_gif: bool = True
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Default model, by the variable that holds a key."""


KNOWN: Final[Mapping[str, Known]] = {
    "anthropic": Known(
        "claude", key="ANTHROPIC", asks_to_cache=True, tells_failures=True,
        defaults={"ANTHROPIC_API_KEY": "claude-opus-5"},
    ),
    "openai": Known(
        r"gpt-|chatgpt|o\d", has_address=True, kind="openai-responses", key="OPENAI", rules="openai-responses",
        asks_to_cache=True, defaults={"OPENAI_API_KEY": "gpt-5"},
    ),
    "google": Known(
        "gemini", key="GEMINI", rules="gemini", takes_gif=False,
        defaults={"GEMINI_API_KEY": "gemini-3-pro-preview", "GOOGLE_API_KEY": "gemini-3-pro-preview"},
    ),
    "ollama": Known("llama|qwen|mistral|gemma|phi|deepseek", has_address=True, rules="openai", has_text_results=True),
    "openai-chat": Known(has_address=True, key="OPENAI", rules="openai", has_text_results=True),
}  # fmt: skip
"""Providers by name. Where several keys are set and nobody names a model, the first of these is taken."""
TOKENS_ASKED: Final = "handrail_tokens"
"""Key in the details of a response whose request asked for the sampled tokens."""
