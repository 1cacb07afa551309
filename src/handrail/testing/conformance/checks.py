"""All checks, in the order of the promises."""

from typing import Final

from handrail.testing.conformance._closing import CLOSING
from handrail.testing.conformance._contents import ATOMIC, RANGES
from handrail.testing.conformance._exec import EXEC
from handrail.testing.conformance._files import FILES
from handrail.testing.conformance._isolation import ENV_WALL, FILE_WALL, NETWORK_WALL, PRIVILEGES, PROCESS_WALL
from handrail.testing.conformance._limits import GROUPS
from handrail.testing.conformance._links import LINKS
from handrail.testing.conformance._streams import OUTPUT, STDIN
from handrail.testing.conformance._trees import TREES
from handrail.testing.conformance.check import Check

CHECKS: Final[tuple[Check, ...]] = tuple(
    check
    for group in (
        FILES, LINKS, ATOMIC, RANGES, EXEC, STDIN, OUTPUT, TREES, CLOSING, FILE_WALL, ENV_WALL, PROCESS_WALL,
        NETWORK_WALL, PRIVILEGES, *GROUPS.values(),
    )
    for check in group
)  # fmt: skip
