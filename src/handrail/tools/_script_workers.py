"""Processes of Monty's, each in a jail of its own; they end with the sandbox whose scripts they run."""

import os
import select
import signal
from importlib import metadata
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from handrail.contract.errors import HandrailError, Unavailable
from handrail.lazy import Lazy
from handrail.sandbox.sandbox import Sandbox
from handrail.sandbox.views import identity
from handrail.threads import in_lasting_thread
from handrail.tools._script_checked import PRELUDE

if TYPE_CHECKING:
    import pydantic_monty as _monty
else:
    _monty = Lazy("pydantic_monty")

PACKAGE: Final = "pydantic-monty-runtime"
PROGRAM: Final = "monty"
HEAP: Final = 128 << 20
"""Bytes of the values of one script."""
MAX_TURNS_COUNT: Final = 1 << 31
"""Monty's own limit of calls and pieces; the session has lower ones."""


class Worker:
    """One process. Its methods block."""

    session: "_monty.MontySession"
    """The interpreter that the next script gets, without anything of those before."""

    def __init__(self, launcher: str, workers: "Workers") -> None:
        self._workers = workers
        self._process = -1
        self._pool = _monty.Monty(binary_path=launcher, max_processes=1)
        try:
            self._pool.__enter__()
            self._begin()
            self._pid = self.session.worker_pid or 0
            self._process = os.pidfd_open(self._pid)
        except (_monty.MontyError, OSError, RuntimeError) as error:
            self._pool.__exit__(None, None, None)
            raise Unavailable(f"Monty cannot be started in a jail of its own: {error}", retryable=False) from None

    def _begin(self) -> None:
        self.session = self._pool.checkout(
            limits={"max_memory": HEAP, "max_suspensions": MAX_TURNS_COUNT}, os_policy={"sleep": "call_host"}
        )
        self.session.__enter__()

    @property
    def ended(self) -> bool:
        return self._process < 0 or bool(select.select([self._process], [], [], 0)[0])

    def greet(self) -> bool:
        """Whether it can take a script; it is ended if not."""
        try:
            self.session.feed_start(PRELUDE)
        except (_monty.MontyError, RuntimeError):  # the latter if the sandbox closes meanwhile
            self.end()
            return False
        return True

    def rest(self) -> None:
        """The script has ended by itself: wait for the next one."""
        try:
            self.session.__exit__(None, None, None)
            self._begin()
        except (_monty.MontyError, OSError, RuntimeError):
            self.end()
        if self.ended or self.session.worker_pid != self._pid:
            self.end()
        else:
            self._workers.rests(self)

    def end(self) -> None:
        """Kill it, and return when it is gone. May be called twice, from any thread."""
        self._workers.live.discard(self)
        process, self._process = self._process, -1
        if process < 0:
            return
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
        finally:
            os.close(process)
        for opened in (self.session, self._pool):
            try:
                opened.__exit__(None, None, None)
            except (_monty.MontyError, RuntimeError):
                pass  # it is gone already


class Workers:
    """Those of one sandbox. At most one of them waits for a script, after the first."""

    def __init__(self, launcher: str) -> None:
        self._launcher = launcher
        self._resting: list[Worker] = []
        self._is_closed = False
        self.live: set[Worker] = set()

    def take(self) -> Worker | None:
        """One that waits, if there is one."""
        while self._resting:
            worker = self._resting.pop()
            if not worker.ended:
                return worker
            worker.end()
        return None

    def start(self) -> None:
        """Start one, which waits. Raises Unavailable."""
        worker = in_lasting_thread(lambda: Worker(self._launcher, self))  # its jail ends with that thread
        self.live.add(worker)
        if self._is_closed:
            worker.end()
            raise Unavailable("The sandbox is closed; open a new one.", retryable=False)
        self._resting.append(worker)

    def rests(self, worker: Worker) -> None:
        """Keep it for the next script, if none is kept yet."""
        if self._resting or self._is_closed:
            worker.end()
        else:
            self._resting.append(worker)

    def close(self) -> None:
        """End them all."""
        self._is_closed = True
        for worker in list(self.live):
            worker.end()


_by_sandbox: "WeakKeyDictionary[object, Workers]" = WeakKeyDictionary()


def workers_of(sandbox: Sandbox) -> Workers:
    """The workers for this sandbox's scripts. Raises Unavailable where no jail can be made."""
    workers = _by_sandbox.get(identity(sandbox))
    if workers is None:
        workers = _by_sandbox[identity(sandbox)] = Workers(sandbox.jailed_alone(_program()))
        sandbox.on_close.append(workers.close)
    return workers


def _program() -> str:
    """Where the package put it: neither PATH nor another variable is asked. Raises HandrailError without the extra."""
    try:
        package = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise HandrailError(
            "the engine monty needs the package pydantic-monty: pip install 'handrail[monty]'"
        ) from None
    named = [str(file.locate()) for file in package.files or () if file.name == PROGRAM]
    for path in filter(os.path.isfile, named):
        return path
    where = f" at {named[0]}" if named else ""
    raise Unavailable(f"the package {PACKAGE} has no program {PROGRAM}{where}: install it again", retryable=False)
