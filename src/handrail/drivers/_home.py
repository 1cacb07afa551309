"""The HOME of a sandbox: a private directory on disk that goes with the sandbox, or at a later start after a crash."""

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

from handrail.contract.errors import HandrailError
from handrail.drivers.scratch import directory_outside, is_same, make_lasting_scratch, remove_at_loop_end

GitIdentity = tuple[str, str]
"""A name and an email address, for commits."""
LONGEST: Final = 500
"""Characters of a name or an email address."""
_numbers: Final = count(1)
_parents: dict[tuple[int, str | None], tuple[str, int]] = {}
"""By process and directory: where the homes of this process are, and its inode. To make one for each takes longer."""


def check_git_identity(identity: Any) -> None:
    """Raises HandrailError for anything but two texts that fit on one line of a configuration file."""
    if not isinstance(identity, tuple | list) or len(identity) != 2:
        raise HandrailError(f"git_identity is {identity!r}: give a pair of texts, (name, email)")
    for what, text in zip(("name", "email"), identity, strict=True):
        if not isinstance(text, str) or not text.strip() or len(text) > LONGEST or not text.isprintable():
            raise HandrailError(
                f"the {what} in git_identity is {text!r}: give one line of text without control characters"
            )


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
    """As git reads it back: nothing in it can end the value."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
