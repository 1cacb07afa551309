"""What a jail shows of the machine: the system and the interpreter read-only, the workspace, and what was asked for."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
ETC_FILES: Final = (
    "debian_version", "group", "hosts", "ld.so.cache", "localtime", "mime.types", "nsswitch.conf", "os-release",
    "passwd", "protocols", "services", "ssl/openssl.cnf", "timezone",
)  # fmt: skip
"""Copied, which costs less than a mount."""
ETC_DIRS: Final = ("alternatives", "crypto-policies", "fonts", "pki/ca-trust", "pki/tls/certs", "ssl/certs")
"""No directory that may hold a private key: root could read it."""
GUARD_INSIDE: Final = "/run/handrail/guard"
DEFAULT_TMP: Final = 1 << 30
OpenFile = Callable[[str], str]
"""Opens a file for bubblewrap, and tells the number of the descriptor."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One thing that appears at `target`."""

    target: str
    words: tuple[str, ...]


@lru_cache(maxsize=1)
def interpreter_dirs() -> tuple[str, ...]:
    """Where the running interpreter and its virtual environment live; never a whole home directory."""
    programs = os.path.dirname(os.path.realpath(sys.executable))
    dirs = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    if os.path.basename(programs) == "bin":
        dirs.append(os.path.dirname(programs))
    found = dict.fromkeys(map(os.path.abspath, dirs))
    return tuple(path for path in found if os.path.isdir(path) and not holds_home(path))


def holds_home(path: str) -> bool:
    """Whether this user's home directory is there, or below."""
    home = os.path.realpath(os.path.expanduser("~"))
    return _is_below(home, [os.path.realpath(path)])


def bin_dirs() -> list[str]:
    """The interpreter's own programs come first on the path."""
    return [os.path.dirname(sys.executable)]


@lru_cache(maxsize=1)
def _system() -> tuple[Shown, ...]:
    links = [Shown(path, ("--symlink", os.readlink(path), path)) for path in SYSTEM if os.path.islink(path)]
    dirs = [path for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    return (*links, *(Shown(path, ("--ro-bind", path, path)) for path in dirs))


@lru_cache(maxsize=2)
def _etc(network: str) -> tuple[Shown, ...]:
    """Files have their real path where the descriptor's number will be."""
    files = (*ETC_FILES, "resolv.conf") if network == "full" else ETC_FILES
    dirs = (*ETC_DIRS, *(name for name in sorted(os.listdir("/etc")) if name.startswith("java")))
    shown = []
    for path in (f"/etc/{name}" for name in (*files, *dirs)):
        real = os.path.realpath(path)
        if os.path.islink(path) and real.startswith("/usr/"):
            shown.append(Shown(path, ("--symlink", real, path)))
        elif os.path.isdir(real):
            shown.append(Shown(path, ("--ro-bind-try", real, path)))
        elif os.path.isfile(real) and os.access(real, os.R_OK):
            shown.append(Shown(path, ("--perms", "0644", "--file", real, path)))
    return tuple(shown)


def _opened(shown: Shown, open_file: OpenFile) -> Shown:
    if "--file" not in shown.words:
        return shown
    *first, real, target = shown.words
    return Shown(shown.target, (*first, open_file(real), target))


def _is_below(path: str, tops: Sequence[str]) -> bool:
    return any(path == top or path.startswith(top.rstrip("/") + "/") for top in tops)


def _interpreter(workspace: str) -> Iterator[Shown]:
    covered = [*SYSTEM, workspace]
    for path in interpreter_dirs():
        if not _is_below(path, covered):
            yield Shown(path, ("--ro-bind", path, path))
            covered.append(path)


def _own(workspace: str, tmp: int | None) -> Iterator[Shown]:
    size = str(tmp if tmp is not None else DEFAULT_TMP)
    yield Shown("/proc", ("--proc", "/proc"))
    yield Shown("/dev", ("--dev", "/dev"))
    for path in ("/dev/shm", "/tmp", "/var/tmp"):
        yield Shown(path, ("--size", size, "--perms", "1777", "--tmpfs", path))
    if not _is_below("/workspace", [workspace]):
        yield Shown("/workspace", ("--symlink", workspace, "/workspace"))


def view_words(
    workspace: str, *, guard: str, network: str, tmp: int | None, mounts: Sequence[tuple[str, str, bool]],
    open_file: OpenFile,
) -> list[str]:  # fmt: skip
    """The words for bubblewrap; what lies deeper comes later, so that nothing hides anything else."""
    etc = [_opened(item, open_file) for item in _etc(network)]
    shown = [*_system(), *etc, *_interpreter(workspace), *_own(workspace, tmp)]
    shown.append(Shown(workspace, ("--bind", workspace, workspace)))
    shown.append(Shown(GUARD_INSIDE, ("--ro-bind", guard, GUARD_INSIDE)))
    for source, asked, writable in mounts:
        target = workspace + asked.removeprefix("/workspace") if _is_below(asked, ["/workspace"]) else asked
        shown.append(Shown(target, ("--bind" if writable else "--ro-bind", source, target)))
    latest = {item.target: item for item in shown}
    ordered = sorted(latest.values(), key=lambda item: item.target.count("/"))
    return [word for item in ordered for word in item.words]
