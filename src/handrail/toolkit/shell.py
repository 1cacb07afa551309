"""Read a command line only as far as it is one simple command; what is more than that is left to a person."""

import re
import shlex
from typing import Final

from handrail.toolkit.glob import glob_matches, literal

RESERVED: Final = frozenset(
    [
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "select",
        "function",
        "time",
        "coproc",
        "in",
        "[[",
        "{",
        "}",
        "!",
    ]
)
WRAPPERS: Final = frozenset(
    [
        ".",
        "builtin",
        "bash",
        "busybox",
        "command",
        "dash",
        "env",
        "eval",
        "exec",
        "find",
        "nice",
        "nohup",
        "parallel",
        "setsid",
        "sh",
        "source",
        "stdbuf",
        "sudo",
        "timeout",
        "watch",
        "xargs",
        "zsh",
    ]
)
"""Commands that run another: what they do cannot be told from their name."""
UNQUOTED: Final = frozenset(";&|<>()$`{}#\\")
IN_DOUBLE_QUOTES: Final = frozenset("$`\\")
ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[.*\])?\+?=.*", re.DOTALL)


def simple_command(line: str) -> list[str] | None:
    """The words of one simple command without expansions, redirections or wrappers; None for anything else."""
    if not line.isprintable():
        return None
    quote = ""
    for char in line:
        if quote:
            if char == quote:
                quote = ""
            elif quote == '"' and char in IN_DOUBLE_QUOTES:
                return None
        elif char in "'\"":
            quote = char
        elif char in UNQUOTED:
            return None
    if quote:
        return None
    words = shlex.split(line)
    if not words or words[0] in RESERVED or words[0].rpartition("/")[2] in WRAPPERS:
        return None
    return None if ASSIGNMENT.fullmatch(words[0]) or set("*?[~") & set(words[0]) else words


def shell_matches(glob: str, line: str) -> bool | None:
    """Whether a command line is what the glob means; None when it is not simple enough to tell.

    A line that is the glob to the letter always matches. A command that is named by its path also stands for its name.
    """
    if literal(glob) == line:
        return True
    words = simple_command(line)
    if words is None:
        return None
    return glob_matches(glob, shlex.join(words))


def shell_matches_any_name(glob: str, line: str) -> bool | None:
    """The same for rules that forbid: `/bin/rm` is `rm`, whatever directory it is in."""
    found = shell_matches(glob, line)
    words = simple_command(line)
    if found is not False or words is None:
        return found
    return glob_matches(glob, shlex.join([words[0].rpartition("/")[2], *words[1:]]))
