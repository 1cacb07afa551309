"""The program that starts commands where there is no guard: each in a process group, and no group outlives its sandbox.

One such process runs beside each sandbox, from this text, with the standard library alone. It kills every group when
the process that started it closes the link, or dies.
"""

import errno
import marshal
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, NoReturn

REQUEST: Final = struct.Struct("<BI")
"""START or the number of a signal, and the id of the command. START comes with four descriptors: its order, and the
command's input, output and errors."""
ANSWER: Final = struct.Struct("<BIII")
"""Format of an answer: the event, the number of the command, and two values."""
START: Final = 0
READY, STARTED, FAILED, EXITED = range(4)
"""STARTED has the process id; FAILED an errno and its stage; EXITED the exit code, and whether processes were left."""
AT_START, AT_CWD, AT_EXEC = 1, 2, 3
NO_ANSWER: Final = 127
GRACE: Final = 0.05
"""Seconds that the rest of a group has to end by itself when its first process has ended."""
POLL: Final = 0.005
"""Seconds between two looks at a group that is about to end."""
GIVE_UP: Final = 0.5
"""Seconds after which a group that was killed is no longer waited for. On Linux, zombies of it count until the first
process of the system collects them."""
OWNER_CHECK: Final = 1.0
"""Seconds between two checks that the process that started this one lives: a child of it may keep the link open."""
_STATUS: Final = struct.Struct("<II")


class Group:
    """One command and its process group, whose number is that of the command's first process."""

    def __init__(self, id: int, pid: int, status: int) -> None:
        self.id = id
        self.pid = pid
        self.status = status
        """A pipe that ends when the program runs, or has the reason why it does not; -1 once that is known."""
        self.code: int | None = None
        self.failed = False
        self.signalled = False
        self.left_running = False
        self.kill_at = 0.0
        self.give_up_at = 0.0

    def send(self, number: int) -> bool:
        """Signal the group; returns whether there was anything to signal."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            if self.code is not None:
                return False
            os.kill(self.pid, number)  # it has not been collected, so the number is its own, but has no group yet
        except PermissionError:  # nothing is left that this user may signal; on macOS, nothing but zombies
            return False
        return True

    def is_gone(self, now: float) -> bool:
        """Whether no process of the group is left. Processes that do not end in time are killed."""
        if not self.send(0):
            return True
        if now >= self.kill_at:
            self.left_running = not self.signalled
            self.send(signal.SIGKILL)
        return now >= self.give_up_at


class Starter:
    """The starter: starts commands on request, and reports their ends."""

    def __init__(self, link: socket.socket, owner: int) -> None:
        self.link = link
        self.owner = owner
        self.groups: dict[int, Group] = {}
        self.ending: list[Group] = []
        """Groups whose first process has ended."""
        self.selector = selectors.DefaultSelector()
        self.selector.register(link, selectors.EVENT_READ)
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.selector.register(woken, selectors.EVENT_READ)
        self.woken = woken

    def run(self) -> None:
        self.answer(READY, 0)
        while os.getppid() == self.owner:
            for key, _ in self.selector.select(POLL if self.ending else OWNER_CHECK):
                if key.fileobj is self.link:
                    if not self.read_requests():
                        return
                elif key.fd == self.woken:
                    os.read(self.woken, 4096)
                else:
                    self.learn(key.data)
            self.collect()
            self.finish()

    def answer(self, what: int, id: int, first: int = 0, second: int = 0) -> None:
        self.link.sendall(ANSWER.pack(what, id, first, second))

    def read_requests(self) -> bool:
        """Serve one request; returns False when the link was closed."""
        data, fds, _, _ = socket.recv_fds(self.link, REQUEST.size, 4)
        if len(data) < REQUEST.size:
            return False
        what, id = REQUEST.unpack(data)
        for fd in fds:
            os.set_inheritable(fd, False)
        try:
            if what != START:
                self.signal(id, what)
            elif len(fds) < 4:
                self.answer(FAILED, id, errno.EMFILE, AT_START)
            else:
                self.start(id, fds)
        except OSError as error:
            self.answer(FAILED, id, error.errno or errno.EIO, AT_START)
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def start(self, id: int, fds: Sequence[int]) -> None:
        with open(fds[0], "rb", closefd=False) as file:
            file.seek(0)
            order = marshal.load(file)
        status, report = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(status)
            os.close(report)
            raise
        if pid == 0:
            become(order, fds[1:], report)
        os.close(report)
        group = self.groups[id] = Group(id, pid, status)
        self.selector.register(status, selectors.EVENT_READ, group)

    def signal(self, id: int, number: int) -> None:
        group = self.groups.get(id)
        if group is None:
            return
        group.signalled = True
        if group.send(number) and number != signal.SIGKILL:
            group.send(signal.SIGCONT)  # a stopped process hears nothing but KILL

    def learn(self, group: Group) -> None:
        """Tell whether the program runs."""
        if group.status < 0:
            return
        found = os.read(group.status, _STATUS.size)
        self.selector.unregister(group.status)
        os.close(group.status)
        group.status, group.failed = -1, bool(found)
        if found:
            self.answer(FAILED, group.id, *_STATUS.unpack(found))
        else:
            self.answer(STARTED, group.id, group.pid)

    def collect(self) -> None:
        """Collect the first processes that have ended."""
        for group in list(self.groups.values()):
            if group.code is None and (code := exit_code(group.pid)) is not None:
                self.learn(group)
                group.code = code
                group.kill_at = time.monotonic() + GRACE
                group.give_up_at = group.kill_at + GIVE_UP
                self.ending.append(group)

    def finish(self) -> None:
        """Report the groups of which nothing is left."""
        now = time.monotonic()
        for group in list(self.ending):
            if group.is_gone(now):
                self.ending.remove(group)
                del self.groups[group.id]
                if not group.failed:
                    self.answer(EXITED, group.id, group.code or 0, group.left_running)

    def kill_all(self) -> None:
        """Kill every group, and wait until they are gone."""
        until = time.monotonic() + GIVE_UP
        groups = list(self.groups.values())
        while groups and time.monotonic() < until:
            for group in groups:
                group.send(signal.SIGKILL)
                if group.code is None:
                    group.code = exit_code(group.pid)
            groups = [group for group in groups if group.code is None or group.send(0)]
            time.sleep(POLL if groups else 0)


def exit_code(pid: int) -> int | None:
    """The exit code of a child, 128 + N after signal N; None while it lives."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if found == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def become(order: dict[str, Any], fds: Sequence[int], report: int) -> NoReturn:
    """Turn this process into the command. It never returns."""
    stage = AT_START
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        for stream, fd in enumerate(fds):
            os.dup2(fd, stream)
        for which, value in order["limits"]:
            set_limit(which, value)
        if order["env"] is not None:
            os.umask(0o022)
        stage = AT_CWD
        os.chdir(order["cwd"])
        stage = AT_EXEC
        if order["env"] is None:
            os.execvp(order["argv"][0], order["argv"])
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except OSError as error:
        os.write(report, _STATUS.pack(error.errno or errno.EIO, stage))
    except BaseException:  # noqa: BLE001 - nobody above could report it
        os.write(report, _STATUS.pack(errno.EINVAL, stage))
    finally:
        os._exit(NO_ANSWER)


def set_limit(which: int, value: int) -> None:
    """Lower a limit of the command and its children; a lower limit stays."""
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY and hard <= value:
        resource.setrlimit(which, (hard, hard))
    else:  # of cpu time, SIGXCPU first and then SIGKILL
        resource.setrlimit(which, (value, value + (which == resource.RLIMIT_CPU)))


def main() -> None:
    """Serve the link whose descriptor is the first argument, for the process whose number is the second."""
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    starter = Starter(link, int(sys.argv[2]))
    try:
        starter.run()
    except OSError:
        pass  # nobody is there any more to answer to
    starter.kill_all()
    os._exit(0)


if __name__ == "__main__":
    main()
