"""Broken drivers: each keeps its promises but for one changed behaviour, and names the checks that it fails.

It does something else than was promised, and raises nothing that the driver below does not raise: where the promise is
an error, it gives an answer instead.
"""

from typing import Final

from handrail.testing.broken._contents import ATOMIC, RANGES
from handrail.testing.broken._exec import EXEC
from handrail.testing.broken._files import FILES
from handrail.testing.broken._limits import LIMITS, bounded
from handrail.testing.broken._links import LINKS
from handrail.testing.broken._streams import OUTPUT, STDIN
from handrail.testing.broken._trees import GROUPS, TREES
from handrail.testing.broken._walls import ENV_WALL, FILE_WALL, NETWORK_WALL, PRIVILEGES, PROCESS_WALL
from handrail.testing.broken.altered import Altered, AlteredProcess, Broken

BROKEN: Final[tuple[Broken, ...]] = (
    *FILES, *LINKS, *ATOMIC, *RANGES, *EXEC, *STDIN, *OUTPUT, *TREES, *GROUPS, *FILE_WALL, *ENV_WALL, *PROCESS_WALL,
    *NETWORK_WALL, *PRIVILEGES, *LIMITS,
)  # fmt: skip

__all__ = ["BROKEN", "Altered", "AlteredProcess", "Broken", "bounded"]
