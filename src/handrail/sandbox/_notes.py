"""Notes that explain exit codes and missing output."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from handrail.contract.driver import Command
from handrail.sandbox.completed import EXIT_NOT_FOUND

SIGPIPE_EXIT: Final = 141
LIMIT_EXITS: Final = {
    152: "Exit code 152 means that a limit ended the command: it used all its cpu time (limits.cpu). Do less at once.",
    153: "Exit code 153 means that a limit ended the command: a file grew too large (limits.file_size). Write less.",
}
"""After the signals SIGXCPU and SIGXFSZ, which only a limit sends."""
SIGNALLED: Final = 128
"""Exit codes above this one are 128 + N after signal N."""
_NOT_COMMAND: Final = re.compile(r"\\.|'[^']*'|(?<!\S)#[^\n]*|" + r'"(?:\\.|[^"\\])*"', re.DOTALL)
"""Parts of a line that are not commands: quoted text, escaped characters and comments."""
_PIPE: Final = re.compile(r"(?<![|>])\|(?!\|)")
_HIDES_ERRORS: Final = re.compile(r"(?:(?<![\w$])2|&)>>?\s*/dev/null\b|>&\s*/dev/null\b|>\s*/dev/null\s+2>&1")


NO_NETWORK: Final = "This sandbox has no network: nothing outside it can be reached, and a retry will not help."
READ_ONLY: Final = "The workspace is read-only in this sandbox: commands can write in $HOME and /tmp."
_UNREACHABLE: Final = re.compile(
    "(?i)name resolution|could not resolve|couldn't resolve|failure resolving|unable to resolve host|"
    "name or service not known|nodename nor servname|failed to lookup address|no address associated with hostname|"
    "unknownhostexception|unknown host|no such host|getaddrinfo|eai_again|enotfound|dial tcp: lookup|"
    "network is unreachable|network unreachable|enetunreach|no route to host|ehostunreach|dns error"
)
_CURL: Final = re.compile(r"\bcurl\b")
CURL_LOOKUP_EXIT: Final = 6
"""Exit code of curl for an unknown host name; `curl -s`, as scripts call it, prints nothing."""
_REFUSED_WRITE: Final = re.compile("(?i)read-only file system|permission denied|erofs|eacces")
_LOOKED_AT: Final = 8_000
"""Characters at the end of each stream that tell why a command failed."""


def notes_on_failure(
    command: Command, exit_code: int, texts: Sequence[str], *, offline: bool, read_only: bool
) -> Iterator[str]:
    """Return notes on a command that failed because of its sandbox's walls; `texts` are its output."""
    ends = [text[-_LOOKED_AT:] for text in texts]
    quiet = exit_code == CURL_LOOKUP_EXIT and _CURL.search(command.line or " ".join(command.argv or ())) is not None
    if offline and (quiet or any(map(_UNREACHABLE.search, ends))):
        yield NO_NETWORK
    if read_only and any(map(_REFUSED_WRITE.search, ends)):
        yield READ_ONLY


def notes_on(command: Command, exit_code: int, *, silent: bool) -> tuple[str, ...]:
    """Notes on a command that exited by itself. `silent` says that no output came from it.

    A program that a signal ended may have had output that it had not written yet: then nothing is said of silence.
    """
    silent = silent and exit_code <= SIGNALLED
    notes: list[str] = []
    if exit_code == SIGPIPE_EXIT and is_pipeline(command.line):
        notes.append(
            "Exit code 141 is harmless here: a part of the pipeline was ended by SIGPIPE because a later part, "
            "such as head, had read enough."
        )
    if silent and exit_code == 0 and is_pipeline(command.line):  # another code says already that it failed
        notes.append(
            "The pipeline printed nothing at all, neither output nor errors: check whether its first part printed "
            "anything, or whether an error went to /dev/null."
        )
    elif silent and hides_errors(command.line):
        notes.append(
            "The command printed nothing at all, and its errors went to /dev/null: if you expected output, run it "
            "again without 2>/dev/null."
        )
    if exit_code in LIMIT_EXITS:
        notes.append(LIMIT_EXITS[exit_code])
    if exit_code == EXIT_NOT_FOUND:
        notes.append(
            "Exit code 127 means that a command was not found: check its spelling, or whether it is installed "
            "in the sandbox."
        )
    return tuple(notes)


def is_pipeline(line: str | None) -> bool:
    """Whether a `|` outside quotes joins two commands, judged without parsing the line."""
    return line is not None and "|" in line and _PIPE.search(_NOT_COMMAND.sub("", line)) is not None


def hides_errors(line: str | None) -> bool:
    """Whether errors are sent to /dev/null outside quotes, judged without parsing the line."""
    return line is not None and "/dev/null" in line and _HIDES_ERRORS.search(_NOT_COMMAND.sub("", line)) is not None
