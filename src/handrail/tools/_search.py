"""Find the lines of files that a regular expression matches, in linear time.

One engine decides what matches; ripgrep, where the sandbox has it, only names the files worth reading. Both must read
a pattern alike, so it is rewritten: shorthands become ASCII sets, and what one engine would take for a nested set is
escaped. Bytes that are not UTF-8 match only themselves: ripgrep skips them, and the other engine sees U+FFFD.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import jsonschema_rs as engine
from anyio.lowlevel import checkpoint

from handrail.sandbox.sandbox import Sandbox
from handrail.tools._glob_match import POSIX_CLASSES
from handrail.tools._walk import gather

FILES_AT_ONCE: Final = 4
"""Files that are read concurrently."""
BLOCK_CHARACTERS: Final = 64 << 10
"""Characters that are searched between two checkpoints."""
LONGEST_SEARCHED_LINE: Final = 256 << 10
"""Characters of a line that are searched."""
ENGINE_TABLE_BYTES: Final = 64 << 20
"""Memory for the engine's tables; a pattern that needs more runs slower, still in linear time."""
LONGEST_RIPGREP_PATTERN: Final = 16 << 10
"""Characters of the longest pattern that is passed to ripgrep."""
RIPGREP_OUTPUT_BYTES: Final = 32 << 20
"""Bytes of ripgrep's output that are read."""
XARGS_NOTHING_FOUND: Final = 123
"""The exit code of xargs when ripgrep found no match."""
SHORTHANDS: Final = {
    "d": "0-9",
    "w": "0-9A-Za-z_",
    "s": "\t\n\x0b\x0c\r ",
    "D": "\\x00-/:-\ufffc\ufffe-\U0010ffff",
    "W": "\\x00-/:-@\\[-\\^`{-\ufffc\ufffe-\U0010ffff",
    "S": "\\x00-\x08\x0e-\x1f!-\ufffc\ufffe-\U0010ffff",
}
NOT_UTF8: Final = "\ufffd"
ANCHORS: Final = {"A": "^", "z": "$", "Z": "$"}
_UNSUPPORTED: Final = re.compile(r"\(\?<?[=!]|\\[1-9]|\\k")
_TURNS_OFF_MULTILINE: Final = re.compile(r"\(\?[a-zA-Z]*-[a-zA-Z]*m")


@dataclass(frozen=True, slots=True)
class Match:
    """One matching line, with the lines around it."""

    path: str
    line: int
    text: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Regex:
    """A compiled pattern. Raises ValueError for an invalid one."""

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        self.text = portable(pattern, ignore_case=ignore_case)
        try:
            self.matches = _compiled(self.text)
            self._matches_in_block = _compiled(f"(?m){self.text}")
        except (engine.ValidationError, ValueError):
            raise ValueError(f"The pattern is not a valid regular expression: {_reason(pattern)}.") from None
        if _TURNS_OFF_MULTILINE.search(pattern):
            self._matches_in_block = bool

    def may_match(self, block: str) -> bool:
        """False if no line of the block matches. A block with a very long line is not tried as a whole."""
        return len(block) > 2 * BLOCK_CHARACTERS or self._matches_in_block(block)


class Search:
    """Collects the first `most` matching lines of files, in the order of the files."""

    def __init__(self, sandbox: Sandbox, regex: Regex, *, most: int, context: int = 0) -> None:
        self.matches: list[Match] = []
        self.shortened = 0
        """Lines of which only the beginning was searched."""
        self._sandbox = sandbox
        self._regex = regex
        self._most = most
        self._context = context

    async def search_files(self, paths: Sequence[str]) -> None:
        """Read the files through the sandbox, and search them until `most` lines match."""
        for begin in range(0, len(paths), FILES_AT_ONCE):
            batch = paths[begin : begin + FILES_AT_ONCE]
            read = await gather([partial(self._read, path) for path in batch])
            for path, data in zip(batch, read, strict=True):
                if len(self.matches) >= self._most:
                    return
                if b"\0" not in data:
                    await self._search_text(path, data.decode("utf-8", "replace"))

    async def _read(self, path: str) -> bytes:
        try:
            return await self._sandbox.read_bytes(path)
        except OSError:
            return b""  # it is unreadable, or was removed meanwhile

    async def _search_text(self, path: str, text: str) -> None:
        numbers: list[int] = []
        first = 0
        for block in _blocks(text):
            if len(text) > BLOCK_CHARACTERS:
                await checkpoint()
            if self._regex.may_match(block):
                numbers += [first + offset for offset in self._matching_lines(block)]
            if len(self.matches) + len(numbers) >= self._most:
                break
            first += block.count("\n")
        if numbers:
            lines = _lines(text)
            self.matches += [self._match(path, lines, at) for at in numbers[: self._most - len(self.matches)]]

    def _matching_lines(self, block: str) -> Iterator[int]:
        for offset, line in enumerate(_lines(block)):
            if len(line) > LONGEST_SEARCHED_LINE:
                self.shortened += 1
                line = line[:LONGEST_SEARCHED_LINE]  # noqa: PLW2901 - `shortened` counts what is left out
            if self._regex.matches(line):
                yield offset

    def _match(self, path: str, lines: list[str], at: int) -> Match:
        around = self._context
        before, after = lines[max(0, at - around) : at], lines[at + 1 : at + 1 + around]
        return Match(path, at + 1, lines[at], tuple(before), tuple(after))


async def files_with_matches(sandbox: Sandbox, regex: Regex, paths: list[str]) -> list[str]:
    """The files in which ripgrep finds the pattern, in the given order; all of them if ripgrep cannot tell."""
    argv = ["xargs", "-0", "rg", "--no-config", "--no-messages", "--no-mmap", "--text", "--encoding", "none"]
    argv += ["--threads", "1", "--files-with-matches", "--null", "--regexp", regex.text, "--"]
    names = b"\0".join(path.encode("utf-8", "surrogateescape") for path in paths)
    if not names or len(regex.text) > LONGEST_RIPGREP_PATTERN or "\0" in regex.text:
        return paths
    done = await sandbox.run(argv, cwd="/", stdin=names, max_output=RIPGREP_OUTPUT_BYTES)
    incomplete = done.stderr_size or done.ended_by != "exit" or done.spool.discarded()
    if done.exit_code not in (0, XARGS_NOTHING_FOUND) or incomplete:
        return paths  # ripgrep cannot read the pattern, or was stopped
    listed = set(done.spool.read().decode("utf-8", "surrogateescape").split("\0"))
    return [path for path in paths if path in listed]


def _compiled(pattern: str) -> Callable[[str], bool]:
    """Compile with the engine that checks the patterns of schemas, which runs in linear time."""
    options = engine.RegexOptions(dfa_size_limit=ENGINE_TABLE_BYTES)
    return engine.Draft202012Validator({"pattern": pattern}, pattern_options=options).is_valid


def _blocks(text: str) -> Iterator[str]:
    """The text in blocks of whole lines, each of about BLOCK_CHARACTERS."""
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin + BLOCK_CHARACTERS) + 1 or len(text)
        yield text[begin:end]
        begin = end


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _reason(pattern: str) -> str:
    if _UNSUPPORTED.search(pattern):
        return "look-around and back-references are not supported"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return "it is too large, or has an unknown escape"


def portable(pattern: str, *, ignore_case: bool = False) -> str:
    """Rewrite a pattern so that both engines read it alike. Raises ValueError for one that spans lines."""
    made: list[str] = ["(?i)"] if ignore_case else []
    at, inside = 0, False
    while at < len(pattern):
        piece, at, inside = _inside(pattern, at) if inside else _outside(pattern, at)
        made.append(piece)
    return "".join(made)


def _outside(pattern: str, at: int) -> tuple[str, int, bool]:
    char, following = pattern[at], pattern[at + 1 : at + 2]
    if char == "\n" or (char == "\\" and following == "n"):
        raise ValueError("The pattern is matched against one line at a time; remove the line break.")
    if char == "\\" and following in SHORTHANDS:
        return f"[{SHORTHANDS[following]}]", at + 2, False
    if char == "\\" and following in ANCHORS:
        return ANCHORS[following], at + 2, False
    if char == "\\":
        return pattern[at : at + 2], at + 2, False
    if char != "[":
        return f"[^{NOT_UTF8}]" if char == "." else char, at + 1, False
    negated = following == "^"
    end = at + 2 if negated else at + 1
    opened = f"[^{NOT_UTF8}" if negated else "["
    if pattern[end : end + 1] == "]":  # a ] that comes first in a set is literal
        return f"{opened}\\]", end + 1, True
    return opened, end, True


def _inside(pattern: str, at: int) -> tuple[str, int, bool]:
    char, following = pattern[at], pattern[at + 1 : at + 2]
    if char == "]":
        return char, at + 1, False
    if char == "\\" and following in SHORTHANDS:
        return SHORTHANDS[following], at + 2, True
    if char == "\\":
        return pattern[at : at + 2], at + 2, True
    if char == "[" and following == ":" and (end := pattern.find(":]", at)) > 0:
        name = pattern[at + 2 : end]
        if name not in POSIX_CLASSES:
            raise ValueError(f"There is no character class [:{name[:30]}:].")
        return POSIX_CLASSES[name], end + 2, True
    nested = char in "[&~" or (char == "-" and following == "-")
    return (f"\\{char}" if nested else char), at + 1, True
