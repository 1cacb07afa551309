"""Tracebacks for people: as a short text, and in the logger `handrail`, silent until the program configures logging."""

import logging
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Final
from weakref import WeakSet

from handrail.contract.errors import describe_error

TRACEBACK_LIMIT: Final = 16 << 10
"""Size of a traceback, in bytes."""
HEAD_LIMIT: Final = 6 << 10
"""Size of a traceback's beginning, in bytes, if its middle is left out."""
MAX_EXCEPTIONS_COUNT: Final = 1_000
"""Number of exceptions in a chain or group that are formatted. A group of groups can have more than memory has."""
OWN_ROOMS: Final = (
    "handrail.agent", "handrail.aio", "handrail.gates.", "handrail.session.", "handrail.threads", "handrail.toolkit.",
)  # fmt: skip
"""Modules that call what users write: a traceback begins after them."""

LOG: Final = logging.getLogger("handrail")
LOG.addHandler(logging.NullHandler())
# Weak: a session that ended must not be kept alive by the log, nor its secrets searched for any longer.
_cleaning: "Final[WeakSet[Callable[[str], str]]]" = WeakSet()


class RemoteTraceback(Exception):
    """The cause of an exception that was raised in another process. Its text is the traceback there."""

    def __init__(self, text: str, raised: str = "") -> None:
        super().__init__(text)
        self.raised = raised
        """Type of the exception in the other process, if it could not be brought here."""

    def __str__(self) -> str:
        return str(self.args[0])


def clean_logs(clean: Callable[[str], str]) -> None:
    """Remove secrets from all tracebacks and log entries as long as `clean` is alive."""
    _cleaning.add(clean)


def without_secrets(text: str) -> str:
    """The text without the secrets of any session."""
    for clean in list(_cleaning) if _cleaning else ():
        text = clean(text)
    return text


def traceback_of(error: BaseException) -> str:
    """The traceback with its causes, as text that can be encoded, of at most 16 KiB. It never raises."""
    try:
        if isinstance(error.__cause__, RemoteTraceback):
            return _cut(str(error.__cause__))
        if _is_small(error):
            begins = _after_own_frames(error.__traceback__)
            return _cut("".join(traceback.format_exception(type(error), error, begins)))
    except Exception:  # noqa: BLE001 - an exception may be of any type, with methods and properties that raise
        pass
    return _cut("".join(traceback.format_tb(error.__traceback__)) + describe_error(error))


def report(what: str, error: BaseException, level: int = logging.ERROR) -> str:
    """Log the error with its traceback. Returns the traceback, for an event."""
    text = traceback_of(error)
    if LOG.isEnabledFor(level):
        try:
            _log(what, error, text, level)
        except Exception:  # noqa: BLE001 - a broken log handler must not change what a call answers
            pass
    return text


def _log(what: str, error: BaseException, text: str, level: int) -> None:
    path, line, function, _ = LOG.findCaller(stacklevel=3)
    said = _encodable(without_secrets(f"{what} raised {_type_name(error)}"))
    record = LOG.makeRecord(LOG.name, level, path, line, said, (), None, function)
    whole = text.startswith("Traceback") and not isinstance(error.__cause__, RemoteTraceback)
    if whole and not _cleaning:  # the exception itself may hold a secret, whatever its text says
        record.exc_info = (type(error), error, error.__traceback__)  # for handlers that want the exception itself
    record.exc_text = text.rstrip("\n")  # a Formatter prints this and does not format exc_info again
    LOG.handle(record)


def _type_name(error: BaseException) -> str:
    """The type of the error; for one raised in another process, the type there."""
    try:
        if isinstance(error.__cause__, RemoteTraceback) and error.__cause__.raised:
            return error.__cause__.raised
    except Exception:  # noqa: BLE001 - as in traceback_of
        pass
    return type(error).__name__


def _is_small(error: BaseException) -> bool:
    """Whether the exception, with its causes and the members of its groups, is small enough to be formatted."""
    waiting = [error]
    for _ in range(MAX_EXCEPTIONS_COUNT):
        if not waiting:
            return True
        each = waiting.pop()
        members = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        waiting += [one for one in (each.__cause__, each.__context__, *members) if one is not None]
    return False


def _after_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Leave out our own frames before the first one of the user; all of them stay if there is no other."""
    begins = trace
    while begins is not None and str(begins.tb_frame.f_globals.get("__name__")).startswith(OWN_ROOMS):
        begins = begins.tb_next
    return begins or trace


def _cut(text: str) -> str:
    data = _encodable(without_secrets(text)).encode()
    if len(data) <= TRACEBACK_LIMIT:
        return data.decode()
    marker = f"\n[… of {len(data):,} bytes, the middle is left out …]\n".encode()
    tail = TRACEBACK_LIMIT - HEAD_LIMIT - len(marker)
    return (data[:HEAD_LIMIT] + marker + data[-tail:]).decode("utf-8", "ignore")


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
