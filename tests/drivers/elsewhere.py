"""A machine that is not Linux, as far as one can be had on Linux: other interpreters run there, without our guard.

Every interpreter that is started there says it is on macOS, lacks what only Linux has, and sees an empty /proc. Only
the starter, which reads neither environment nor sites, has the calls; it sees the same /proc.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import handrail

ABSENT: Final = {
    "os": [
        "memfd_create", "pidfd_open", "pipe2", "O_PATH", "O_TMPFILE", "waitid", "eventfd", "splice", "copy_file_range",
        "posix_fadvise", "sched_getaffinity", "getxattr", "setxattr", "listxattr", "unshare", "setns", "getrandom",
        "MFD_CLOEXEC", "MFD_ALLOW_SEALING",
    ],
    "signal": ["pidfd_send_signal", "signalfd", "sigtimedwait", "sigwaitinfo"],
    "select": ["epoll"],
    "resource": ["prlimit"],
    "fcntl": ["F_ADD_SEALS", "F_GET_SEALS", "F_SEAL_SEAL", "F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_WRITE"],
    "socket": ["SOCK_CLOEXEC", "SOCK_NONBLOCK", "MSG_CMSG_CLOEXEC", "SO_PEERCRED"],
}  # fmt: skip
"""What macOS does not have, by module."""
SABOTAGE: Final = f"""
import importlib, os, sys, sysconfig
sysconfig.get_config_vars()  # of the system that this interpreter was made for
for name in filter(None, os.environ.get("FIRST", "").split()):
    importlib.import_module(name)
sys.platform = "darwin"
for name, absent in {ABSENT!r}.items():
    module = importlib.import_module(name)
    for attribute in absent:
        if hasattr(module, attribute):
            delattr(module, attribute)
if "tempfile" in sys.modules:
    sys.modules["tempfile"]._O_TMPFILE_WORKS = False
"""
HIDES_PROC: Final = ["unshare", "--user", "--map-root-user", "--mount", "--kill-child", "--fork", "sh", "-c"]
HIDES_PROC_LINE: Final = 'mount -t tmpfs none /proc && exec "$@"'


class Elsewhere:
    """Made in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        package = Path(handrail.__file__).parent
        copy = directory / "sources" / "handrail"
        shutil.copytree(package, copy)  # with what Python has compiled already
        (copy / "drivers" / "guard" / "guard").unlink(missing_ok=True)
        (directory / "sources" / "sitecustomize.py").write_text(SABOTAGE)
        self.tmp = directory / "tmp"
        self.tmp.mkdir()
        self._path = os.pathsep.join([str(directory / "sources"), *sys.path])

    def run(self, *words: str, cwd: str | None = None, first: str = "") -> subprocess.CompletedProcess[str]:
        """Run an interpreter there with these arguments; the modules `first` think they are on Linux."""
        env = {
            "PYTHONPATH": self._path, "TMPDIR": str(self.tmp), "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(self.tmp), "PYTHONWARNINGS": "error",
            "FIRST": first,
        }  # fmt: skip
        command = [*HIDES_PROC, HIDES_PROC_LINE, "sh", sys.executable, *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=110, check=False, cwd=cwd)

    def says(self, program: str) -> str:
        """What a program prints that must end well there."""
        ran = self.run("-c", program)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout
