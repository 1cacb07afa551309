"""The way Handrail was installed: its version, and what to type where an extra is missing."""

import json
import os
import re
import shlex
import shutil
import site
import sys
import sysconfig
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

EXTRA: Final = "cli"


def answer(lacking: str, words: Sequence[str]) -> str | None:
    """The answer of `handrail` without its extra: its version if that was asked for, else what to type."""
    if list(words) == ["--version"]:
        print(version_line())
        return None
    return f"The command line needs {lacking}, which is not installed. Type:\n    {install_command()}"


def version_line() -> str:
    """The line that `handrail --version` prints."""
    try:
        return f"handrail {version('handrail')}"
    except PackageNotFoundError:  # on PYTHONPATH
        return "handrail, not installed, so its version is not known"


def install_command(extras: str = EXTRA) -> str:
    """The command that installs these extras into the environment of this interpreter."""
    here = Path(sys.prefix)
    editable, wanted = requirement(extras)
    quoted = shlex.quote(wanted)
    flagged = f"{'--editable ' if editable else ''}{quoted}"
    if (here / "uv-receipt.toml").exists():
        return f"uv tool install --force {flagged}"
    if re.fullmatch(r"archive-v\d+|environments-v\d+", here.parent.name):  # where uv keeps what `uvx` runs
        return f"uvx --from {quoted} handrail"
    if (here / "pipx_metadata.json").exists():
        lasting = here.parent.name == "venvs"
        return f"pipx install --force {flagged}" if lasting else f"pipx run --spec {quoted} handrail"
    return f"{_installer()} {flagged}"


def _installer() -> str:
    """The installer for packages of this interpreter: pip or uv, whichever installed Handrail."""
    shared = sys.prefix == sys.base_prefix  # no virtual environment
    kept = Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"
    forced = " --break-system-packages" if shared and kept.exists() else ""
    python = shlex.quote(sys.executable)
    if find_spec("pip") is None or (_record("INSTALLER").strip() == "uv" and shutil.which("uv")):
        return f"uv pip install --python {python}{forced}"
    found = shutil.which("pip")
    ours = not shared and found is not None and os.path.dirname(found) == os.path.dirname(sys.executable)
    return f"{'pip' if ours else f'{python} -m pip'} install{' --user' if _for_one_user() else ''}{forced}"


def _for_one_user() -> bool:
    """Whether Handrail lies where `pip install --user` puts packages."""
    try:
        place = str(distribution("handrail").locate_file(""))
    except PackageNotFoundError:  # on PYTHONPATH
        return False
    return os.path.realpath(place) == os.path.realpath(site.getusersitepackages())


def _record(name: str) -> str:
    """The content of a file of this name that the installer left beside Handrail."""
    try:
        return distribution("handrail").read_text(name) or ""
    except PackageNotFoundError:  # on PYTHONPATH
        return ""


def requirement(extras: str) -> tuple[bool, str]:
    """Whether the install is editable, and Handrail with these extras, from where it was installed from."""
    origin = json.loads(_record("direct_url.json") or "{}")
    url = str(origin.get("url", ""))
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        return False, f"handrail[{extras}] @ {vcs['vcs']}+{url}@{vcs['commit_id']}"
    if url.startswith("file:"):
        path = unquote(urlsplit(url).path)
        editable = bool(origin.get("dir_info", {}).get("editable"))
        return (editable, f"{path}[{extras}]") if os.path.exists(path) else (False, f"handrail[{extras}]")
    return False, f"handrail[{extras}] @ {url}" if url else f"handrail[{extras}]"
