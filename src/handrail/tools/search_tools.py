"""Find tools that the model does not see yet, by the words of their names and descriptions, and load them."""

import re
from collections import Counter
from collections.abc import Mapping
from math import log
from typing import Annotated, Any, Final

from pydantic import Field

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure
from handrail.contract.truncated import cut
from handrail.toolkit.context import Context
from handrail.toolkit.tool import tool

NAME_COUNTS: Final = 3
"""Weight of a word in a tool's name, in words of its description."""
SATURATION: Final = 1.2
LENGTH_COUNTS: Final = 0.75
"""Constants of BM25: how much repetition counts, and how much a long text counts less."""
MAX_SHOWN_CHARS: Final = 300
"""Length of a description in the answer, in characters; the tool's schema has all of it."""
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")


@tool(timeout=30)
async def search_tools(
    context: Context, query: Annotated[str, Field(min_length=1)], limit: Annotated[int, Field(ge=1, le=20)] = 5
) -> dict[str, Any]:
    """Find more tools than you see now. Those that are found can be called from your next message on.

    Args:
        query: What the tool should do, in a few words, or a part of its name.
        limit: How many tools to load at most.
    """
    known = context.host.deferred_tools()
    found = rank(query, known)[:limit]
    if not found:
        message = f"No tool matches {query!r}. {len(known):,} tools are not loaded; search with other words."
        raise ToolFailed(Failure("not_found", message, field="query"))
    context.host.load_tools(found)
    loaded = [{"name": name, "description": cut(known[name], MAX_SHOWN_CHARS)} for name in found]
    return {"loaded": loaded, "not_loaded": len(known) - len(found)}


def rank(query: str, tools: Mapping[str, str]) -> list[str]:
    """The names of the tools that share a word with the query, the best first; a tool that it names is first."""
    texts = {name: Counter(_words(name) * NAME_COUNTS + _words(about)) for name, about in tools.items()}
    lengths = {name: sum(words.values()) for name, words in texts.items()}
    usual = sum(lengths.values()) / len(lengths) if lengths else 1.0
    holders = Counter(word for words in texts.values() for word in words)
    scores: dict[str, float] = {}
    for word in set(_words(query)) & holders.keys():
        rarity = log(1 + (len(texts) - holders[word] + 0.5) / (holders[word] + 0.5))
        for name, words in texts.items():
            if times := words[word]:
                long = SATURATION * (1 - LENGTH_COUNTS + LENGTH_COUNTS * lengths[name] / usual)
                scores[name] = scores.get(name, 0.0) + rarity * times * (SATURATION + 1) / (times + long)
    named = {name for name in tools if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", query)}
    return sorted(scores.keys() | named, key=lambda name: (name not in named, -scores.get(name, 0.0), name))


def _words(text: str) -> list[str]:
    """Lower-case words; `readFile`, `read_file` and "reads files" have the same ones."""
    return [_stem(word.lower()) for word in _WORD.findall(text)]


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
