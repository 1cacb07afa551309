"""Compare command lines with globs, as long as a line is one simple command; anything more is left to a person."""

import re
import shlex
from typing import Final

from handrail.policy.patterns import glob_matches, literal

_RESERVED: Final = "if then elif else fi for while until do done case esac select function time coproc in [[ { } !"
RESERVED_WORDS: Final = frozenset(_RESERVED.split())
_WRAPPERS: Final = """
    . source eval exec builtin command trap enable jobs fc bind complete compgen mapfile readarray let alias
    bash sh dash ash zsh ksh csh tcsh fish rbash busybox toybox
    env nice nohup setsid stdbuf timeout time xargs parallel sem find watch entr script expect unbuffer
    sudo doas su runuser setpriv capsh chroot unshare nsenter bwrap firejail fakeroot systemd-run start-stop-daemon
    flock ionice chrt taskset numactl prlimit setarch linux32 linux64 run-parts strace ltrace gdb valgrind ssh
"""
WRAPPER_COMMANDS: Final = frozenset(_WRAPPERS.split())
"""Commands that run another command: their name does not tell what they do."""
_EVALUATES: Final = "test printf read unset declare typeset local export readonly wait getopts"
EVALUATING_COMMANDS: Final = frozenset(_EVALUATES.split())
"""Shell commands that expand `$(…)` in their arguments themselves, whatever the quotes."""
SPECIAL_UNQUOTED: Final = frozenset(";&|<>()$`{}#\\")
SPECIAL_IN_DOUBLE_QUOTES: Final = frozenset("$`\\")
EXPANDED: Final = frozenset("*?[~")
ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[.*\])?\+?=.*", re.DOTALL)
LOADER: Final = re.compile(r"ld(-linux.*|-musl.*)?\.so.*")
LONGEST_LINE: Final = 100_000


def simple_command(line: str) -> list[str] | None:
    """The words of one simple command without substitutions, redirections or wrappers; None for anything else."""
    if len(line) > LONGEST_LINE or not line.isprintable() or _unquoted(line) is None:
        return None
    words = shlex.split(line)
    if not words or words[0] in RESERVED_WORDS or ASSIGNMENT.fullmatch(words[0]) or EXPANDED.intersection(words[0]):
        return None
    name = _file_name(words[0])
    if name in WRAPPER_COMMANDS or LOADER.fullmatch(name):
        return None
    return None if name in EVALUATING_COMMANDS and ("$" in line or "`" in line) else words


def shell_matches(glob: str, line: str) -> bool | None:
    """Whether a rule that allows covers a command line; None when the line is not simple enough to tell.

    A line that equals the glob to the letter is always covered.
    """
    if literal(glob) == line:
        return True
    words = simple_command(line)
    return None if words is None else glob_matches(glob, shlex.join(words))


def shell_forbids(glob: str, line: str) -> bool | None:
    """The same for rules that forbid, which cover more: `/bin/rm` is `rm`, and quotes make no difference.

    None also for words that the shell expands (`*`, `?`, `[`, `~`), unless the rule is about another command.
    """
    if literal(glob) == line:
        return True
    words = simple_command(line)
    if words is None:
        return None
    named = [_file_name(words[0]), *words[1:]]
    head, space, rest = glob.partition(" ")
    globs = {glob, f"{_file_name(head)}{space}{rest}"}
    globs |= {each.replace("'", "").replace('"', "") for each in globs}
    texts = {form(each) for each in (words, named) for form in (shlex.join, " ".join)}
    if any(glob_matches(each, text) for each in globs for text in texts):
        return True
    about_another = not EXPANDED.intersection(head) and _file_name(head) != named[0]
    return False if about_another or not EXPANDED.intersection(_unquoted(line) or "") else None


def _file_name(word: str) -> str:
    return word.rpartition("/")[2]


def _unquoted(line: str) -> str | None:
    """The text outside of quotes, or None when the line holds anything but words."""
    quote, unquoted = "", []
    for char in line:
        if quote:
            if char == quote:
                quote = ""
            elif quote == '"' and char in SPECIAL_IN_DOUBLE_QUOTES:
                return None
        elif char in "'\"":
            quote = char
        elif char in SPECIAL_UNQUOTED:
            return None
        else:
            unquoted.append(char)
    return None if quote else "".join(unquoted)
