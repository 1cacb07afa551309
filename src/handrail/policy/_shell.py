"""Compare command lines with globs: every command of a line must be allowed, and none may be forbidden."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from handrail.policy._shell_commands import (
    PLAIN,
    evaluates_texts,
    file_name,
    inner_commands,
    possible_texts,
    runs_others,
    shell_texts,
)
from handrail.policy._shell_line import UNKNOWN, Command, read_line
from handrail.schema.globs import SPECIAL, glob_matches, literal

MAX_TEXTS_DEPTH: Final = 8
"""Nesting depth of texts for a shell that are read, as in `bash -c "bash -c '…'"`."""
FILLED: Final = ("", "\x01", "\x01\x01\x01 \x01")
"""Stand-ins for an unknown part: a glob that matches with each of them, by `*`, matches any value."""


def shell_matches(glob: str, line: str) -> bool | None:
    """Whether one rule that allows covers a command line; None when the line cannot be read."""
    return shell_covers([glob], line)


def shell_covers(globs: Sequence[str], line: str) -> bool | None:
    """Whether rules that allow cover every command of a line; None when the line is more than commands and words.

    A line that equals a glob to the letter is always covered.
    """
    if any(literal(glob) == line for glob in globs):
        return True
    read = read_line(line)
    if read is None:
        return None
    if not read.commands or not all(any(_covers(glob, command) for glob in globs) for command in read.commands):
        return False
    return True if read.plain and not any(map(_is_unclear, read.commands)) else None


def _is_unclear(command: Command) -> bool:
    """Whether the name of a command does not tell what it runs."""
    name = command.words[0] if command.words else UNKNOWN
    return command.assigns or UNKNOWN in name or runs_others(command) or evaluates_texts(command)


def _covers(glob: str, command: Command) -> bool:
    if not any(UNKNOWN in word for word in command.words):
        return glob_matches(glob, shlex.join(command.words))
    if "[" in glob or UNKNOWN in command.words[0]:  # a class may refuse what is filled in
        return False
    return all(glob_matches(glob, " ".join(_filled(word, text) for word in command.words)) for text in FILLED)


def _filled(word: str, text: str) -> str:
    return word.replace(UNKNOWN, text) if UNKNOWN in word else shlex.quote(word)


def shell_forbids(glob: str, line: str) -> bool | None:
    """Whether a rule that forbids covers any command of a line; None where a command in it cannot be read.

    It covers more than one that allows: `/bin/rm` is `rm`, quotes make no difference, and neither do wrappers.
    """
    if literal(glob) == line:
        return True
    return _Forbids(glob).line(line, MAX_TEXTS_DEPTH)


class _Forbids:
    """One rule that forbids, and what it says of lines and commands."""

    def __init__(self, glob: str) -> None:
        head, space, rest = glob.partition(" ")
        self._globs = {glob, f"{file_name(head)}{space}{rest}"}
        self._globs |= {each.replace("'", "").replace('"', "") for each in self._globs}
        self._name = None if SPECIAL.intersection(head) else file_name(head)
        """The only command that the rule is about; None if it is about several."""

    def line(self, line: str, depth: int) -> bool | None:
        read = read_line(line)
        if read is None or not depth:
            return None
        answers = [self._command(command, depth) for command in read.commands]
        return True if True in answers else None if None in answers or read.evaluates else False

    def _command(self, command: Command, depth: int) -> bool | None:
        answers = list(self._answers(command, depth))
        return True if True in answers else None if None in answers else False

    def _answers(self, command: Command, depth: int) -> Iterator[bool | None]:
        """The rule's verdict on a command, on the commands it runs, and on the texts it gives to a shell."""
        if evaluates_texts(command):
            yield None
        yield self._words(command.words)
        for text in shell_texts(command):
            yield None if UNKNOWN in text else self.line(text, depth - 1)
        if runs_others(command):
            for words in inner_commands(command):
                known = depth > 1 and "{}" not in words[0]  # `{}` is a file that is found later
                yield self._command(replace(command, words=words), depth - 1) if known else None
        yield from self._possible(command, depth)

    def _possible(self, command: Command, depth: int) -> Iterator[bool | None]:
        """Ask where a word may be a command, or a line for a shell, of a program that is not known."""
        if not command.words or file_name(command.words[0]) in PLAIN or self._name is None:
            return
        for at, word in enumerate(command.words[1:], 1):
            named = file_name(word) == self._name and self._words(command.words[at:]) is not False
            if named or ("=" in word and file_name(word.rpartition("=")[2]) == self._name):  # alias x=rm
                yield None
        for text in possible_texts(command):
            if self._name in text and self.line(text, depth - 1) is True:
                yield None

    def _words(self, words: Sequence[str]) -> bool | None:
        if not words or UNKNOWN in words[0]:
            return None
        named = [file_name(words[0]), *words[1:]]
        texts = {form(each) for each in (words, named) for form in (shlex.join, " ".join)}
        if any(glob_matches(each, text) for each in self._globs for text in texts):
            return True
        if self._name is not None and self._name != named[0]:
            return False
        return None if any(UNKNOWN in word for word in words) else False
