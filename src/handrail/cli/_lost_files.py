"""Name the files that go with a sandbox, because commands put them where nothing is kept."""

import posixpath
from typing import Final

import anyio

from handrail.contract.errors import HandrailError, Unavailable
from handrail.policy.approval import visible
from handrail.sandbox.sandbox import Sandbox

MAX_NAMED_COUNT: Final = 5
"""Files that the line names; the rest are counted."""
LOOK_SECONDS: Final = 2.0
"""Seconds for a look at the directories; a sandbox that does not answer says nothing."""


async def lost_files(sandbox: Sandbox) -> str:
    """One line for a person; empty where nothing is lost. Hidden files are caches and settings, and are not named."""
    found: list[str] = []
    with anyio.move_on_after(LOOK_SECONDS):
        for directory in sandbox.report.passing:
            try:
                entries = await sandbox.list(directory)
            except (OSError, HandrailError, Unavailable, ValueError):
                continue
            found += [
                f"{entry.path}{'/' if entry.type == 'directory' else ''}"
                for entry in entries
                if not posixpath.basename(entry.path).startswith(".") and not _leads_to_kept(entry.path, sandbox)
            ]
    if not found:
        return ""
    named = ", ".join(visible(path, lines=False) for path in found[:MAX_NAMED_COUNT])
    more = f" and {len(found) - MAX_NAMED_COUNT} more" if len(found) > MAX_NAMED_COUNT else ""
    gone = "is" if len(found) == 1 else "are"
    return f"{named}{more} {gone} gone with the sandbox; only what is in {sandbox.workspace} is kept"


def _leads_to_kept(path: str, sandbox: Sandbox) -> bool:
    """Whether the workspace or a mount is below a path."""
    return any(f"{root}/".startswith(f"{path}/") for root in sandbox.report.lasting)
