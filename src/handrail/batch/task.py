"""A Task, and what came of one: Done, or Lost where neither the task nor the model is to blame."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from handrail.contract.errors import HandrailError
from handrail.contract.model import Usage
from handrail.misuse import close_names, expect, expect_number, explains_misuse, refuse, shown

MAX_LINE_BYTES: Final = 16 << 20
"""Bytes of one line of a file of tasks; larger inputs belong into an archive."""
MAX_TASK_ID_CHARS: Final = 100
"""Characters of a task's id."""
LOST: Final = "lost"
"""The reason of a result that has no outcome: every try was lost."""
SANDBOX_ENDED: Final = "sandbox_ended"
"""The reason of a result whose sandbox ended under it twice."""
LostKind = Literal["", "model", "machine", "setup", "sandbox_ended", "configuration"]
"""Cause of a loss. `model` and `machine` slow every slot; `configuration` stops the batch."""


@explains_misuse
@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work for an agent in a fresh sandbox, with the command that checks what it did.

    Example: `Task("sum", "Write sum.py.", check="python3 test_sum.py", check_files={"test_sum.py": "…"})`.
    """

    id: str
    prompt: str
    files: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Texts by path in the workspace, written before the agent begins."""
    archive: str | None = field(default=None, kw_only=True)
    """Path of a tar on this machine; its content is unpacked into the workspace, inside the sandbox."""
    setup: str | None = field(default=None, kw_only=True)
    """Shell line that runs before the agent begins."""
    check: str | None = field(default=None, kw_only=True)
    """Shell line that decides the reward when the agent has ended."""
    check_files: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Texts by path that are written when the agent has ended, so that it cannot see them."""
    check_timeout: float = field(default=300, kw_only=True)
    """Seconds for the check."""
    system: str = field(default="", kw_only=True)
    model: str | None = field(default=None, kw_only=True)
    """Name of the model for this task alone."""
    meta: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """Anything of the author's; the agent does not see it, and the event `scored` repeats it."""

    def __post_init__(self) -> None:
        _check_id(self.id)
        expect("Task.prompt", self.prompt, str, "a text")
        if not self.prompt.strip():
            refuse("Task.prompt", self.prompt, "what the agent should do")
        for name in ("archive", "setup", "check", "model"):
            if (value := getattr(self, name)) is not None:
                expect(f"Task.{name}", value, str, "a text, or leave it out")
        expect("Task.system", self.system, str, "a text, or leave it out")
        expect("Task.meta", self.meta, Mapping, "an object, or leave it out")
        for name in ("files", "check_files"):
            _check_files(f"Task.{name}", getattr(self, name))
        seconds = "a number of seconds above 0"
        if self.check_timeout is None:
            refuse("Task.check_timeout", self.check_timeout, seconds)
        expect_number("Task.check_timeout", self.check_timeout, seconds, least=0, above=True, whole=False)

    def to_json(self) -> str:
        """The task as a line of a file of tasks, the same for equal tasks."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), default=str)


@dataclass(frozen=True, slots=True)
class Done:
    """The result of one sample of a task: a line of results.jsonl."""

    id: str
    sample: int
    tries: int
    """How often the sample was begun, the last time included."""
    reason: str
    """The reason for which the run ended; `lost` after as many losses as are allowed."""
    text: str
    reward: float | None
    """None unless the check gave one."""
    check: Mapping[str, Any] | None
    """The check's exit_code (None if it did not start or was ended) and the end of its output; None without a check."""
    usage: Usage
    calls: int
    seconds: float
    session: str
    """Id of the session in the store."""
    node: str
    """Name of the machine that did the work."""
    errors: tuple[str, ...] = ()
    """Why earlier tries were lost, and what was wrong with the check."""

    @property
    def key(self) -> tuple[str, int]:
        """The id and the number of the sample."""
        return self.id, self.sample

    def to_json(self) -> str:
        """The line of results.jsonl, without its end."""
        data = {each.name: getattr(self, each.name) for each in fields(self)}
        data |= {"usage": self.usage.as_data(), "errors": list(self.errors)}
        return json.dumps(data, separators=(",", ":"), default=str, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Done":
        """Read what `to_json` wrote. Raises ValueError for anything else."""
        try:
            data = json.loads(text)
            made = cls(**{**data, "usage": Usage(**data["usage"]), "errors": tuple(data["errors"])})
            _check_done(made)
        except (TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"it is not a result: {error}") from error
        return made


class Lost(Exception):
    """A task came to no outcome, by neither the task's fault nor the model's; it may be tried again.

    `retry_after` is the number of seconds that a provider asks to wait. `done` is the result to record if the same
    happens again, where the model may have caused it.
    """

    def __init__(
        self, why: str, *, kind: LostKind = "", retry_after: float | None = None, done: Done | None = None
    ) -> None:
        super().__init__(why)
        self.why = why
        self.kind = kind
        self.retry_after = retry_after
        self.done = done


def read_tasks(path: Path) -> list[Task]:
    """The tasks of a JSONL file. Raises HandrailError that names the first wrong line, OSError if there is no file."""
    tasks: dict[str, Task] = {}
    lines: dict[str, int] = {}
    with path.open("rb") as file:
        for number, line in _lines(path, file):
            try:
                task = _task(line, path.parent)
            except (HandrailError, TypeError, ValueError, RecursionError) as error:
                raise HandrailError(f"{path}, line {number}: {error}") from None
            if task.id in tasks:
                raise HandrailError(f"{path}, line {number}: the id {task.id!r} is taken by line {lines[task.id]}")
            tasks[task.id], lines[task.id] = task, number
    if not tasks:
        raise HandrailError(f"{path} has no tasks; each line is an object with an id and a prompt")
    return list(tasks.values())


def _lines(path: Path, file: Any) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, each with its number."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            most = f"{MAX_LINE_BYTES >> 20} MiB"
            raise HandrailError(f"{path}, line {number} is longer than {most}; put large files into an archive")
        if line.strip():
            yield number, line


def _task(line: bytes, beside: Path) -> Task:
    try:
        given = json.loads(line.decode("utf-8-sig"))
    except ValueError as error:
        raise HandrailError(f"it is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise HandrailError(f"it is {shown(given)}; write an object with an id and a prompt")
    known = [each.name for each in fields(Task)]
    for name in given:
        if name not in known:
            near = close_names(name, known)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise HandrailError(f"{name!r} is not a key of a task; {hint} What is your own goes into meta")
    for name in ("id", "prompt"):
        if name not in given:
            raise HandrailError(f"it has no {name}")
    if isinstance(archive := given.get("archive"), str):
        _check_path("Task.archive", archive)
        given["archive"] = str((beside / archive).absolute())
    return Task(**given)


def _check_id(id: object) -> None:
    write = f"1 to {MAX_TASK_ID_CHARS} characters that can be a file's name, without / and not beginning with . or -"
    expect("Task.id", id, str, write)
    text = str(id)
    if not 0 < len(text) <= MAX_TASK_ID_CHARS or not text.isprintable() or "/" in text or text[0] in ".- ":
        refuse("Task.id", id, write)


def _check_files(name: str, files: object) -> None:
    expect(name, files, Mapping, 'an object such as {"src/a.py": "text"}')
    if isinstance(files, Mapping):
        for path, text in files.items():
            _check_path(f"a path of {name}", path)
            expect(f"{name}[{path!r}]", text, str, "the text of the file")


def _check_path(name: str, path: object) -> None:
    write = "a path below the workspace, without `..`" if "files" in name else "a path beside the tasks, without `..`"
    expect(name, path, str, write)
    parts = PurePosixPath(str(path))
    if not parts.parts or parts.is_absolute() or ".." in parts.parts or "\0" in str(path):
        refuse(name, path, write)


def _check_done(done: Done) -> None:
    """Raise ValueError for a result that this version did not write."""
    kinds: dict[str, Any] = {"id": str, "sample": int, "tries": int, "reason": str, "text": str, "session": str}
    for name, kind in kinds.items():
        if not isinstance(getattr(done, name), kind):
            raise ValueError(f"its {name} is {shown(getattr(done, name))}")
    numbers = isinstance(done.reward, int | float | None) and not isinstance(done.reward, bool)
    if not numbers or (done.reward is not None and not isfinite(done.reward)):
        raise ValueError(f"its reward is {shown(done.reward)}")
    if done.reason == LOST and done.reward is not None:
        raise ValueError("it is lost and has a reward; an outcome that nobody knows has none")
