"""Start a guard with a stream to it, greet it, and end it so that nothing is left."""

import math
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio
from anyio import move_on_after

from handrail.aio import finish
from handrail.contract.errors import Unavailable
from handrail.contract.limits import GUARD_END_WAIT, GUARD_KILL_WAIT, GUARD_START_WAIT, Limits
from handrail.drivers.guard import _killing, frames
from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.guard.channel import Channel
from handrail.drivers.guard.sealed import NOT_BUILT

_BUFFER: Final = 1 << 20
_LAST_WORDS: Final = 2000


class Guard:
    """A running guard and its channel."""

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel, words: int, info: int | None = None) -> None:
        self.channel = channel
        self.shell: str | None = None
        """The shell that runs lines: bash, sh, or None."""
        self._process = process
        self._words = words
        self._said = ""
        self._killing = threading.Lock()
        self._info = info
        """Where bubblewrap says which process is the guard: read when it must be killed."""

    @property
    def pid(self) -> int:
        return self._process.pid

    async def greet(self, *, jail: bool, limits: Limits, roots: Sequence[str]) -> None:
        """Say what is wanted. Raises Unavailable with the guard's own words when it cannot be had."""
        channel = self.channel
        channel.post(frames.hello(jail, _limit_numbers(limits), map(os.fsencode, roots)))
        try:
            with move_on_after(GUARD_START_WAIT):
                await channel.until(None, lambda: channel.greeting is not None)
        except Unavailable as error:
            await self.close()
            raise Unavailable(f"the sandbox did not start: {self.last_words() or error}", retryable=False) from None
        except BaseException:
            await self.close()
            raise
        if channel.greeting is None:
            await self.close()
            raise Unavailable(f"the sandbox did not start: no answer within {GUARD_START_WAIT:g} s")
        self.shell = channel.greeting.shell

    def last_words(self) -> str:
        """What it wrote to its standard error, and what the channel says."""
        gone = self.channel.gone or ""
        said = self._said if self._words < 0 else _read_all(self._words)
        return "; ".join(part for part in (said, gone if "guard ended" in gone else "") if part)

    async def close(self) -> None:
        """End it and everything in it, and wait until that is so, also when this is cancelled. May be called twice.

        Raises Unavailable when it cannot even be killed.
        """
        self.channel.close()
        try:
            await finish(self._end)
        finally:
            self._kill()  # nothing is left to kill, unless the event loop ended meanwhile
            self._release()
        if self._process.returncode is None:
            raise Unavailable("the sandbox's guard cannot be ended: what it ran may still be running", retryable=False)

    async def _end(self) -> None:
        with move_on_after(GUARD_END_WAIT):
            await _ended(self._process)
        if self._process.poll() is None:
            await anyio.to_thread.run_sync(self._kill)

    def _kill(self) -> None:
        """Kill the guard, and see that what it started ends with it: in a jail by the kernel, else by supervisors."""
        with self._killing:
            if self._process.poll() is None:
                self._kill_now()

    def _kill_now(self) -> None:
        started = _killing.open_children(self._process.pid)
        named = None if self._info is None else _killing.open_named(self._info, self._process.pid)
        itself = started if named is None else [named]
        try:
            if self._info is None:
                self._process.kill()
            else:
                _killing.kill(itself)
            _killing.kill(_killing.living(started, GUARD_KILL_WAIT))
            self._reap()
        finally:
            for fd in {*started, *itself}:
                os.close(fd)

    def _reap(self) -> None:
        """Bubblewrap collects the guard, and ends by itself; it is killed only where it does not."""
        try:
            self._process.wait(GUARD_KILL_WAIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # close says so
                self._process.wait(GUARD_KILL_WAIT)

    def _release(self) -> None:
        if self._words >= 0:
            self._said = _read_all(self._words)
            os.close(self._words)
            self._words = -1
        if self._info is not None:
            os.close(self._info)
            self._info = None


def _read_all(words: int) -> str:
    return os.pread(words, _LAST_WORDS, 0).decode("utf-8", "replace").strip()


async def _ended(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:  # a kernel without it
        await anyio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
        return
    try:
        await anyio.wait_readable(fd)
    finally:
        os.close(fd)
    process.wait()


def spawn(
    words: Callable[[tuple[str, ...]], Sequence[str]],
    *,
    fds: Sequence[int] = (),
    info: int | None = None,
    own_environment: bool = False,
) -> Guard:
    """Start the guard by the command that `words` makes of its own arguments, with these descriptors besides its own.

    `info` is where bubblewrap names the guard's process; the Guard closes it. It gets no environment at all, or this
    process's own. The guard ends when the stream does, or when this process does, whichever thread started it.
    Raises Unavailable.
    """
    if not PROGRAM.exists():
        raise Unavailable(NOT_BUILT, retryable=False)
    ours, theirs = socket.socketpair()
    said = os.memfd_create("guard-stderr", os.MFD_CLOEXEC)
    try:
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        process = _start(words, theirs.fileno(), said, fds, None if own_environment else {})
    except BaseException:
        ours.close()
        os.close(said)
        raise
    finally:
        theirs.close()
    return Guard(process, Channel(ours), said, info)


def _start(
    words: Callable[[tuple[str, ...]], Sequence[str]],
    stream: int,
    said: int,
    more: Sequence[int],
    env: Mapping[str, str] | None,
) -> subprocess.Popen[bytes]:
    fds = [stream, *more]
    arguments = ["--channel", str(stream)]
    client = -1
    try:
        client = os.pidfd_open(os.getpid())
        fds.append(client)
        arguments += ["--client", str(client)]
    except OSError:
        pass  # a kernel without it: the end of the stream must do
    try:
        return subprocess.Popen(
            words(tuple(arguments)), pass_fds=fds, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said,
            cwd="/", env=env, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise Unavailable(f"the sandbox did not start: {error}", retryable=False) from None
    finally:
        if client >= 0:
            os.close(client)


def _limit_numbers(limits: Limits) -> list[int]:
    cpu = None if limits.cpu is None else math.ceil(limits.cpu)
    numbers = (limits.processes, limits.open_files, limits.file_size, cpu)
    return [frames.NO_LIMIT if number is None else number for number in numbers]
