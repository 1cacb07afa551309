"""The command line: one file per command, and the only room that reads environment variables."""

import os
import sys
import threading
from collections.abc import Callable
from signal import SIG_DFL, SIG_IGN, SIGINT, default_int_handler, getsignal, signal

start: Callable[[], object] | None = None
lacking = ""
interruptible = threading.current_thread() is threading.main_thread() and (
    getsignal(SIGINT) is default_int_handler
    # Ignored by whoever started it, as a shell does for a script's background jobs; but a person can press Ctrl-C here:
    or (getsignal(SIGINT) is SIG_IGN and sys.stdin is not None and sys.stdin.isatty())
)
if interruptible:
    signal(SIGINT, SIG_DFL)  # loading takes a moment, in which Ctrl-C ends the program without a traceback
try:
    from handrail.cli import (  # noqa: F401 - each adds its command to the app
        _installed,
        batch,
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
finally:
    if interruptible:
        signal(SIGINT, default_int_handler)

__all__ = ["main"]


def main() -> None:
    """Run `handrail`. If a package of its extra is missing, say what to type to install it."""
    _open_closed_streams()
    if start is None:
        sys.exit(_installed.answer(lacking, sys.argv[1:]))
    try:
        start()
    except KeyboardInterrupt:  # before a command could take it
        sys.exit(128 + SIGINT)
    except OSError as error:  # of the help, which a full disk does not take
        sys.exit(f"handrail: {error.strerror or error}")
    finally:
        _drop_unwritten()


def _drop_unwritten() -> None:
    """Drop what could not be written: the person was told, and Python would complain again at the exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """Open the null device where the caller has closed a stream; otherwise the next file would take its number."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 - for as long as the program runs
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
