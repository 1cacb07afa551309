"""Say of a program that is not in a sandbox whether the machine has it, and how to show it inside."""

import os
import shutil
from collections.abc import Callable, Sequence

from handrail.drivers._options import is_below

Explain = Callable[[str], str | None]
"""From the name of a program that was not found to what should be said about it."""


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
        if is_below(found, visible):
            return f"{name} is at {found}, but not on the sandbox's PATH: use its whole path, or set PATH with env."
        places = dict.fromkeys((os.path.dirname(found), os.path.dirname(os.path.realpath(found))))
        mounts = ", ".join(f"Mount({place!r})" for place in places if not is_below(place, visible))
        return (
            f"{name} exists outside the sandbox, at {found}, but not inside: to show it, open the sandbox with "
            f"mounts=[{mounts}], and use its whole path or set PATH with env."
        )

    return explain
