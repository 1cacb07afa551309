"""A copy of the few parts of /etc that programs need, made once per process, so that one mount shows them all.

It holds no directory with private keys, and no file that some users may not read: a jail of root could read it.
"""

import os
import shutil
import stat
from contextlib import suppress
from typing import Final

from handrail.contract.errors import HandrailError
from handrail.drivers.scratch import is_same, make_lasting_scratch

FILES: Final = (
    "debian_version", "group", "hosts", "ld.so.cache", "localtime", "mime.types", "nsswitch.conf", "os-release",
    "passwd", "protocols", "services", "ssl/openssl.cnf", "timezone",
)  # fmt: skip
DIRS: Final = ("alternatives", "crypto-policies", "fonts", "pki/ca-trust", "pki/tls/certs", "ssl/certs")
RESOLVER: Final = "resolv.conf"
_made: dict[tuple[str, str | None], tuple[str, int]] = {}
"""Copies of files that this process has made, by source: the path and the inode of each."""


def etc_copy(network: str, parent: str | None = None) -> str:
    """The directory to show as /etc, made below `parent`. Removed when this process ends, or later if it was killed."""
    top, inode = _made.get((network, parent), ("", 0))
    if not top or not is_same(top, inode):
        top = _make(network, parent)
        _made[network, parent] = top, os.stat(top).st_ino
    return top


def copies() -> list[str]:
    """The copies of this process that exist."""
    return [top for top, inode in _made.values() if is_same(top, inode)]


def _make(network: str, parent: str | None) -> str:
    top = make_lasting_scratch(parent)
    names = [*FILES, *DIRS, *(name for name in sorted(os.listdir("/etc")) if name.startswith("java"))]
    for name in [*names, RESOLVER] if network == "full" else names:
        with suppress(OSError, shutil.Error):  # what cannot be read is left out
            _copy(f"/etc/{name}", os.path.join(top, name))
    os.chmod(top, 0o755)
    return top


def make_room(copy: str, target: str, *, is_dir: bool) -> None:
    """Make an empty file or directory in the copy for a mount at this path below /etc. Raises HandrailError."""
    path = copy
    for name in os.path.relpath(target, "/etc").split("/"):
        path = os.path.join(path, name)
        if os.path.islink(path):
            raise HandrailError(f"a mount cannot appear at {target}: there is a link in /etc; give another target")
    try:
        os.makedirs(path if is_dir else os.path.dirname(path), exist_ok=True)
        if not is_dir and not os.path.lexists(path):
            with open(path, "xb"):
                pass
    except (FileExistsError, NotADirectoryError):
        raise HandrailError(
            f"a mount cannot appear at {target}: there is a file of /etc; give another target"
        ) from None
    if not is_dir and os.path.isdir(path):
        raise HandrailError(f"a file cannot appear at {target}: there is a directory of /etc; give another target")


def _copy(source: str, target: str) -> None:
    real = os.path.realpath(source)
    if _is_private(real):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(source) and real.startswith("/usr/"):
        os.symlink(real, target)
    elif os.path.isdir(real):
        shutil.copytree(real, target, symlinks=True, ignore=_private, copy_function=_copy_file)
    elif os.path.isfile(real):
        _copy_file(real, target)


def _private(parent: str, names: list[str]) -> list[str]:
    return [name for name in names if _is_private(os.path.join(parent, name))]


def _is_private(path: str) -> bool:
    mode = os.lstat(path).st_mode
    needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    return not stat.S_ISLNK(mode) and mode & needed != needed


def _copy_file(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    os.chmod(target, 0o644)
