"""Run `handrail` many times, and load it once: each request is done by a fork of this process.

Loading takes most of the CPU of a short run. A fork has a session, a terminal, an environment, a directory and streams
of its own, and ends as every interpreter does; what an interpreter reads when it starts, such as the locale, is
common to all.
"""

import fcntl
import gc
import json
import os
import selectors
import socket
import sys
import termios
from contextlib import suppress
from importlib import import_module
from typing import Any

OURS = (
    "cli._chat", "cli._demo_stage", "cli._shell_loop", "cli._sessions", "cli._call_session", "drivers.host",
    "drivers.jail", "models.recorded",
)  # fmt: skip
OTHERS = ("anyio._backends._asyncio", "anyio._core._signals", "anyio._core._sockets", "rich.markdown", "rich.syntax")
LONGEST = 1 << 20


def load() -> None:
    for name in (*(f"handrail.{each}" for each in OURS), *OTHERS):
        import_module(name)
    for tool in import_module("handrail.tools.builtin").builtin_tools("all"):
        tool.parameters.get("type")  # derived now
    gc.collect()
    gc.freeze()  # a collection in a fork would copy all of this: half of the CPU of a run


class Server:
    """Takes requests at a path, until standard input ends."""

    def __init__(self, path: str) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen()
        self._ready = selectors.DefaultSelector()
        for source in (self._listening, sys.stdin):
            self._ready.register(source, selectors.EVENT_READ)
        self._running: dict[int, tuple[int, socket.socket]] = {}

    def serve(self) -> bool:
        """True in each fork, once it is what its request says."""
        while True:
            for key, _ in self._ready.select():
                if key.fileobj is sys.stdin:
                    return False
                if key.fileobj is not self._listening:
                    self._tell_end(key.fd)
                elif self._forked():
                    return True

    def _forked(self) -> bool:
        asking, _ = self._listening.accept()
        request, streams, *_ = socket.recv_fds(asking, LONGEST, 3)
        pid = os.fork()
        if not pid:
            self._ready.close()
            for each in (self._listening, asking, *(other for _, other in self._running.values())):
                each.close()
            become(streams, **json.loads(request))
            return True
        for stream in streams:
            os.close(stream)
        asking.sendall(b"%d\n" % pid)
        end = os.pidfd_open(pid)
        self._running[end] = pid, asking
        self._ready.register(end, selectors.EVENT_READ)
        return False

    def _tell_end(self, end: int) -> None:
        pid, asking = self._running.pop(end)
        self._ready.unregister(end)
        os.close(end)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with asking, suppress(OSError):
            asking.sendall(b"%d\n" % code)


def become(streams: list[int], words: list[str], cwd: str, env: dict[str, str]) -> None:
    """Make this process what a new one would be."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["handrail", *words]
    named: Any = sys
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        old = getattr(sys, name)
        buffering = 1 if number == 2 or os.isatty(number) else -1
        stream = open(number, mode, buffering, old.encoding, old.errors, closefd=False)  # noqa: SIM115 - for ever
        for each in (name, f"__{name}__"):
            setattr(named, each, stream)


if __name__ == "__main__":
    load()
    server = Server(sys.argv[1])
    print("ready", flush=True)
    if server.serve():
        import_module("handrail.cli").main()
