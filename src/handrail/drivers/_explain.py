"""Explain a command that failed because of its sandbox: a program that is not inside, a limit that was reached."""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from handrail.drivers._options import is_below
from handrail.sandbox.completed import EXIT_CANNOT_RUN, EXIT_NOT_FOUND


class Explanation(NamedTuple):
    """The reason for a missing program, for the model, and advice for a person, who alone can change it."""

    note: str
    advice: str


Explain = Callable[[str], Explanation | None]
"""A function from the name of a missing program to its explanation, if there is one."""
NO_MORE_PROCESSES: Final = (
    "A process could not be started: the sandbox may have reached its limit on processes. Stop something that runs in "
    "the sandbox."
)
MORE_PROCESSES: Final = (
    "A process could not be started: the sandbox may have reached its limit on processes. Open it with a higher "
    "limits.processes if its commands need more."
)
HIDDEN_INTERPRETER: Final = (
    "{} is there, but its interpreter {} is hidden: it is not in this sandbox. Run it with an interpreter that is, or "
    "make its environment again."
)
_NOT_FOUND: Final = re.compile(
    rb"(?:^|: )([^\s:/]+): (?:command not found|not found|No such file or directory)", re.MULTILINE
)
_CANNOT_FORK: Final = re.compile(
    rb"(?i)fork(?:_exec)?\b[\s\S]{0,200}?(?:Resource temporarily unavailable|EAGAIN)|can't start new thread|cannot fork"
)
_BAD_INTERPRETER: Final = re.compile(
    rb"(?m)(?:^|: )([^\s:]+): "
    rb"(?:cannot execute: required file not found|(\S+): bad interpreter: No such file or directory)"
)
_EXPLAINED_MAX: Final = 3
"""Programs that one command's notes speak of."""


def no_explanation(name: str) -> Explanation | None:
    """Return None: a sandbox that hides nothing has no explanation."""
    return None


def explainer(visible: Sequence[str]) -> Explain:
    """Explain missing programs for a sandbox that shows the directories `visible` and nothing else."""

    def explain(name: str) -> Explanation | None:
        program = shutil.which(name)
        if program is None:
            return None
        program = os.path.abspath(program)
        if is_below(program, visible):
            note = f"{name} is at {program}, but not on the sandbox's PATH: use its full path."
            return Explanation(note, f"{name} is at {program}: to have it on PATH, open the sandbox with env PATH set.")
        directories = dict.fromkeys((os.path.dirname(program), os.path.dirname(os.path.realpath(program))))
        hidden = [path for path in directories if not is_below(path, visible)]
        mounts = ", ".join(f"Mount({path!r})" for path in hidden)
        options = " ".join(f"--mount {shlex.quote(path)}" for path in hidden)
        return Explanation(
            f"{name} exists outside the sandbox, but not inside: only the person who opened it can change that. Go on "
            "without it, or ask for it.",
            f"{name} exists outside the sandbox, at {program}, but not inside: to make it available, open the sandbox "
            f"with mounts=[{mounts}] (on the command line: {options}), and use its full path or set PATH with env.",
        )

    return explain


def explanations(exit_code: int, stderr: bytes, explain: Explain) -> Iterator[Explanation]:
    """Explain an exit code, if something is known; `stderr` is the end of the command's standard error."""
    if exit_code == EXIT_NOT_FOUND:
        yield from filter(None, map(explain, missing_programs(stderr)))
    if exit_code in (EXIT_NOT_FOUND, EXIT_CANNOT_RUN):
        for found in dict.fromkeys(_BAD_INTERPRETER.findall(stderr)[:_EXPLAINED_MAX]):
            program, named = (part.decode("utf-8", "replace") for part in found)
            yield Explanation(HIDDEN_INTERPRETER.format(program, named or f"(see: head -n 1 {program})"), "")
    if _CANNOT_FORK.search(stderr):
        yield Explanation(NO_MORE_PROCESSES, MORE_PROCESSES)


def missing_programs(stderr: bytes) -> list[str]:
    """Find names of missing programs in a shell's messages. Paths are left out: they would tell which files exist."""
    names = (match[1].decode("utf-8", "replace") for match in _NOT_FOUND.finditer(stderr))
    return list(dict.fromkeys(names))[:_EXPLAINED_MAX]
