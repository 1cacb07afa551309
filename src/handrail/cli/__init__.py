"""The command line: the only place that reads environment variables and configuration files."""

import sys
from collections.abc import Callable

start: Callable[[], object] | None
try:
    from handrail.cli.app import app as start
except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".")[0] not in ("typer", "rich"):
        raise
    start = None

__all__ = ["main"]


def main() -> None:
    """Run `handrail`; without the extra it needs, say what to install."""
    if start is None:
        sys.exit("The command line needs its extra; type: pip install 'handrail[cli]'")
    start()
