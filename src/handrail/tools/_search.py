"""Find the lines of files that a regular expression matches, as `rg --crlf` does.

One engine decides what matches; ripgrep, where the sandbox has it, only names the files worth reading.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from anyio.lowlevel import checkpoint

from handrail.sandbox.sandbox import Sandbox
from handrail.tools._regex import NEVER_MATCHED, Regex
from handrail.tools._walk import gather

FILES_AT_ONCE: Final = 4
"""Number of files that are read concurrently."""
BLOCK_CHARACTERS: Final = 64 << 10
"""Number of characters that are searched between two checkpoints."""
MAX_SEARCHED_LINE_CHARS: Final = 256 << 10
"""Length of a line that is searched, in characters."""
MAX_RIPGREP_PATTERN_CHARS: Final = 16 << 10
"""Length of the longest pattern that is passed to ripgrep, in characters."""
RIPGREP_OUTPUT_BYTES: Final = 32 << 20
"""Size of ripgrep's output that is read, in bytes."""
XARGS_NOTHING_FOUND: Final = 123
"""The exit code of xargs when ripgrep found no match."""
READ_ANYWAY: Final = r"[\x00\p{Cn}]"
"""Files that are read whatever ripgrep finds: binary ones, and those with characters newer than its tables."""
UTF16: Final = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_NOT_UTF8: Final = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class Match:
    """One matching line, with the lines around it."""

    path: str
    line: int
    text: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Text:
    """A file's text as it is shown, and as it is searched: without line ends but LF, and without what is not text."""

    shown: str
    searched: str


class Search:
    """Collects the first `most` matching lines of files, in the order of the files."""

    def __init__(self, sandbox: Sandbox, regex: Regex, *, most: int, context: int = 0) -> None:
        self.matches: list[Match] = []
        self.binary: list[str] = []
        self.unreadable: list[str] = []
        """Files that were not searched, because they have a NUL or could not be read."""
        self.last: str | None = None
        """The file at which the search stopped, because enough lines matched."""
        self.shortened = 0
        """Number of lines of which only the beginning was searched."""
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
                if data is None:
                    self.unreadable.append(path)
                elif (text := as_text(data)) is None:
                    self.binary.append(path)
                else:
                    await self._search_text(path, text)
                if len(self.matches) >= self._most:
                    self.last = path
                    return

    async def _read(self, path: str) -> bytes | None:
        try:
            return await self._sandbox.read_bytes(path)
        except OSError:
            return None  # it may not be read, or was removed meanwhile

    async def _search_text(self, path: str, text: Text) -> None:
        numbers: list[int] = []
        first = 0
        for block in _blocks(text.searched):
            if len(text.searched) > BLOCK_CHARACTERS:
                await checkpoint()
            if len(block) > 2 * BLOCK_CHARACTERS or self._regex.may_match(block):  # one long line is tried once
                numbers += [first + offset for offset in self._matching_lines(block)]
            if len(self.matches) + len(numbers) >= self._most:
                break
            first += block.count("\n")
        if numbers:
            lines = _lines(text.shown)
            self.matches += [self._match(path, lines, at) for at in numbers[: self._most - len(self.matches)]]

    def _matching_lines(self, block: str) -> Iterator[int]:
        for offset, line in enumerate(_lines(block)):
            if len(line) > MAX_SEARCHED_LINE_CHARS:
                self.shortened += 1
                line = line[:MAX_SEARCHED_LINE_CHARS]  # noqa: PLW2901 - `shortened` counts what is left out
            if self._regex.matches(line):
                yield offset

    def _match(self, path: str, lines: list[str], at: int) -> Match:
        around = self._context
        before, after = lines[max(0, at - around) : at], lines[at + 1 : at + 1 + around]
        return Match(path, at + 1, lines[at], tuple(before), tuple(after))


def as_text(data: bytes) -> Text | None:
    """The text of a file, which may be UTF-16 if it begins with a byte order mark; None if it has a NUL."""
    encoding = UTF16.get(data[:2])
    if encoding is not None:
        shown = marked = data[2:].decode(encoding, "replace")
    else:
        data = data.removeprefix(codecs.BOM_UTF8)
        shown = marked = data.decode("utf-8", "replace")
        if "\ufffd" in shown:
            marked = _NOT_UTF8.sub(NEVER_MATCHED, data.decode("utf-8", "surrogateescape"))
    if "\0" in shown:
        return None
    if "\r" not in shown:
        return Text(shown, marked)
    if shown.endswith("\r"):  # it ends a last line
        marked += "\n"
    return Text(shown, marked.replace("\r\n", "\n"))


async def files_worth_reading(sandbox: Sandbox, regex: Regex, paths: list[str]) -> list[str]:
    """The files that match or are binary, by ripgrep, in the given order; all of them if ripgrep cannot tell."""
    argv = ["xargs", "-0", "rg", "--no-config", "--no-mmap", "--text", "--threads", "1"]
    argv += ["--files-with-matches", "--null", "--regexp", READ_ANYWAY, "--regexp", regex.with_returns, "--"]
    names = b"\0".join(path.encode("utf-8", "surrogateescape") for path in paths)
    if not names or len(regex.with_returns) > MAX_RIPGREP_PATTERN_CHARS or "\0" in regex.with_returns:
        return paths
    done = await sandbox.run(argv, cwd="/", stdin=names, max_output=RIPGREP_OUTPUT_BYTES)
    incomplete = done.stderr_size or done.ended_by != "exit" or done.spool.discarded()
    if done.exit_code not in (0, XARGS_NOTHING_FOUND) or incomplete:
        return paths  # ripgrep cannot read the pattern or a file, or was stopped
    listed = set(done.spool.read().decode("utf-8", "surrogateescape").split("\0"))
    return [path for path in paths if path in listed]


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
