"""How soon a program has its first answer, in CPU seconds of fresh processes, against pydantic doing the same."""

import subprocess
import sys
import tempfile
from typing import Final

from bench.measure import Effort, Row, interleave, row

ALLOWED: Final = 2.0
"""How many times `validate_call` the first answer of a tool may cost."""
ALLOWED_IMPORT: Final = 0.3
"""How many times `import pydantic` a bare `import handrail` may cost."""
ALLOWED_HELP: Final = 2.5
"""How many times `import rich, typer` the help of the command may cost."""
PROGRAM: Final = "from time import process_time\nbegan = process_time()\n{}\nprint(process_time() - began)"
FUNCTION: Final = 'def add(a: int, b: int = 1) -> int:\n    """Add two numbers."""\n    return a + b\n'
VALIDATE_CALL: Final = "validate_call: the first answer"
FIRST_ANSWER: Final = "@tool: the first answer"
PYDANTIC, HANDRAIL, EVERYTHING = "import pydantic", "import handrail", "from handrail import *"
RICH, HELP = "import rich, typer", "handrail --help"
PROGRAMS: Final = {
    RICH: RICH,
    HELP: """import contextlib, io, sys
sys.argv = ["handrail", "--help"]
with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
    from handrail.cli import main
    main()
assert "chat" in shown.getvalue()""",
    PYDANTIC: PYDANTIC,
    HANDRAIL: HANDRAIL,
    EVERYTHING: EVERYTHING,
    VALIDATE_CALL: f"from pydantic import validate_call\n@validate_call\n{FUNCTION}assert add('41') == 42",
    FIRST_ANSWER: f"""from handrail import Session, run_sync, tool
@tool
{FUNCTION}
async def main():
    async with Session([add]) as session:
        return await session.call("add", '{{"a": "41"}}')
assert run_sync(main).value == 42""",
}


def rows(effort: Effort) -> list[Row]:
    """All of them with compiled files in a directory of their own: the first round, not counted, writes them."""
    with tempfile.TemporaryDirectory() as compiled:
        samples = {name: (lambda code=code: _fresh(code, compiled)) for name, code in PROGRAMS.items()}
        times = interleave(samples, effort.rounds)
    pydantic, validated = times[PYDANTIC], times[VALIDATE_CALL]
    return [
        row(PYDANTIC, pydantic, "ms", floor=pydantic),
        row(HANDRAIL, times[HANDRAIL], "ms", floor=pydantic, bound=ALLOWED_IMPORT),
        row(EVERYTHING, times[EVERYTHING], "ms", floor=pydantic),
        row(VALIDATE_CALL, validated, "ms", floor=validated),
        row(FIRST_ANSWER, times[FIRST_ANSWER], "ms", floor=validated, bound=ALLOWED),
        row(RICH, times[RICH], "ms", floor=times[RICH]),
        row(HELP, times[HELP], "ms", floor=times[RICH], bound=ALLOWED_HELP),
    ]


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
