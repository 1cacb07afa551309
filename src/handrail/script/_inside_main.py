"""The program inside the sandbox: run one script, and say how it ended.

It is given to the sandbox's Python as text, after the other `_inside_` files, and works with Python 3.8 and later.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import io
import linecache
import os
import sys
import traceback
from functools import partial
from types import ModuleType

from handrail.script._inside_channel import Channel, ToolError, plain_signal
from handrail.script._inside_syntax import NAME, TYPE_CHECKING, read
from handrail.script._inside_tools import Ref, Tools, call, plain

if TYPE_CHECKING:
    from typing import Any

MAX_ERROR_CHARS = 8000
MEDIA = "media"
MAX_MEDIA_DEPTH = 3  # directories
MAX_MEDIA_COUNT = 50  # files that are named


def trouble(error: BaseException) -> dict[str, Any]:
    """The error as data: its type, its traceback through the script, and the line of the script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    line = trace.tb_lineno if trace is not None else getattr(error, "lineno", None)
    at = trace
    while at is not None:
        if at.tb_frame.f_code.co_filename == NAME:
            line = at.tb_lineno
        at = at.tb_next
    try:
        kept = [
            part for part in traceback.extract_tb(trace) if part.filename == NAME or "<string>" not in part.filename
        ]
        told = "".join(traceback.format_list(kept)) + "".join(traceback.format_exception_only(type(error), error))
    except Exception:  # noqa: BLE001 - a __str__ of the script's own
        told = type(error).__name__
    told = told if len(told) <= MAX_ERROR_CHARS else f"{told[: MAX_ERROR_CHARS // 2]}…{told[-MAX_ERROR_CHARS // 2 :]}"
    said = {"type": type(error).__name__, "message": told, "line": line}
    if isinstance(error, ToolError):
        said.update(kind=error.kind, retryable=bool(error.retryable))
    return said


def ran(parts: Any, cwd: str, channel: Channel) -> Any:
    """Run the script; return its value."""
    names = {"tools": Tools(channel), "call": call, "ToolError": ToolError, "Ref": Ref}
    module = sys.modules["__main__"] = ModuleType("__main__")  # where its classes and functions are looked up
    scope = vars(module)
    scope.update(names, __builtins__=builtins)
    os.chdir(cwd)
    sys.path.append(cwd)  # last: a file in the workspace does not take the place of a module of Python's own
    if isinstance(parts, BaseException):
        raise parts
    exec(parts[0], scope)
    return None if parts[1] is None else eval(parts[1], scope)


def outcome(parts: Any, cwd: str, channel: Channel) -> dict[str, Any]:
    """Run the script; return its value, or its error."""
    try:
        value = ran(parts, cwd, channel)
        hold()
        silence()
        return {"value": plain(value, "the result")}
    except BaseException as error:  # noqa: BLE001 - a script may raise anything
        hold()
        silence()
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return {"value": None}
        return {"error": trouble(error)}


def media(top: str, depth: int = 0) -> dict[str, Any]:
    """The files in this directory and below, with their size and time."""
    found: dict[str, Any] = {}
    try:
        entries = list(os.scandir(top))
    except OSError:
        return found
    for entry in entries:
        try:
            if entry.is_file(follow_symlinks=False):
                stat = entry.stat(follow_symlinks=False)
                found[entry.path] = stat.st_size, stat.st_mtime_ns
            elif depth < MAX_MEDIA_DEPTH and entry.is_dir(follow_symlinks=False):
                found.update(media(entry.path, depth + 1))
        except OSError:
            pass
    return found


def changed(workspace: str, before: dict[str, Any]) -> dict[str, Any]:
    """The files under media/ that were made or changed, and how many more there are."""
    try:
        after = media(os.path.join(workspace, MEDIA))
        paths = sorted(path for path in after if before.get(path) != after[path])
        named = [os.path.relpath(path, workspace) for path in paths[:MAX_MEDIA_COUNT]]
        return {"media": named, "media_left_out": max(0, len(paths) - MAX_MEDIA_COUNT)}
    except Exception:  # noqa: BLE001 - the script may have replaced any function
        return {"media": []}


def tell(ended: dict[str, Any], channel: Channel) -> bool:
    """Say how the script ended; return whether that was sent."""
    try:
        return channel.end(ended)
    except ValueError as error:
        said = {"type": "ValueError", "message": f"the result cannot be sent: {error}", "line": None}
    except BaseException as error:  # noqa: BLE001 - a value may be anything
        said = trouble(error)
    return channel.end({**ended, "value": None, "error": said})


# A handler may run, and raise, wherever a function of Python begins. This one is written in C: as the first thing in an
# `except` it takes effect, even if a timer fires every 10 µs.
hold = partial(plain_signal.pthread_sigmask, plain_signal.SIG_BLOCK, plain_signal.valid_signals())
"""Block all signals."""


def silence() -> None:
    """Remove the script's handlers of signals, and unblock the signals that nobody has sent yet."""
    try:
        for number in range(1, plain_signal.NSIG):
            if callable(plain_signal.getsignal(number)):
                plain_signal.signal(number, plain_signal.SIG_IGN)
        # A signal that waits stays blocked: delivered now, it would end the process before its result is told.
        plain_signal.pthread_sigmask(plain_signal.SIG_SETMASK, plain_signal.sigpending())
    except BaseException:  # noqa: BLE001 - one of them raised meanwhile
        silence()


def finish() -> None:
    """Do what Python does at its end: run exit functions, and write out and close the files left open."""
    try:
        atexit._run_exitfuncs()
        vars(sys.modules.pop("__main__")).clear()
        gc.collect()
    except BaseException:  # noqa: BLE001 - they are the script's own
        traceback.print_exc()


def main() -> None:
    """Wait for one script, run it, say how it ended, and leave."""
    channel = Channel()
    # What is loaded until now is left out of later collections, so that the one in `finish` takes no time.
    gc.freeze()
    order = channel.order()
    if order is None:
        os._exit(0)
    code, workspace = order["code"], order["workspace"]
    linecache.cache[NAME] = (len(code), None, io.StringIO(code, newline=None).readlines(), NAME)
    before = media(os.path.join(workspace, MEDIA))
    sys.argv = ["script"]
    try:
        ended = outcome(read(code), order["cwd"], channel)
    except BaseException as error:  # noqa: BLE001 - a handler of a signal raised, when the script itself had ended
        hold()
        silence()
        ended = {"error": trouble(error)}
    finish()
    ended.update(changed(workspace, before))
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001 - the script may have closed or replaced it
            pass
    # Not sys.exit: threads and exit functions of the script would keep the interpreter from leaving.
    os._exit(0 if tell(ended, channel) else 1)
