"""The tools that come with Handrail, in three selections; each is loaded when it is first wanted."""

from importlib import import_module
from typing import Final, Literal, get_args

from handrail.contract.errors import HandrailError
from handrail.toolkit.tool import Tool

Profile = Literal["coding", "read_only", "all"]
READ_ONLY: Final = ("glob", "grep", "read", "read_artifact")
CODING: Final = (*READ_ONLY, "bash", "edit", "process", "run_code", "share_artifact", "todo", "write")
ALL: Final = (*CODING, "ask_user", "complete")
"""Each name is a module of this room, and the tool in it."""


def builtin_tools(profile: Profile = "coding") -> list[Tool]:
    """`read_only` changes nothing; `coding` has hands; `all` can also ask the user and end the work."""
    chosen = {"coding": CODING, "read_only": READ_ONLY, "all": ALL}.get(profile)
    if chosen is None:
        raise HandrailError(f"there is no profile {profile!r}; there are {', '.join(get_args(Profile))}")
    return [getattr(import_module(f"handrail.tools.{name}"), name) for name in chosen]
