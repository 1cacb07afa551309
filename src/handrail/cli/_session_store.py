"""The person's own store of sessions: where it is, and how a session is named on the command line."""

import os
import shlex
from pathlib import Path
from typing import Final

from handrail.cli._state_file import NoHome, state_directory
from handrail.contract.errors import HandrailError
from handrail.store.store import Store
from handrail.store.summary import Summary

FILE: Final = "sessions.db"
LAST: Final = "last"


def store_path() -> Path:
    """The file of the stored sessions."""
    return state_directory() / FILE


def open_store() -> Store:
    """The store, to read it. Raises HandrailError where there can be none."""
    return Store(store_path())


def has_store() -> bool:
    """Whether a session was ever kept."""
    try:
        return store_path().exists()
    except NoHome:
        return False


def lost_store() -> list[str]:
    """Lines for a person whose store is gone."""
    try:
        return open_store().problems()
    except HandrailError:
        return []


def writable_store() -> tuple[Store | None, str]:
    """The store, to write new sessions; or None, and why they are not kept."""
    try:
        path = store_path()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = [path.parent, *([path] if path.exists() else [])]
        locked = next((each for each in beside if not os.access(each, os.W_OK)), None)
        if locked is not None:
            return None, f"{locked} cannot be written"
        return Store(path), ""
    except OSError as error:
        return None, f"{error.strerror}: {error.filename}"
    except NoHome as error:
        return None, str(error)


def to_resume(named: str | None, workspace: str) -> str | None:
    """The id of the session to go on with, if one is named. Raises HandrailError for one of another directory."""
    if not named:
        return None
    found, here = find_session(open_store(), named), os.path.realpath(workspace)
    if found.workspace and found.workspace != here:
        what = f"session {found.id} worked in {found.workspace}"
        if not os.path.isdir(found.workspace):
            raise HandrailError(f"{what}, which is gone: make that directory again, or begin a new session")
        place = shlex.quote(found.workspace)
        raise HandrailError(f"{what}, and this is {here}: add --workspace {place}, or go there first")
    return found.id


def find_session(store: Store, named: str, *, forks: bool = True) -> Summary:
    """The session of this id, of an id that begins so, or the `last` one. Raises HandrailError for none or several.

    The last one is of this directory, if there is one; without `forks`, it is no copy that nobody has gone on with.
    """
    sessions = store.sessions()
    if named == LAST and sessions:
        here = os.path.realpath(".")
        return min(
            sessions, key=lambda each: (each.forked and not forks, each.workspace != here)
        )  # the first of equals
    found = [each for each in sessions if each.id == named] or [each for each in sessions if each.id.startswith(named)]
    if len(found) == 1 and named:
        return found[0]
    if len(found) > 1:
        raise HandrailError(f"{len(found)} sessions begin with {named!r}: {', '.join(each.id for each in found[:5])}")
    raise HandrailError(f"there is no session {named!r}; `handrail sessions list` shows those that there are")
