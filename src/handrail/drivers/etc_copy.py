"""A copy of the few parts of /etc that programs need, made once per process, so that one mount shows them all.

The guard's own program lies in it too, for the same reason.
No directory that may hold a private key is in it: root could read it.
"""

import atexit
import os
import shutil
from contextlib import suppress
from functools import lru_cache
from typing import Final

from handrail.drivers.guard.build import PROGRAM
from handrail.drivers.scratch import make_scratch, remove_scratch

FILES: Final = (
    "debian_version", "group", "hosts", "ld.so.cache", "localtime", "mime.types", "nsswitch.conf", "os-release",
    "passwd", "protocols", "services", "ssl/openssl.cnf", "timezone",
)  # fmt: skip
DIRS: Final = ("alternatives", "crypto-policies", "fonts", "pki/ca-trust", "pki/tls/certs", "ssl/certs")
RESOLVER: Final = "resolv.conf"
GUARD_IN_ETC: Final = "/etc/handrail/guard"


@lru_cache(maxsize=16)
def etc_copy(network: str, place: str | None = None) -> str:
    """The directory to show as /etc, made in this place. It goes when this process ends, or later if it was killed."""
    top = make_scratch(place)
    atexit.register(remove_scratch, top)
    names = [*FILES, *DIRS, *(name for name in sorted(os.listdir("/etc")) if name.startswith("java"))]
    for name in [*names, RESOLVER] if network == "full" else names:
        with suppress(OSError, shutil.Error):  # what may not be read is not shown
            _copy(f"/etc/{name}", os.path.join(top, name))
    guard = top + GUARD_IN_ETC.removeprefix("/etc")
    _copy(str(PROGRAM), guard)
    os.chmod(guard, 0o755)
    os.chmod(top, 0o755)
    return top


def make_room(copy: str, target: str, *, is_dir: bool) -> None:
    """Something will be mounted at this path below /etc: an empty place must be there for it."""
    place = os.path.join(copy, os.path.relpath(target, "/etc"))
    os.makedirs(place if is_dir else os.path.dirname(place), exist_ok=True)
    if not is_dir and not os.path.lexists(place):
        with open(place, "xb"):
            pass


def _copy(source: str, target: str) -> None:
    real = os.path.realpath(source)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(source) and real.startswith("/usr/"):
        os.symlink(real, target)
    elif os.path.isdir(real):
        shutil.copytree(real, target, symlinks=True, copy_function=_copy_file)
    elif os.path.isfile(real):
        _copy_file(real, target)


def _copy_file(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    os.chmod(target, 0o644)
