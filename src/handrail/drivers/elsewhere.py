"""Say of a program that is not in a sandbox whether the machine has it, and how to show it inside."""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Final

Explain = Callable[[str], str | None]
"""From the name of a program that was not found to what should be said about it."""
NOT_FOUND_EXIT: Final = 127
_NOT_FOUND: Final = re.compile(
    rb"(?:^|: )([^\s:]+): (?:command not found|not found|No such file or directory)", re.MULTILINE
)
_MOST: Final = 3


def nothing_elsewhere(name: str) -> str | None:
    """Where a sandbox hides nothing, there is nothing to say."""
    return None


def explainer(visible: Sequence[str]) -> Explain:
    """Explain programs for a sandbox that shows what lies below `visible`, and nothing else."""

    def explain(name: str) -> str | None:
        found = shutil.which(name)
        if found is None:
            return None
        found = os.path.abspath(found)
        if _is_below(found, visible):
            return f"{name} is at {found}, but not on the sandbox's PATH: use its whole path, or set PATH with env."
        places = dict.fromkeys((os.path.dirname(found), os.path.dirname(os.path.realpath(found))))
        mounts = ", ".join(f"Mount({place!r})" for place in places if not _is_below(place, visible))
        return (
            f"{name} exists outside the sandbox, at {found}, but not inside: to show it, open the sandbox with "
            f"mounts=[{mounts}], and use its whole path or set PATH with env."
        )

    return explain


def missing_programs(said: bytes) -> list[str]:
    """The names that a shell said it did not find."""
    names = (match[1].decode("utf-8", "replace") for match in _NOT_FOUND.finditer(said))
    return list(dict.fromkeys(names))[:_MOST]


def explanations(exit_code: int, said: bytes, explain: Explain) -> Iterator[str]:
    """What should be said about a command that ended so, after it had said this on its standard error."""
    if exit_code == NOT_FOUND_EXIT:
        yield from filter(None, map(explain, missing_programs(said)))


def _is_below(path: str, tops: Sequence[str]) -> bool:
    return any(path == top or path.startswith(top.rstrip("/") + "/") for top in tops)
