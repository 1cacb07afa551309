"""The command line: one file per command, and the only room that reads environment variables."""

import sys
from collections.abc import Callable

start: Callable[[], object] | None
try:
    from handrail.cli import call, demo, doctor, tools  # noqa: F401 - each adds its command to the app
    from handrail.cli._app import app as start
except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".")[0] not in ("typer", "rich"):
        raise
    start = None

__all__ = ["main"]


def main() -> None:
    """Run `handrail`. If the extra it needs is missing, say what to install."""
    if start is None:
        sys.exit("The command line needs its extra; type: pip install 'handrail[cli]'")
    start()
