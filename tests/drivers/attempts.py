"""A program that tries what a sandbox must refuse, and prints the errno of each attempt; it runs inside and outside."""

import ctypes
import fcntl
import json
import os
import pty
import struct
import sys
import tempfile
from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER, SIGCHLD, MNT_DETACH = 0x10000000, 17, 2


def call(number: int, *arguments: object) -> int:
    ctypes.set_errno(0)
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in (number, *arguments)]
    result = LIBC.syscall(*words)
    return ctypes.get_errno() if result < 0 else 0


def in_child(attempt: Callable[[], int]) -> int:
    """For what would change this process, or return twice."""
    pid = os.fork()
    if pid == 0:
        os._exit(attempt())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def clone_user() -> int:
    ctypes.set_errno(0)
    pid = LIBC.syscall(56, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return ctypes.get_errno() if pid < 0 else 0


def clone3_user() -> int:
    arguments = ctypes.create_string_buffer(struct.pack("<8Q", CLONE_NEWUSER, 0, 0, 0, SIGCHLD, 0, 0, 0))
    ctypes.set_errno(0)
    pid = LIBC.syscall(435, arguments, 64)
    if pid == 0:
        os._exit(0)
    return ctypes.get_errno() if pid < 0 else 0


def type_into_terminal() -> int:
    os.setsid()
    _, slave = pty.openpty()
    try:
        fcntl.ioctl(slave, 0x540E, 0)  # TIOCSCTTY: make it ours
        fcntl.ioctl(slave, 0x5412, b"x")  # TIOCSTI
    except OSError as error:
        return error.errno or 255
    return 0


def touch(flags: int, mode: int) -> int:
    path = f"attempt-{os.getpid()}"
    try:
        os.close(os.open(path, flags, mode))
        os.unlink(path)
    except OSError as error:
        return error.errno or 255
    return 0


def change_mode(mode: int) -> int:
    path = f"attempt-{os.getpid()}"
    try:
        with open(path, "w"):
            os.chmod(path, mode)
    except OSError as error:
        return error.errno or 255
    finally:
        os.unlink(path)
    return 0


def write_into(path: str) -> int:
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        return error.errno or 255
    return 0


def make_node() -> int:
    try:
        os.mknod("node", 0o020600, os.makedev(1, 3))
        os.unlink("node")
    except OSError as error:
        return error.errno or 255
    return 0


def mount_something() -> int:
    """Not where others have files: outside it succeeds, and hides them."""
    place = tempfile.mkdtemp()
    try:
        return call(165, b"none", place.encode(), b"tmpfs", 0, None) or call(166, place.encode(), MNT_DETACH)
    finally:
        os.rmdir(place)


def make_fifo() -> int:
    os.mkfifo("fifo")
    os.unlink("fifo")
    return 0


ATTEMPTS: dict[str, Callable[[], int]] = {
    "unshare user": lambda: in_child(lambda: call(272, CLONE_NEWUSER)),
    "clone user": lambda: in_child(clone_user),
    "clone3 user": lambda: in_child(clone3_user),
    "ptrace": lambda: in_child(lambda: call(101, 0, 0, 0, 0)),
    "add_key": lambda: call(248, b"user", b"handrail-test", b"x", 1, -1),
    "keyctl": lambda: call(250, 0, -3, 0),
    "io_uring": lambda: call(425, 1, ctypes.create_string_buffer(200)),
    "openat2": lambda: call(437, -100, b"/", ctypes.create_string_buffer(struct.pack("<3Q", 0, 0, 0)), 24),
    "open setuid": lambda: touch(os.O_CREAT | os.O_WRONLY, 0o4755),
    "chmod setuid": lambda: change_mode(0o4755),
    "chmod setgid": lambda: change_mode(0o2755),
    "process_vm_readv": lambda: call(310, os.getpid(), None, 0, None, 0, 0),
    "pidfd_getfd": lambda: call(438, os.pidfd_open(os.getpid()), 1, 0),
    "terminal input": lambda: in_child(type_into_terminal),
    "mount": lambda: in_child(mount_something),
    "mknod": make_node,
    "chroot": lambda: in_child(lambda: call(161, b"/")),
    "setns": lambda: in_child(lambda: call(308, os.open("/proc/self/ns/uts", os.O_RDONLY), 0)),
    "fsopen": lambda: call(430, b"tmpfs", 0),
    "bpf": lambda: call(321, 0, ctypes.create_string_buffer(struct.pack("<4I", 2, 4, 4, 1) + bytes(112)), 128),
    "perf": lambda: call(298, ctypes.create_string_buffer(struct.pack("<II", 1, 128) + bytes(120)), 0, -1, -1, 0),
    "userfaultfd": lambda: call(323, 0),
    "syslog": lambda: call(103, 10, None, 0),
    "core_pattern": lambda: write_into("/proc/sys/kernel/core_pattern"),
    "sysrq": lambda: write_into("/proc/sysrq-trigger"),
    "namespaces sysctl": lambda: write_into("/proc/sys/user/max_user_namespaces"),
}
WORKS_INSIDE: dict[str, Callable[[], int]] = {
    "open plain": lambda: touch(os.O_CREAT | os.O_WRONLY, 0o755),
    "chmod plain": lambda: change_mode(0o755),
    "sticky": lambda: change_mode(0o1755),
    "fifo": make_fifo,
    "thread": lambda: in_child(lambda: 0),
}

if __name__ == "__main__":
    print(json.dumps({name: attempt() for name, attempt in {**ATTEMPTS, **WORKS_INSIDE}.items()}), flush=True)
    sys.exit(0)
