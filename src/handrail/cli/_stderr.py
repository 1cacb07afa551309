"""Write to stderr without waiting for its reader: a server must not stand still because nobody reads what it prints."""

import logging
import os
import select
import sys
from time import monotonic
from typing import TYPE_CHECKING, Final

from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.policy import approval as _approval
else:
    _approval = Lazy("handrail.policy.approval")

MAX_PIECE_BYTES: Final = 4_096
"""Bytes that a pipe takes at once when it says that it can be written to."""
MAX_ENTRIES_COUNT: Final = 20
"""Log entries that are printed in LOG_WINDOW_SECONDS; what is beyond is counted."""
LOG_WINDOW_SECONDS: Final = 10.0
"""Seconds after which the count of log entries begins anew."""


def say(text: str) -> bool:
    """Print a line for the person, after our name. Returns False if nobody reads it now, or ever."""
    stream = sys.stderr
    if stream is None:
        return False
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # not a file but an object that a program put in its place
        print(f"handrail: {text}", file=stream)
        return True
    data = f"handrail: {text}\n".encode(stream.encoding, stream.errors or "replace")
    try:
        for start in range(0, len(data), MAX_PIECE_BYTES):
            if not select.select([], [descriptor], [], 0)[1]:
                return False  # its pipe is full
            os.write(descriptor, data[start : start + MAX_PIECE_BYTES])
    except OSError:  # its reader has gone
        return False
    return True


class Log(logging.Handler):
    """Prints log entries, but neither waits nor lets one that comes again and again fill the screen or the disk."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
        self._begun, self._printed, self._left_out = monotonic(), 0, 0

    def emit(self, record: logging.LogRecord) -> None:
        if monotonic() - self._begun >= LOG_WINDOW_SECONDS:
            self._begun, self._printed = monotonic(), 0
        self._printed += 1
        if self._printed > MAX_ENTRIES_COUNT:
            self._left_out += 1
            return
        try:
            text = _approval.visible(self.format(record))
        except Exception:  # noqa: BLE001 - an entry whose arguments do not fit its text
            text = f"{record.levelname}: {record.msg!r}"
        if self._left_out:
            text = f"{self._left_out:,} log entries were left out before this one\n{text}"
        self._left_out = 0 if say(text) else self._left_out + 1
