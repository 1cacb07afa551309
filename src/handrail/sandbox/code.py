"""Which languages `run_code` knows, and how each of them is started."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Language(NamedTuple):
    """A program that runs a file, and the ending it expects."""

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
    """Raises ValueError that lists the known ones."""
    found = LANGUAGES.get(name.strip().lower()) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"language is {name!r}; known are {', '.join(sorted(LANGUAGES))}.")
    return found
