"""Read from what a command said last what its caller should know: a program that is elsewhere, a limit reached."""

import re
from collections.abc import Iterator
from typing import Final

from handrail.drivers.elsewhere import Explain

NOT_FOUND_EXIT: Final = 127
CROWDED: Final = (
    "A process could not be started: the sandbox's limit on processes may be reached. End what runs in the sandbox, "
    "or open it with a higher limits.processes."
)
_NOT_FOUND: Final = re.compile(
    rb"(?:^|: )([^\s:/]+): (?:command not found|not found|No such file or directory)", re.MULTILINE
)
_CROWDED: Final = re.compile(
    rb"(?i)fork(?:_exec)?\b[\s\S]{0,200}?(?:Resource temporarily unavailable|EAGAIN)|can't start new thread|cannot fork"
)
_MOST: Final = 3


def explanations(exit_code: int, said: bytes, explain: Explain) -> Iterator[str]:
    """What should be said about a command that ended so, after it had said this on its standard error."""
    if exit_code == NOT_FOUND_EXIT:
        yield from filter(None, map(explain, missing_programs(said)))
    if _CROWDED.search(said):
        yield CROWDED


def missing_programs(said: bytes) -> list[str]:
    """The names that a shell said it did not find. No paths: a command could ask so what exists outside its sandbox."""
    names = (match[1].decode("utf-8", "replace") for match in _NOT_FOUND.finditer(said))
    return list(dict.fromkeys(names))[:_MOST]
