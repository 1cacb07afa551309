"""Tell a person what happens in a session: the model's answer block by block, each call, and what it did."""

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from handrail.cli._console import as_json, duration
from handrail.cli._result_view import Indented, view_of
from handrail.contract.event import Event
from handrail.contract.model import Usage
from handrail.lazy import Lazy
from handrail.policy.approval import visible

if TYPE_CHECKING:
    from rich import markdown as _markdown
else:
    _markdown = Lazy("rich.markdown")  # it loads a parser, which a call by hand seldom needs

TITLES: Final = ("command", "path", "pattern", "prompt", "question", "job", "ref", "summary", "code")
"""The fields that tell best what a call is about, the best first."""
MAX_TITLE_CHARS: Final = 300
TAIL: Final = 5
"""Lines of a running command's output that are shown live."""
SIGNS: Final = {"ok": ("✓", "green"), "exited": ("✗", "yellow"), "failed": ("✗", "red")}
"""The sign of a call that went well, of a command that exited with another code than 0, and of a failed call."""
MIN_TITLE_COLUMNS: Final = 8
"""Columns that a call's title has at least, in a terminal that is too narrow for all facts behind it."""
MAX_KEPT_COUNT: Final = 200
"""Ended calls whose results can be opened again."""
Print = Callable[[RenderableType], None]


@dataclass(slots=True)
class RunningCall:
    """A call that has no end yet."""

    tool: str
    title: str
    began: float
    depth: int
    state: str = ""
    announced: bool = False
    """Whether its line was printed before its end, because calls inside it came first."""
    tail: deque[str] = field(default_factory=lambda: deque([""], maxlen=TAIL + 1))


@dataclass(slots=True)
class _CallLine:
    """The line of a call. A terminal cuts the title, so that the facts behind it stay; a file gets all of it."""

    sign: Text
    title: str
    facts: str
    columns: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line, facts = Text(" " * self.columns) + self.sign, Text(self.facts, style="dim")
        title = Text(f" {self.title}" if self.title not in ("", "{}") else "")
        if not console.soft_wrap:
            room = options.max_width - line.cell_len - facts.cell_len
            title.truncate(max(MIN_TITLE_COLUMNS, room), overflow="ellipsis")
        line = line + title + facts
        if not console.soft_wrap:
            line.truncate(options.max_width, overflow="ellipsis")
        yield line


class EventPrinter:
    """Prints events as they come. What is not final yet, it tells on request: `answer`, `doing` and `running`."""

    def __init__(
        self,
        calls: Print,
        answers: Print | None = None,
        *,
        full: bool = False,
        rest: Callable[[int], str] = lambda _: "--full shows all",
        by_hand: Print | None = None,
    ) -> None:
        """Print lines about calls with `calls`, and the model's answers with `answers`.

        `rest` says how to open the result of the call of this number, where lines of it are left out. `by_hand`
        prints the results of calls that the person typed and whose output was shown meanwhile: before their line.
        """
        self._calls, self._answers = calls, answers or calls
        self._full, self._rest, self._by_hand = full, rest, by_hand
        self._ended: dict[int, tuple[str, Mapping[str, Any]]] = {}
        """The last calls that have ended, by number: the id, and the envelope."""
        self._count = 0
        self.envelopes = False
        """Whether the envelope of each result is printed too."""
        self.running: dict[str, RunningCall] = {}
        self.answer = ""
        """The block of the answer that is not complete."""
        self.doing = ""
        """The model's activity now."""
        self.usage = Usage()
        self._streamed = False
        """Whether pieces of the answer came before it; of some models it comes whole."""

    def see(self, event: Event) -> None:
        """Print what a person should know of the event; much of it prints nothing."""
        if event.parent is not None and event.type in OF_THE_MODEL:
            if event.type == "model_answered":
                self.usage += Usage(**event.data["usage"])
            return  # a task's own words; its caller gets its answer as a result
        if (tell := getattr(self, f"_{event.type}", None)) is not None:
            tell(event)

    def _session_resumed(self, event: Event) -> None:
        self.running.clear()
        self._note("resumed; what was open when it ended was not run again")

    def _user(self, event: Event) -> None:
        self._calls(Text(""))
        for line in visible(event.data["text"]).splitlines() or [""]:
            self._calls(Text(f"> {line}", style="bold"))

    def _model_asked(self, event: Event) -> None:
        self.doing = "asking the model"
        self._streamed = False

    def _thinking(self, event: Event) -> None:
        self.doing = "the model thinks"

    def _call_text(self, event: Event) -> None:
        self.doing = f"the model writes a call of {visible(str(event.data['name']), lines=False)}"

    def _text(self, event: Event) -> None:
        self.doing = "the model writes"
        self._streamed = True
        whole, self.answer = whole_blocks(self.answer + event.data["text"])
        self._print_answer(whole)

    def _retried(self, event: Event) -> None:
        self.answer, self._streamed = "", False
        void = "; what it wrote is void" if event.data["taken_back"] else ""
        self._note(f"the model is asked again in {event.data['wait']:.1f} s{void}: {event.data['why']}", "yellow")

    def _model_answered(self, event: Event) -> None:
        self._print_answer(self.answer if self._streamed else event.data["text"])
        self.answer = self.doing = ""
        self.usage += Usage(**event.data["usage"])

    def _print_answer(self, text: str) -> None:
        if text.strip():
            self._answers(Group(Text(""), _markdown.Markdown(visible(text), hyperlinks=False)))

    def _call_started(self, event: Event) -> None:
        depth = 0
        if event.parent is not None and (parent := self._parent(event.parent)) is not None:
            self._announce(parent)
            depth = parent.depth + 1
        tool = visible(str(event.data["tool"]), lines=False)
        self.running[event.call_id or ""] = RunningCall(tool, title(event.data["arguments"]), event.time, depth)

    def _parent(self, id: str) -> RunningCall | None:
        """The call that made this one, itself or by a task (CALL/N)."""
        return self.running.get(id) or self.running.get(id.rpartition("/")[0])

    def _announce(self, call: RunningCall) -> None:
        if not call.announced:
            call.announced = True
            self._calls(
                _CallLine(Text.assemble(("▸ ", "cyan"), (call.tool, "bold")), call.title, "", 2 + 2 * call.depth)
            )

    def _call_repaired(self, event: Event) -> None:
        if call := self.running.get(event.call_id or ""):
            for each in event.data["repairs"]:
                where = each.get("path") or "the arguments"
                self._line(Text(f"repaired {visible(str(where), lines=False)}: {_change(each)}", "dim"), call.depth + 1)

    def _call_waiting(self, event: Event) -> None:
        self._set_state(event, "waits for its turn")

    def _call_running(self, event: Event) -> None:
        self._set_state(event, "")

    def _approval_asked(self, event: Event) -> None:
        self._set_state(event, "waits for an approval")

    def _approval_settled(self, event: Event) -> None:
        self._set_state(event, "")
        if event.data["decision"] not in ("approve", "cancelled"):
            call = self.running.get(event.call_id or "")
            rule = f": {event.data['rule']}" if event.data.get("rule") else ""
            said = visible(f"approval: {event.data['decision']}{rule}", lines=False)
            self._line(Text(said, "dim"), call.depth + 1 if call else 0)

    def _set_state(self, event: Event, state: str) -> None:
        if call := self.running.get(event.call_id or ""):
            call.state = state

    def _call_output(self, event: Event) -> None:
        if call := self.running.get(event.call_id or ""):
            first, *rest = visible(event.data["text"].replace("\r\n", "\n").replace("\r", "\n")).split("\n")
            call.tail[-1] += first
            call.tail.extend(rest)

    def _call_ended(self, event: Event) -> None:
        call = self.running.pop(event.call_id or "", None) or RunningCall(event.data["tool"], "", event.time, 0)
        envelope = event.data.get("result") or {}
        self._count += 1
        self._ended[self._count] = event.call_id or "", envelope
        self._ended.pop(self._count - MAX_KEPT_COUNT, None)
        code = _exit_code(envelope)
        sign, style = SIGNS["failed" if event.data["status"] != "ok" else "exited" if code else "ok"]
        exited = [] if code is None else [f"exit {code}"]
        facts = [*filter(None, [event.data.get("kind")]), *exited, duration(event.data["duration_ms"])]
        line = Text.assemble((f"{sign} ", style), (call.tool, "bold"))
        title = "" if self._by_hand else call.title
        ended = _CallLine(line, title, f" · {' · '.join(map(str, facts))}", 0 if self._by_hand else 2 + 2 * call.depth)
        if self._by_hand and envelope.get("ok"):
            self._print_result(envelope, 0, self._full)
            self._calls(ended)
        else:
            self._calls(ended)
            asked_for = event.data["origin"] == "user"  # a command that the person typed themselves
            self._print_result(envelope, 2 if self._by_hand else 4 + 2 * call.depth, self._full or asked_for)
        for warning in envelope.get("warnings", ()):
            self._line(Text(f"! {visible(warning)}", style="yellow"), call.depth + 1)
        if self.envelopes:
            self._calls(Text(as_json(envelope)))

    def _print_result(self, envelope: Mapping[str, Any], columns: int, full: bool) -> None:
        """Print the result of the last call, and how to open what is left out."""
        view = view_of(envelope, full=full, streamed=self._by_hand is not None)
        show = self._by_hand or self._calls
        rest = f"… {view.hidden:,} {'earlier' if view.at_end else 'more'} lines · {self._rest(self._count)}"
        hidden = [Indented([Text(rest, style="dim italic")], columns)] if view.hidden else []
        drawn = list(view.drawn(columns, full=full))
        for part in (*hidden, *drawn) if view.at_end else (*drawn, *hidden):
            show(part)

    def open(self, wanted: str) -> bool:
        """Print the whole result of a call, by its number or its id. Returns False if there is no such call."""
        for number, (id, envelope) in reversed(self._ended.items()):
            if wanted in (str(number), id):
                parts = list(view_of(envelope, full=True).drawn(2, full=True))
                for part in parts or [Text("  (no result)", style="dim")]:
                    self._calls(part)
                return True
        return False

    def _job_started(self, event: Event) -> None:
        self._note(f"{event.data['job']} runs in the background")

    def _job_ended(self, event: Event) -> None:
        how = event.data.get("error") or f"exit {event.data['exit_code']}"
        self._note(f"{event.data['job']} has ended: {how}")

    def _collapsed(self, event: Event) -> None:
        self._note(f"{len(event.data['results'])} old results gave way, because the context is nearly full")

    def _summarised(self, event: Event) -> None:
        self._note(f"the oldest {event.data['messages']} messages gave way to a summary")

    def _warning(self, event: Event) -> None:
        self._note(f"! {event.data['message']}", "yellow")

    def _run_ended(self, event: Event) -> None:
        self._print_answer(self.answer)
        self.answer = self.doing = ""
        reason, text = event.data["reason"], event.data["text"]
        if reason == "asked_user":
            self._print_answer(text)
        elif reason != "done":
            told = f": {_one_line(text)}" if reason in ("model_error", "round_limit", "budget") and text else ""
            self._note(f"The run ended: {reason}{told}", "red")

    def _note(self, text: str, style: str = "dim") -> None:
        self._line(Text(_one_line(text), style=style), 0)

    def _line(self, text: Text, depth: int) -> None:
        self._calls(Indented([text], 2 + 2 * depth, cut=False))


OF_THE_MODEL: Final = frozenset(
    {"user", "steered", "model_asked", "text", "thinking", "call_text", "retried", "model_answered", "run_ended"}
)


def whole_blocks(text: str) -> tuple[str, str]:
    """The part of a text that is complete as markdown, up to an empty line outside of code, and the rest."""
    end = place = 0
    fence = ""
    for line in text.splitlines(keepends=True):
        place += len(line)
        mark = line.strip()[:3]
        if mark in ("```", "~~~"):
            fence = "" if mark == fence else fence or mark
        elif not line.strip() and line.endswith("\n") and not fence:
            end = place
    return text[:end], text[end:]


def title(arguments: Any) -> str:
    """The subject of a call, in one line."""
    try:
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        given = arguments
    if isinstance(given, Mapping):
        best = next((given[name] for name in TITLES if isinstance(given.get(name), str)), None)
        given = json.dumps(dict(given), ensure_ascii=False, default=str) if best is None else best
    return _one_line(str(given))[:MAX_TITLE_CHARS]


def tokens(usage: Usage) -> str:
    """Tokens and cost of requests, for people."""
    cost = "" if usage.cost is None else f" · ${usage.cost:.4f}"
    if not usage.input_tokens and not usage.output_tokens:
        return f"tokens unknown: the model did not count them{cost}"
    return f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out{cost}"


def _exit_code(envelope: Mapping[str, Any]) -> int | None:
    """The exit code of a command that has ended; None for other results, and for a command that was stopped."""
    result = envelope.get("result")
    code = result.get("exit_code") if isinstance(result, Mapping) and "killed" not in result else None
    return code if isinstance(code, int) else None


def _change(repair: Mapping[str, Any]) -> str:
    before, after = (json.dumps(repair.get(key), ensure_ascii=False, default=str) for key in ("before", "after"))
    return _one_line(f"{before} → {after}")[:MAX_TITLE_CHARS]


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()), lines=False)
