"""Drivers that forget a limit."""

from dataclasses import replace
from typing import Any, Final

from handrail.contract.limits import Limits
from handrail.drivers.limit_table import LIMIT_TABLE
from tests.broken._guards import with_bubblewrap, with_guard
from tests.broken.altered import Broken, Catalogue

LIMITS: Final[list[Broken]] = []
UNWATCHED: Final = "does not watch memory"
"""It breaks nothing where a cgroup keeps the limit instead."""
FORGETS_SIZES: Final = """
while "--size" in words:
    at = words.index("--size")
    del words[at:at+2]
"""


def _without(field: str) -> Any:
    def change(options: dict[str, Any]) -> dict[str, Any]:
        return {**options, "limits": replace(options.get("limits") or Limits(), **{field: None})}

    return change


for _row in LIMIT_TABLE:
    if _row.name != "tmp":  # without a limit it has a default
        _catalogue = Catalogue(_row.feature)
        _catalogue.opening(_row.broken, _without(_row.name))
        LIMITS.extend(_catalogue)
_memory: Final = Catalogue("limit_memory")
_memory.opening(UNWATCHED, with_guard(("watch.c", "if (all > limit && largest", "if (0 && largest")))
LIMITS.extend(_memory)
_tmp: Final = Catalogue("limit_tmp")
_tmp.opening("forgets the size of private directories", with_bubblewrap(FORGETS_SIZES))
LIMITS.extend(_tmp)
