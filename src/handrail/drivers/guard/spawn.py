"""Start a guard with a stream to it, exchange greetings, and end the guard with everything it started."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio
from anyio import move_on_after

from handrail.aio import finish, when_loop_closes
from handrail.contract.errors import Unavailable
from handrail.contract.limits import GUARD_END_WAIT, GUARD_KILL_WAIT, GUARD_START_WAIT, Limits
from handrail.drivers.guard import _pidfd, frames
from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.guard.channel import Channel
from handrail.drivers.guard.sealed import NOT_BUILT
from handrail.drivers.limit_table import numbers_for_guard
from handrail.threads import Work, in_thread

_BUFFER: Final = 1 << 20
"""Buffer size of each end of the stream, in bytes."""
_STDERR_MAX: Final = 2000
"""Greatest part of the guard's standard error in a message, in bytes."""


class Guard:
    """A running guard and its channel."""

    def __init__(
        self, process: subprocess.Popen[bytes], channel: Channel, stderr: int, info: int | None = None
    ) -> None:
        self.channel = channel
        self.shell: str | None = None
        """The shell that runs lines: bash, sh, or None."""
        self._process = process
        self._stderr_fd = stderr
        self._stderr = ""
        self._kill_lock = threading.RLock()
        # Reentrant: while this thread kills the guard, garbage collection may drop a coroutine that was closing it,
        # and that calls kill again in the same thread.
        self._info = info
        """Descriptor to which bubblewrap writes the guard's pid; read only to kill the guard."""
        self._waited_for: set[int] = set()
        """Pidfds on which tasks wait for the guard's end."""
        # kill closes them: a task whose event loop was closed never continues, and would leak its pidfd.
        self._owner = os.getpid()
        when_loop_closes(self.kill)

    # Last resort for a guard that was never closed: its commands must not outlive the object.
    def __del__(self) -> None:
        if os.getpid() == self._owner and not sys.is_finalizing():  # a forked child does not own it
            self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def greet(self, *, jail: bool, limits: Limits, roots: Sequence[str]) -> None:
        """Send the settings. Raises Unavailable, with the guard's own message, if the guard cannot apply them."""
        channel = self.channel
        channel.post(frames.hello(jail, numbers_for_guard(limits, frames.NO_LIMIT), map(os.fsencode, roots)))
        try:
            with move_on_after(GUARD_START_WAIT):
                await channel.until(None, lambda: channel.greeting is not None)
        except Unavailable as error:
            await self.close()
            raise Unavailable(f"the sandbox did not start: {self._explanation() or error}", retryable=False) from None
        except BaseException:
            await self.close()
            raise
        if channel.greeting is None:
            await self.close()
            raise Unavailable(f"the sandbox did not start: no answer within {GUARD_START_WAIT:g} s")
        self.shell = channel.greeting.shell

    def _explanation(self) -> str:
        """Return the guard's standard error and its last message on the channel."""
        stderr = self._stderr if self._stderr_fd < 0 else _read_all(self._stderr_fd)
        message = self.channel.gone if self.channel.message else None
        return "; ".join(part for part in (stderr, message) if part)

    async def close(self) -> None:
        """End the guard and everything it runs, and wait, even when cancelled. May be called twice.

        Raises Unavailable if the guard cannot even be killed.
        """
        self.channel.close()
        try:
            await finish(self._end)
        finally:
            self._kill()  # nothing is left to kill, unless the event loop ended meanwhile
            self._release()
        if self._process.returncode is None:
            raise Unavailable("the sandbox's guard cannot be killed: what it ran may still be running", retryable=False)

    def kill(self) -> None:
        """Kill the guard and everything it runs, without an event loop. May be called twice.

        This is for a guard that was dropped without `close`, or whose event loop has ended.
        """
        self.channel.drop()
        self._kill()
        self._release()
        for fd in list(self._waited_for):
            self._stop_waiting(fd)

    async def _end(self) -> None:
        with move_on_after(GUARD_END_WAIT):
            await self._ended()
        if self._process.poll() is None:
            await in_thread(self._kill)

    async def _ended(self) -> None:
        if self._process.poll() is not None:
            return
        fd = _pidfd.open_process(self._process.pid)
        if fd is None:  # a kernel without pidfds
            await Work(self._process.wait).wait()
            return
        self._waited_for.add(fd)
        try:
            await anyio.wait_readable(fd)
        finally:
            self._stop_waiting(fd)
        self._process.wait()

    def _stop_waiting(self, fd: int) -> None:
        if fd in self._waited_for:
            self._waited_for.discard(fd)
            os.close(fd)

    def _kill(self) -> None:
        """Kill the guard and everything that the guard started.

        The kernel (in a jail) or the supervisors end the commands; a supervisor that stays is killed with its tree.
        """
        with self._kill_lock:
            if self._process.poll() is None:
                self._kill_now()

    def _kill_now(self) -> None:
        # Pidfds are opened before the kill: afterwards a pid may belong to another process.
        started = _pidfd.open_children(self._process.pid)
        named = None if self._info is None else _pidfd.open_named(self._info, self._process.pid)
        itself = started if named is None else [named]
        try:
            if self._info is None:
                self._process.kill()
            else:
                _pidfd.kill(itself)
            _pidfd.kill_trees(_pidfd.living(started, GUARD_KILL_WAIT), GUARD_KILL_WAIT)
            self._reap()
        finally:
            for fd in {*started, *itself}:
                os.close(fd)

    def _reap(self) -> None:
        """Wait for bubblewrap, which reaps the guard and exits; kill bubblewrap only if it stays."""
        try:
            self._process.wait(GUARD_KILL_WAIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # close reports it
                self._process.wait(GUARD_KILL_WAIT)

    def _release(self) -> None:
        if self._stderr_fd >= 0:
            self._stderr = _read_all(self._stderr_fd)
            os.close(self._stderr_fd)
            self._stderr_fd = -1
        if self._info is not None:
            os.close(self._info)
            self._info = None


def _read_all(fd: int) -> str:
    return frames.words(os.pread(fd, _STDERR_MAX, 0))


def spawn(
    command: Callable[[tuple[str, ...]], Sequence[str]],
    *,
    fds: Sequence[int] = (),
    info: int | None = None,
    own_environment: bool = False,
) -> Guard:
    """Start the guard; `command` makes the whole argv from the guard's own arguments, `fds` are inherited.

    `info` is the descriptor to which bubblewrap writes the guard's pid; the Guard closes `info`. The environment is
    empty, or this process's own. The guard ends when the stream or this process ends, whichever thread started it.
    Raises Unavailable.
    """
    if not PROGRAM.exists():
        raise Unavailable(NOT_BUILT, retryable=False)
    ours, theirs = socket.socketpair()
    stderr = os.memfd_create("guard-stderr", os.MFD_CLOEXEC)  # not a pipe, which would have to be read all the time
    try:
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        process = _start(command, theirs.fileno(), stderr, fds, None if own_environment else {})
    except BaseException:
        ours.close()
        os.close(stderr)
        raise
    finally:
        theirs.close()
    return Guard(process, Channel(ours), stderr, info)


def _start(
    command: Callable[[tuple[str, ...]], Sequence[str]],
    stream: int,
    stderr: int,
    more: Sequence[int],
    env: Mapping[str, str] | None,
) -> subprocess.Popen[bytes]:
    fds = [stream, *more]
    arguments = ["--channel", str(stream)]
    client = -1
    try:
        # The guard polls a pidfd of this process. PR_SET_PDEATHSIG would fire when the thread that started the guard
        # ends, and the end of the stream is not seen while a forked child keeps the stream open.
        client = os.pidfd_open(os.getpid())
        fds.append(client)
        arguments += ["--client", str(client)]
    except OSError:
        pass  # a kernel without pidfds: the end of the stream must do
    try:
        return subprocess.Popen(
            command(tuple(arguments)), pass_fds=fds, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
            cwd="/", env=env, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise Unavailable(f"the sandbox did not start: {error}", retryable=False) from None
    finally:
        if client >= 0:
            os.close(client)
