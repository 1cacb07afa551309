"""Broken drivers: each keeps its promises but for one changed behaviour, and names the checks that it fails.

It does something else than was promised, and raises nothing that the driver below does not raise: where the promise is
an error, it gives an answer instead.
"""

from typing import Final

from tests.broken._contents import ATOMIC, RANGES
from tests.broken._exec import EXEC
from tests.broken._files import FILES
from tests.broken._limits import LIMITS
from tests.broken._links import LINKS
from tests.broken._streams import OUTPUT, STDIN
from tests.broken._trees import GROUPS, TREES
from tests.broken._walls import ENV_WALL, FILE_WALL, NETWORK_WALL, PRIVILEGES, PROCESS_WALL
from tests.broken.altered import Altered, AlteredProcess, Broken

BROKEN: Final[tuple[Broken, ...]] = (
    *FILES, *LINKS, *ATOMIC, *RANGES, *EXEC, *STDIN, *OUTPUT, *TREES, *GROUPS, *FILE_WALL, *ENV_WALL, *PROCESS_WALL,
    *NETWORK_WALL, *PRIVILEGES, *LIMITS,
)  # fmt: skip

__all__ = ["BROKEN", "Altered", "AlteredProcess", "Broken"]
