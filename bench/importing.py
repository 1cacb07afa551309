"""What importing every public name costs, in CPU seconds of fresh processes, against importing pydantic."""

import subprocess
import sys
import tempfile
from typing import Final

from bench.measure import Effort, Row, interleave, row

ALLOWED: Final = 2.0
"""How many times `import pydantic` the import of every public name may cost."""
PROGRAM: Final = "from time import process_time\nbegan = process_time()\n{}\nprint(process_time() - began)"
EVERYTHING: Final = "from handrail import *"
IMPORTS: Final = {
    "import pydantic": "import pydantic",
    "from pydantic import BaseModel": "from pydantic import BaseModel",
    "what handrail stands on": "import asyncio, anyio, anyio.lowlevel, jsonschema_rs, docstring_parser\n"
    "from pydantic import TypeAdapter",
    "import handrail": "import handrail",
    EVERYTHING: EVERYTHING,
}


def rows(effort: Effort) -> list[Row]:
    """All of them with compiled files in a directory of their own: the first round, not counted, writes them."""
    with tempfile.TemporaryDirectory() as compiled:
        samples = {name: (lambda code=code: _fresh(code, compiled)) for name, code in IMPORTS.items()}
        times = interleave(samples, effort.rounds)
    pydantic = times["import pydantic"]
    found = [
        row(name, seconds, "ms", floor=pydantic, bound=ALLOWED if name == EVERYTHING else None)
        for name, seconds in times.items()
    ]
    used = row(
        f"{EVERYTHING}, against BaseModel", times[EVERYTHING], "ms", floor=times["from pydantic import BaseModel"]
    )
    return [*found, used]


def _fresh(code: str, compiled: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(code)],
        env={"PYTHONPYCACHEPREFIX": compiled},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)
