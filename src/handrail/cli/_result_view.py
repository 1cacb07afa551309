"""Draw a result by its kind: a difference, a command, a listing, matches, a text, a failure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from handrail.lazy import Lazy
from handrail.policy.approval import visible

if TYPE_CHECKING:
    from rich import markdown as _markdown
else:
    _markdown = Lazy("rich.markdown")  # it loads a parser, which a call by hand seldom needs

MAX_LINES_COUNT: Final = 20
"""Lines shown of a difference, a listing, matches or a text; the rest is counted."""
MAX_OUTPUT_LINES_COUNT: Final = 8
"""Lines shown of a command's output, the last ones: errors and totals stand at the end."""
MAX_MESSAGE_LINES_COUNT: Final = 6
"""Lines shown of a failure's message."""
MAX_LINE_CHARS: Final = 400
"""Characters shown of a line that no terminal cuts."""
MAX_TEXT_CHARS: Final = 2_000
"""Characters shown of a text in markdown, whose lines may be long."""
MARKDOWN: Final = (".md", ".markdown")
DIFFERENCE_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
TODO_SIGNS: Final = {"done": "✓", "completed": "✓", "in_progress": "▸"}


@dataclass(slots=True)
class Indented:
    """Lines behind a margin. A terminal gets each cut at its width, or broken there; a file gets whole lines."""

    lines: Sequence[Text]
    columns: int
    cut: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(1, options.max_width - self.columns)
        for line in self.lines:
            line.expand_tabs(4)
            if console.soft_wrap:
                yield Text(" " * self.columns) + line
            elif self.cut:
                line.truncate(room, overflow="ellipsis")
                yield Text(" " * self.columns) + line
            else:
                yield Padding(line, (0, 0, 0, self.columns), expand=False)


@dataclass(slots=True)
class _Document:
    """Markdown behind a margin; a file gets the text as it stands, because rich would cut its lines."""

    text: str
    columns: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if console.soft_wrap:
            yield Indented([Text(line) for line in self.text.split("\n")], self.columns)
        else:
            yield Padding(_markdown.Markdown(self.text, hyperlinks=False), (0, 0, 0, self.columns))


@dataclass(frozen=True, slots=True)
class View:
    """The part of a result that is shown, and how many lines of the result are not."""

    lines: Sequence[Text] = ()
    markdown: str = ""
    hidden: int = 0
    at_end: bool = False
    """Whether the last lines are shown, so that the hidden ones come before them."""
    whole: bool = False
    """Whether a long line is broken, not cut: the end of a message says what to do."""

    def drawn(self, columns: int, *, full: bool) -> Iterable[RenderableType]:
        """Its parts, behind a margin of so many columns."""
        if self.markdown:
            yield _Document(self.markdown, columns)
        if self.lines:
            yield Indented(self.lines, columns, cut=not (full or self.whole))


def view_of(envelope: Mapping[str, Any], *, full: bool = False, streamed: bool = False) -> View:
    """The view of a result envelope; `streamed` leaves out output that was shown while it came."""
    if envelope.get("ok") is False:
        return _failure(envelope, full, streamed)
    value = envelope.get("result")
    if isinstance(value, str):
        return _text(value, full, markdown=True)
    if not isinstance(value, Mapping):
        return View() if value is None else _lines([_json(value)], full)
    if isinstance(value.get("diff"), str):
        return _difference(value["diff"], full)
    if "exit_code" in value and "stdout" in value:
        return _output(value, full, streamed)
    if value.get("background") is True:
        return View()  # a note says that the job runs
    return _listing(value, full) or _told(value, full)


def for_people(failure: Mapping[str, Any]) -> str:
    """A failure as people read it: the reason alone where there is one; the message advises the model."""
    data = failure.get("data")
    reason = data.get("reason") if isinstance(data, Mapping) else None
    return reason if isinstance(reason, str) else str(failure.get("message", ""))


def job_line(state: Mapping[str, Any]) -> str:
    """A job in one line, from its entry in `process(action="list")`."""
    how = "runs" if state["running"] else f"ended, exit {state['exit_code']}"
    command = state["command"] if isinstance(state["command"], str) else " ".join(state["command"])
    return f"{state['job']}  {how}  {' '.join(command.split())}"


def _failure(envelope: Mapping[str, Any], full: bool, streamed: bool) -> View:
    lines = [Text(line, style="red") for line in _split(for_people(envelope))]
    shown = lines if full else lines[:MAX_MESSAGE_LINES_COUNT]
    data = envelope.get("data")
    printed = _output(data, full, streamed) if isinstance(data, Mapping) and "stdout" in data else View()
    return View([*shown, *printed.lines], hidden=len(lines) - len(shown) + printed.hidden, whole=True)


def _difference(diff: str, full: bool) -> View:
    lines = _split(diff)
    lines = lines[2:] if lines[:1] and lines[0].startswith("---") else lines  # the path is in the call's own line
    return _lines(lines, full, DIFFERENCE_STYLES)


def _output(value: Mapping[str, Any], full: bool, streamed: bool) -> View:
    """The last lines that a command printed, and the value of a program that has one."""
    streams = () if streamed else (str(value.get(name) or "") for name in ("stdout", "stderr"))
    # a lone return ends a line too, as in progress bars
    printed = [line for text in streams for line in _split(text.replace("\r\n", "\n").replace("\r", "\n"))]
    text = value.get("text")
    if isinstance(text, str) and text and text != value.get("stdout"):
        printed += _split(text)
    shown = printed if full else [_short(line) for line in printed[-MAX_OUTPUT_LINES_COUNT:]]
    return View([Text(line, style="dim") for line in shown], hidden=len(printed) - len(shown), at_end=True)


def _listing(value: Mapping[str, Any], full: bool) -> View | None:
    """Entries of a directory and paths as a tree; matches, jobs and tasks a line each; None for anything else."""
    match value:
        case {"kind": "listing", "entries": list(entries)}:
            return _lines(
                tree([f"{each['name']}{'/' if each.get('type') == 'directory' else ''}" for each in entries]), full
            )
        case {"kind": "paths", "paths": list(paths)}:
            return _lines(tree(paths), full)
        case {"kind": "matches", "matches": list(matches)}:
            return _lines([f"{each['path']}:{each['line']}: {each['text']}" for each in matches], full)
        case {"jobs": list(jobs)}:
            return _lines([job_line(each) for each in jobs] or ["no jobs"], full)
        case {"items": list(items)} if all(isinstance(each, Mapping) and "content" in each for each in items):
            return _lines([f"{TODO_SIGNS.get(str(it.get('status')), '·')} {it['content']}" for it in items], full)
    return None


def _told(value: Mapping[str, Any], full: bool) -> View:
    """A text, the state of a job, or the JSON of any other value."""
    for key in ("text", "answer"):
        if isinstance(value.get(key), str):
            path = str(value.get("path", ""))
            return _text(value[key], full, markdown=not path or path.lower().endswith(MARKDOWN))
    if {"job", "running", "command", "exit_code"} <= value.keys():
        return _lines([job_line(value)], full)
    return _lines([_json(value)], full)


def _text(text: str, full: bool, *, markdown: bool) -> View:
    if not markdown:
        return _lines(_split(text), full)
    whole = visible(text.replace("\r\n", "\n").rstrip("\n"))
    shown = whole if full else "\n".join(whole[:MAX_TEXT_CHARS].split("\n")[:MAX_LINES_COUNT])
    rest = whole[len(shown) :].removeprefix("\n")
    return View(markdown=shown, hidden=rest.count("\n") + 1 if rest else 0)


def _lines(lines: Sequence[str], full: bool, styles: Mapping[str, str] | None = None) -> View:
    shown = lines if full else [_short(line) for line in lines[:MAX_LINES_COUNT]]
    drawn = [Text(visible(line), style=(styles or {}).get(line[:1], "dim" if styles is None else "")) for line in shown]
    return View(drawn, hidden=len(lines) - len(shown))


def _short(line: str) -> str:
    """A line that fits a file too, where nothing is cut at a width."""
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}…"


def tree(paths: Sequence[str]) -> list[str]:
    """Paths as a tree: each directory once, with what is below it behind a branch."""
    root: dict[str, Any] = {}
    for path in paths:
        below = root
        for part in path.rstrip("/").split("/")[:-1]:
            below = below.setdefault(f"{part}/", {})
        below.setdefault(path.rstrip("/").rpartition("/")[2] + ("/" if path.endswith("/") else ""), {})
    return list(_branches(root, ""))


def _branches(below: Mapping[str, Any], margin: str) -> Iterable[str]:
    for number, (name, inner) in enumerate(below.items(), 1):
        last = number == len(below)
        yield f"{margin}{'└' if last else '├'} {name}"
        yield from _branches(inner, f"{margin}{' ' if last else '│'} ")


def _split(text: str) -> list[str]:
    """The lines of a text, each with visible characters alone; a line may end with a return and a line feed."""
    plain = text.replace("\r\n", "\n").strip("\n")
    return [visible(line) for line in plain.split("\n")] if plain else []


def _json(value: Any) -> str:
    return visible(json.dumps(value, ensure_ascii=False, default=str), lines=False)
