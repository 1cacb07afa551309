"""Start bubblewrap, and send it the view of the jail afterwards: the view is computed while bubblewrap starts."""

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from handrail.contract.limits import GUARD_START_WAIT
from handrail.drivers.guard.sealed import open_sealed
from handrail.drivers.guard.spawn import Guard, spawn
from handrail.drivers.jail._view import GUARD_INSIDE

_NAMESPACES: Final = (
    "--unshare-user", "--unshare-all", "--new-session", "--as-pid-1", "--hostname", "sandbox",
    "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP", "--cap-add", "CAP_SYS_RESOURCE",
    "--clearenv",
)  # fmt: skip
_END: Final = b"--version\0"
"""Arguments with which bubblewrap ends at once, without a jail."""


class Starting:
    """A bubblewrap that waits for its arguments. A failing `with` kills it with everything it started.

    The last argument copies the guard's program into the jail, so a jail with half of its arguments runs nothing.
    `events` is a descriptor of the events of its memory cgroup. Raises Unavailable if bubblewrap cannot be started.
    """

    def __init__(self, bwrap: str, events: int = -1) -> None:
        self._told, theirs = socket.socketpair()
        self._program = self._named = info = -1
        try:
            self._program = open_sealed()
            info, self._named = os.pipe()
            counted = ["--memory-events", str(events)] if events >= 0 else []
            words = [bwrap, "--args", str(theirs.fileno()), "--", GUARD_INSIDE, *counted]
            fds = [self._program, self._named, theirs.fileno(), *([events] if events >= 0 else [])]
            self.guard: Final[Guard] = spawn(lambda arguments: [*words, *arguments], fds=fds, info=info)
        except BaseException:
            self._told.close()
            _close(info)
            raise
        finally:
            theirs.close()
            _close(self._program, self._named)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._tell(_END)
            self.guard.kill()

    def show(self, view: Sequence[str], *, network: str) -> None:
        """Let bubblewrap make the jail. The guard's greeting tells whether it could."""
        shared = ["--share-net"] if network == "full" else []
        own = ["--perms", "0755", "--file", str(self._program), GUARD_INSIDE, "--chdir", "/"]
        words = (*_NAMESPACES, *shared, *view, "--info-fd", str(self._named), *own)
        self._tell(b"".join(os.fsencode(word) + b"\0" for word in words))

    def _tell(self, words: bytes) -> None:
        if self._told.fileno() >= 0:
            self._told.settimeout(GUARD_START_WAIT)
            with suppress(OSError):  # it has ended, or does not read
                self._told.sendall(words)
            self._told.close()


def _close(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)
