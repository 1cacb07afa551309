"""The gates that every call passes, in order."""

from typing import Final

from handrail.gates.breaker import breaker
from handrail.gates.budget import budget
from handrail.gates.deadline import deadline
from handrail.gates.invoke import invoke
from handrail.gates.lane import admit, lane
from handrail.gates.permit import permit
from handrail.gates.preflight import preflight
from handrail.gates.record import record
from handrail.gates.references import references
from handrail.gates.shape import shape
from handrail.toolkit.gate import Gate

STANDARD: Final[tuple[Gate, ...]] = (
    record, shape, budget, breaker, preflight, permit, lane, references, deadline, invoke,
)  # fmt: skip
"""The gates of every call, outermost first.

Example:
    ```python
    print(len(STANDARD), STANDARD[0].__name__, STANDARD[-1].__name__)
    #> 10 record invoke
    ```
"""

__all__ = ["STANDARD", "admit"]
