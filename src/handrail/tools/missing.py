"""Say what is there instead of a path that is not."""

import posixpath
from difflib import get_close_matches
from typing import Final

from handrail.contract.errors import ToolFailed
from handrail.contract.result import Failure
from handrail.sandbox.asked import tidy
from handrail.sandbox.sandbox import Sandbox

SHOWN: Final = 20
"""Names that are listed."""
COMPARED: Final = 5_000
"""Names that are held against the one that is missing."""


async def missing(sandbox: Sandbox, path: str, field: str = "path") -> ToolFailed:
    """A not_found that names the nearest directory that exists, and what in it comes closest."""
    parent, wanted = posixpath.split(tidy(path))
    names: list[str] = []
    while True:
        try:
            names = [posixpath.basename(entry.path) for entry in await sandbox.list(parent or ".")]
            break
        except OSError:
            if parent in ("", "/"):
                break
            parent, wanted = posixpath.split(parent)
    if wanted in names:
        message = f"{path} is a link that leads nowhere; look with bash (ls -l) where it should lead."
        return ToolFailed(Failure("not_found", message, field=field))
    near = get_close_matches(wanted, names[:COMPARED], n=3, cutoff=0.6)
    shown = near or names[:SHOWN]
    where = parent or "."
    there = f"In {where} there is: {', '.join(shown)}" if shown else f"{where} is empty"
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    hint = f"Did you mean {posixpath.join(parent, near[0])}? " if near else ""
    message = f"{path} does not exist. {hint}{there}{more}."
    return ToolFailed(Failure("not_found", message, field=field, data={"directory": where, "entries": shown}))
