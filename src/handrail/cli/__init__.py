"""The command line: one file per command, and the only room that reads environment variables."""

import sys
from collections.abc import Callable

from handrail.cli import _installed

start: Callable[[], object] | None = None
lacking = ""
try:
    from handrail.cli import (  # noqa: F401 - each adds its command to the app
        call,
        chat,
        conform,
        demo,
        doctor,
        init,
        mcp,
        run,
        servers,
        sessions,
        shell,
        tools,
        trust,
    )
    from handrail.cli._app import app as start
except ModuleNotFoundError as error:
    lacking = (error.name or "handrail").partition(".")[0]
    if lacking == "handrail":
        raise

__all__ = ["main"]


def main() -> None:
    """Run `handrail`. If a package of its extra is missing, say what to type to install it."""
    if start is None:
        sys.exit(_installed.answer(lacking, sys.argv[1:]))
    start()
