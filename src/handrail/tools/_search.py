"""Find the lines of files that a pattern matches: one engine decides, ripgrep only says where it is worth looking."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import jsonschema_rs as engine
from anyio.lowlevel import checkpoint

from handrail.sandbox.sandbox import Sandbox
from handrail.tools._glob_match import POSIX
from handrail.tools._walk import together

TOGETHER: Final = 4
"""Files that are read at once."""
BLOCK: Final = 64 << 10
"""Characters that are looked at before others get a turn."""
LONGEST_LINE: Final = 256 << 10
"""Characters of a line that are looked at."""
TABLE: Final = 64 << 20
"""Bytes for the engine's tables; where they do not fit it takes its time, linear as it is."""
LONGEST_PATTERN: Final = 16 << 10
"""Characters of a pattern that is given to ripgrep."""
MOST_NAMES: Final = 32 << 20
"""Bytes of ripgrep's answer that are read."""
NOTHING_FOUND: Final = 123
"""What xargs says when the program it started, such as ripgrep without a match, ended with 1."""
SETS: Final = {
    "d": "0-9",
    "w": "0-9A-Za-z_",
    "s": "\t\n\x0b\x0c\r ",
    "D": "\\x00-/:-\ufffc\ufffe-\U0010ffff",
    "W": "\\x00-/:-@\\[-\\^`{-\ufffc\ufffe-\U0010ffff",
    "S": "\\x00-\x08\x0e-\x1f!-\ufffc\ufffe-\U0010ffff",
}
DAMAGED: Final = "\ufffd"
ANCHORS: Final = {"A": "^", "z": "$", "Z": "$"}
_AROUND: Final = re.compile(r"\(\?<?[=!]|\\[1-9]|\\k")
_NOT_BY_LINES: Final = re.compile(r"\(\?[a-zA-Z]*-[a-zA-Z]*m")


@dataclass(frozen=True, slots=True)
class Found:
    """One matching line, with those around it."""

    path: str
    line: int
    text: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Regex:
    """A checked pattern. Raises ValueError for one that is not valid."""

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        self.text = portable(pattern, ignore_case=ignore_case)
        try:
            self.matches = _compiled(self.text)
            self._somewhere = _compiled(f"(?m){self.text}")
        except (engine.ValidationError, ValueError):
            raise ValueError(f"The pattern is not a valid regular expression: {_reason(pattern)}.") from None
        if _NOT_BY_LINES.search(pattern):
            self._somewhere = bool

    def may_match(self, block: str) -> bool:
        """False where no line of the block matches. One with a very long line is not asked as a whole."""
        return len(block) > 2 * BLOCK or self._somewhere(block)


class Search:
    """The first `most` matching lines of files, in the order in which the files are given."""

    def __init__(self, sandbox: Sandbox, regex: Regex, *, most: int, context: int = 0) -> None:
        self.found: list[Found] = []
        self.shortened = 0
        """Lines of which only the beginning was looked at."""
        self._sandbox = sandbox
        self._regex = regex
        self._most = most
        self._context = context

    async def look(self, paths: Sequence[str]) -> None:
        """Read the files through the sandbox's own file operations."""
        for begin in range(0, len(paths), TOGETHER):
            some = paths[begin : begin + TOGETHER]
            read = await together([partial(self._read, path) for path in some])
            for path, data in zip(some, read, strict=True):
                if len(self.found) >= self._most:
                    return
                if b"\0" not in data:
                    await self._look_at(path, data.decode("utf-8", "replace"))

    async def _read(self, path: str) -> bytes:
        try:
            return await self._sandbox.read_bytes(path)
        except OSError:
            return b""  # it may not be read, or has gone meanwhile

    async def _look_at(self, path: str, text: str) -> None:
        numbers: list[int] = []
        first = 0
        for block in _blocks(text):
            if len(text) > BLOCK:
                await checkpoint()
            if self._regex.may_match(block):
                numbers += [first + place for place in self._places(block)]
            if len(self.found) + len(numbers) >= self._most:
                break
            first += block.count("\n")
        if numbers:
            lines = _lines(text)
            self.found += [self._made(path, lines, at) for at in numbers[: self._most - len(self.found)]]

    def _places(self, block: str) -> Iterator[int]:
        for place, line in enumerate(_lines(block)):
            if len(line) > LONGEST_LINE:
                self.shortened += 1
                line = line[:LONGEST_LINE]  # noqa: PLW2901 - what is left out here is told
            if self._regex.matches(line):
                yield place

    def _made(self, path: str, lines: list[str], at: int) -> Found:
        around = self._context
        before, after = lines[max(0, at - around) : at], lines[at + 1 : at + 1 + around]
        return Found(path, at + 1, lines[at], tuple(before), tuple(after))


async def worth_looking(sandbox: Sandbox, regex: Regex, paths: list[str]) -> list[str]:
    """Those of the files in which ripgrep finds the pattern, in the same order; all where it cannot say."""
    argv = ["xargs", "-0", "rg", "--no-config", "--no-messages", "--no-mmap", "--text", "--encoding", "none"]
    argv += ["--threads", "1", "--files-with-matches", "--null", "--regexp", regex.text, "--"]
    names = b"\0".join(path.encode("utf-8", "surrogateescape") for path in paths)
    if not names or len(regex.text) > LONGEST_PATTERN or "\0" in regex.text:
        return paths
    done = await sandbox.run(argv, cwd="/", stdin=names, max_output=MOST_NAMES)
    if done.exit_code not in (0, NOTHING_FOUND) or done.stderr_size or done.ended_by != "exit":
        return paths  # it knows less of regular expressions than the engine here, or was ended
    listed = set(done.spool.read().decode("utf-8", "surrogateescape").split("\0"))
    return [path for path in paths if path in listed]


def _compiled(pattern: str) -> Callable[[str], bool]:
    """The engine that checks the patterns of schemas: it runs in linear time."""
    options = engine.RegexOptions(dfa_size_limit=TABLE)
    return engine.Draft202012Validator({"pattern": pattern}, pattern_options=options).is_valid


def _blocks(text: str) -> Iterator[str]:
    """Whole lines, about BLOCK characters of them at a time."""
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin + BLOCK) + 1 or len(text)
        yield text[begin:end]
        begin = end


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _reason(pattern: str) -> str:
    if _AROUND.search(pattern):
        return "look-around and back-references are not known"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return "it is too large, or has an escape that is not known"


def portable(pattern: str, *, ignore_case: bool = False) -> str:
    """The pattern for either engine. Raises ValueError for one that could only match across lines."""
    made: list[str] = ["(?i)"] if ignore_case else []
    at, inside = 0, False
    while at < len(pattern):
        piece, at, inside = _inside(pattern, at) if inside else _outside(pattern, at)
        made.append(piece)
    return "".join(made)


def _outside(pattern: str, at: int) -> tuple[str, int, bool]:
    char, following = pattern[at], pattern[at + 1 : at + 2]
    if char == "\n" or (char == "\\" and following == "n"):
        raise ValueError("A pattern is matched against one line at a time; leave the line break out.")
    if char == "\\" and following in SETS:
        return f"[{SETS[following]}]", at + 2, False
    if char == "\\" and following in ANCHORS:
        return ANCHORS[following], at + 2, False
    if char == "\\":
        return pattern[at : at + 2], at + 2, False
    if char != "[":
        return f"[^{DAMAGED}]" if char == "." else char, at + 1, False
    negated = following == "^"
    end = at + 2 if negated else at + 1
    opened = f"[^{DAMAGED}" if negated else "["
    if pattern[end : end + 1] == "]":  # first in a set, it stands for itself
        return f"{opened}\\]", end + 1, True
    return opened, end, True


def _inside(pattern: str, at: int) -> tuple[str, int, bool]:
    char, following = pattern[at], pattern[at + 1 : at + 2]
    if char == "]":
        return char, at + 1, False
    if char == "\\" and following in SETS:
        return SETS[following], at + 2, True
    if char == "\\":
        return pattern[at : at + 2], at + 2, True
    if char == "[" and following == ":" and (end := pattern.find(":]", at)) > 0:
        name = pattern[at + 2 : end]
        if name not in POSIX:
            raise ValueError(f"There is no set [:{name[:30]}:].")
        return POSIX[name], end + 2, True
    nested = char in "[&~" or (char == "-" and following == "-")
    return (f"\\{char}" if nested else char), at + 1, True
