"""The languages that `run_code` supports, and how each is started."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Language(NamedTuple):
    """The command that runs a file, and the file's extension."""

    argv: tuple[str, ...]
    ending: str


_PYTHON: Final = Language(("python3",), ".py")
_NODE: Final = Language(("node",), ".js")
LANGUAGES: Final[Mapping[str, Language]] = {
    "python": _PYTHON,
    "python3": _PYTHON,
    "py": _PYTHON,
    "bash": Language(("bash", "-o", "pipefail"), ".sh"),
    "sh": Language(("sh",), ".sh"),
    "javascript": _NODE,
    "js": _NODE,
    "node": _NODE,
    "ruby": Language(("ruby",), ".rb"),
    "perl": Language(("perl",), ".pl"),
    "php": Language(("php",), ".php"),
    "lua": Language(("lua",), ".lua"),
    "r": Language(("Rscript",), ".R"),
}


def language(name: str) -> Language:
    """The language of this name. Raises ValueError, listing the supported ones, for an unknown name."""
    found = LANGUAGES.get(name.strip().lower()) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"language is {name!r}; supported are {', '.join(sorted(LANGUAGES))}.")
    return found
