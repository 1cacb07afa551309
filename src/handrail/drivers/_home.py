"""The HOME of a sandbox: a private directory on disk that goes with the sandbox, or at a later start after a crash."""

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

from handrail.drivers._options import GitIdentity, check_git_identity
from handrail.drivers.scratch import directory_outside, is_same, make_lasting_scratch, remove_at_loop_end

_numbers: Final = count(1)
_parents: dict[tuple[int, str | None], tuple[str, int]] = {}
"""Parent directories of the homes of a process, with their inodes, by process id and directory."""
# One parent holds all homes of a process: a scratch directory of its own for each home takes longer to make.


def make_home(writable: Sequence[str], git_identity: GitIdentity | None = None) -> str:
    """A new empty directory outside of these real paths. `remove_scratch` removes it. Raises HandrailError."""
    if git_identity is not None:
        check_git_identity(git_identity)
    key = os.getpid(), directory_outside(writable, on_disk=True)
    parent, inode = _parents.get(key, ("", 0))
    if not parent or not is_same(parent, inode):
        parent = make_lasting_scratch(key[1])
        _parents[key] = parent, os.stat(parent).st_ino
    home = os.path.join(parent, f"home-{next(_numbers)}")
    os.mkdir(home, 0o700)
    remove_at_loop_end(home)
    if git_identity is not None:
        Path(home, ".gitconfig").write_text(git_configuration(git_identity), encoding="utf-8")
    return home


def git_configuration(identity: GitIdentity) -> str:
    """The text of a .gitconfig with this identity."""
    name, email = map(_quoted, identity)
    return f"[user]\n\tname = {name}\n\temail = {email}\n"


def _quoted(text: str) -> str:
    """Quote a text as a value of a git configuration file; no character of the text can end the value."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
