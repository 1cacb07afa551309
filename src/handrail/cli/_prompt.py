"""The prompt of `handrail shell`: lines with history and completion, from a person at a terminal."""

import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.output.vt100 import Vt100_Output

from handrail.cli._argument_syntax import choices_of, command_field, described, fields_of, lone_text
from handrail.cli._state_file import NoHome, state_directory
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import Toolbox

PROMPT: Final = "handrail> "
BUILT_IN: Final = ("exit", "help", "jobs", "quit", "tail")
"""Words that the shell itself understands, besides tools."""
MAX_HISTORY_BYTES: Final = 1 << 20
"""Bytes from which on the older half of the history is dropped."""
Names = Callable[[], list[str]]


async def typed_lines(tools: Toolbox, jobs: Names, before: Callable[[], None]) -> AsyncIterator[str]:
    """The lines that a person types, until Ctrl-D. Ctrl-C drops the line. `before` is called before each prompt."""
    # the terminal is not asked where its cursor is, because a slow one would answer into the next line
    output = Vt100_Output(sys.stderr, lambda: terminal_size(sys.stderr), term=os.environ.get("TERM"), enable_cpr=False)
    session: PromptSession[str] = PromptSession(
        history=open_history(), completer=LineCompleter(tools, jobs), complete_while_typing=False, output=output
    )
    while True:
        before()
        try:
            line = await session.prompt_async(PROMPT)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        yield line


def terminal_size(stream: TextIO) -> Size:
    """The size of the terminal that the stream writes to, now."""
    found = os.get_terminal_size(stream.fileno())
    return Size(rows=found.lines or 24, columns=found.columns or 80)


class LineCompleter(Completer):
    """Completes tools, then their fields, then the values that a field takes."""

    def __init__(self, tools: Toolbox, jobs: Names) -> None:
        self._tools = tools
        self._jobs = jobs

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor.lstrip()
        *words, last = before.split(" ")
        for text, about in self._candidates([word for word in words if word], last):
            if text.startswith(last) and text != last:
                shown = text.rpartition("=")[2] or text
                yield Completion(text, start_position=-len(last), display=shown, display_meta=about)

    def _candidates(self, words: list[str], last: str) -> Iterator[tuple[str, str]]:
        """The words that may stand in place of `last`, and the meaning of each."""
        if not words:
            yield from ((tool.name, tool.description.splitlines()[0]) for tool in self._tools)
            yield from ((word, "") for word in BUILT_IN)
        elif words == ["help"]:
            yield from ((tool.name, "") for tool in self._tools)
        elif words == ["tail"]:
            yield from ((job, "") for job in self._jobs())
        elif (tool := self._tools.get(words[0])) is not None:
            yield from self._of_tool(tool, words[1:], last)

    def _of_tool(self, tool: Tool, words: list[str], last: str) -> Iterator[tuple[str, str]]:
        fields, main = fields_of(tool), lone_text(tool)
        used = {word.partition("=")[0] for word in words if "=" in word}
        if command_field(tool) is not None and not all(word.partition("=")[0] in fields for word in words):
            return  # inside the command itself
        name, equals, value = last.partition("=")
        if equals and name in fields:
            yield from ((f"{name}={choice}", "") for choice in self._values(tool, name, value))
            return
        if main is not None and main not in used:
            yield from ((choice, "") for choice in choices_of(tool, main))
        for field in fields:
            if field not in used:
                yield f"{field}=", str(described(tool, field).get("description", "")).split("\n")[0]

    def _values(self, tool: Tool, field: str, typed: str) -> list[str]:
        if typed.startswith("@"):
            return [f"@{path}" for path in files_beginning(typed[1:])]
        return self._jobs() if field == "job" else choices_of(tool, field)


def files_beginning(typed: str, at: str = ".") -> list[str]:
    """The files of this machine whose paths begin so; relative ones are in `at`.

    One with characters that a line would split is left out.
    """
    directory, _, name = typed.rpartition("/")
    where = Path(at, os.path.expanduser(directory or ("/" if typed.startswith("/") else ".")))
    head = f"{directory}/" if "/" in typed else ""
    try:
        entries = sorted(where.iterdir())
    except OSError:
        return []
    names = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries if entry.name.startswith(name)]
    return [f"{head}{each}" for each in names if each.isprintable() and not set(each) & set(" '\"\\")]


class _KeptHistory(FileHistory):
    """A history in a file, as far as the file can be written. A line that begins with a space is not kept."""

    def append_string(self, string: str) -> None:
        if not string.startswith(" "):
            super().append_string(string)

    def store_string(self, string: str) -> None:
        try:
            super().store_string(string)
        except OSError:
            return


def open_history(name: str = "history") -> History:
    """The history of earlier times, in a file that only this user can read; where there can be none, of this one."""
    try:
        path = state_directory() / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return InMemoryHistory()
            os.fchmod(descriptor, 0o600)
            _shorten(descriptor)
        finally:
            os.close(descriptor)
    except (OSError, NoHome):  # a home that is read-only, or none at all
        return InMemoryHistory()
    return _KeptHistory(str(path))


def _shorten(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    if size > MAX_HISTORY_BYTES:
        kept = os.pread(descriptor, MAX_HISTORY_BYTES // 2, size - MAX_HISTORY_BYTES // 2)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, kept[max(0, kept.find(b"\n# ")) :])
