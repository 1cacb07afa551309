"""Which fields matter so much that a guess about them is not run: paths, commands, contents, ids and amounts."""

import re
from collections.abc import Mapping
from typing import Any, Final

from handrail.schema.places import ROOT, look

_WORDS: Final = """
    path paths file files filename filenames filepath dir directory folder cwd source src target destination dest
    glob url uri host address email recipient recipients
    command commands cmd argv script code shell query sql statement expression
    content contents text body message payload patch diff old new edits stdin
    id ids uuid guid key ref reference account branch commit job pid
    amount amounts price cost total sum quantity balance money
"""
WORDS: Final = frozenset(_WORDS.split())
_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def consequential(name: str, property_schema: Any = None) -> bool:
    """By what the property says of itself (`consequential`), else by its name."""
    if isinstance(property_schema, Mapping) and isinstance(property_schema.get("consequential"), bool):
        return bool(property_schema["consequential"])
    return any(part.lower() in WORDS for part in _PARTS.findall(name[:200]))


def is_consequential(root: Mapping[str, Any], path: tuple[str | int, ...]) -> bool:
    """Whether a field, or one that it is inside of, is consequential."""
    place = ROOT
    answer = False
    for step in path:
        view = look(root, place) if place else None
        place = () if view is None else view.item(step) if isinstance(step, int) else view.properties.get(step, ())
        if isinstance(step, int):
            continue
        said = look(root, place).word("consequential") if place else None
        answer = said if isinstance(said, bool) else answer or consequential(step)
    return answer
