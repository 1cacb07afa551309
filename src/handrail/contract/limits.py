"""Sizes and waits in one place: of sandboxes, runs and answers, and how long anybody waits."""

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Final

from handrail.misuse import expect_number, explains_misuse, refuse

TOOL_TIMEOUT: Final = 120.0
"""Seconds a tool may take, unless it sets its own `timeout`."""
APPROVAL_WAIT: Final = 300.0
"""Seconds a person has to answer a request, unless the approver has its own `.wait`."""
DETACHED_APPROVAL_WAIT: Final = 55.0
"""Seconds for an answer by way of another program, which itself waits for one minute."""
TERMINAL_APPROVAL_WAIT: Final = 3_600.0
"""Seconds for an answer at a terminal; the person may be in an editor."""
BUDGET_GRACE: Final = 5.0
"""Seconds for a command, or other work that ends itself, to report its outcome after the end of its run's time."""
LIMIT_GRACE: Final = 0.5
"""Seconds between TERM and KILL when a limit ends a command."""
USER_GRACE: Final = 3.0
"""Seconds between TERM and KILL when a person or the model ends a command."""
KILL_WAIT: Final = 1.0
"""Seconds a driver has to confirm a KILL; then the call is answered without it."""
SLOW_DRIVER: Final = 2.0
"""Seconds that a driver may add to a command, before or after it, without a warning."""
FILE_WAIT: Final = 120.0
"""Seconds a driver has to answer a file operation; then it is told to stop, and the sandbox is called unavailable."""
JOB_START_WAIT: Final = 30.0
"""Seconds a driver has to start a job."""
CODE_FILE_WAIT: Final = 2.0
"""Seconds to remove the file of a program that `run_code` ran."""
SANDBOX_CLOSE_WAIT: Final = 10.0
"""Seconds a driver has to close."""
CALL_END_WAIT: Final = 5.0
"""Seconds the calls that still run have to end when their session does: TERM, grace, KILL."""
MODEL_SILENCE: Final = 600.0
"""Seconds a model may be silent, before its answer and in it."""
FIRST_RETRY_WAIT: Final = 0.5
"""Seconds before a model is asked a second time; each further wait is twice as long."""
MAX_RETRY_AFTER_SECONDS: Final = 60.0
"""Seconds that a provider may ask to wait; a longer wait ends the run."""
CONNECT_WAIT: Final = 30.0
"""Seconds to open a connection to a provider or an MCP server, and to send it a request."""
HOSTED_WINDOW: Final = 128_000
"""Default context window of a hosted model, in tokens."""
LOCAL_WINDOW: Final = 8_192
"""Default context window of a local model, in tokens."""
ANSWER_TOKENS: Final = 8_192
"""Tokens kept free for an answer; never more than a quarter of the context window."""
STORE_LOCK_WAIT: Final = 0.25
"""Seconds that a write to a store waits while another process writes."""
STORE_RETRY_SECONDS: Final = 5.0
"""Seconds in which a write to a store is tried again, while others run, before a call is refused for it."""
STORE_RETRY_PAUSE_SECONDS: Final = 0.05
"""Seconds between two such tries at most; each pause has a random part of it."""
READER_WAIT: Final = 5.0
"""Seconds a reader may take over one event, and to finish when its session ends."""
GUARD_START_WAIT: Final = 20.0
"""Seconds the guard has to say that it runs."""
GUARD_SILENCE: Final = 60.0
"""Seconds of silence over a request after which the guard counts as dead."""
GUARD_END_WAIT: Final = 3.0
"""Seconds the guard has to end by itself when it is closed."""
GUARD_KILL_WAIT: Final = 2.0
"""Seconds a killed guard has to be gone."""
FRAME_BYTES: Final = 4 << 20
"""Bytes of one frame of a conversation with a command."""
MAX_ARTIFACT_BYTES: Final = 4 << 30
"""Bytes of one artifact."""
MCP_CONNECT_WAIT: Final = 60.0
"""Seconds an MCP server has to start, or to answer, and to list its tools; one may have to be downloaded first."""
MCP_END_WAIT: Final = 2.0
"""Seconds an MCP server has to end when its input is closed, and again after TERM."""
MCP_REASON_WAIT: Final = 0.5
"""Seconds for a lost connection to an MCP server to end, which shows why it was lost."""
MCP_RESTART_WAITS: Final = (0.0, 0.2, 1.0, 5.0, 15.0, 30.0, 60.0)
"""Seconds before a crashed MCP server is started again, by how often it has crashed without answering a call."""
MCP_RESTART_PATIENCE: Final = 1.5
"""Seconds for which a call waits until its server may be started again; longer, and it is unavailable at once."""
MCP_LARGEST_MESSAGE: Final = 16 << 20
"""Bytes of one message of an MCP server."""
MCP_MAX_QUESTIONS_COUNT: Final = 10
"""Questions that an MCP server may ask its user during one call."""
MCP_MOST_TOOLS: Final = 2_000
"""Tools of one MCP server that are offered."""
MCP_MOST_PAGES: Final = 1_000
"""Pages of a list of tools that are asked for."""
MCP_DEFER_ABOVE: Final = 50
"""Tools of one MCP server above which all of them are deferred."""
MCP_CLIENT_IDLE: Final = 1_800.0
"""Seconds without a call after which the session of an MCP client, or a sandbox that it opened, is closed."""
MCP_RUN_PAUSE: Final = 60.0
"""Seconds without a call after which the counts of equal failures begin anew: what failed then may work now."""
MCP_PROGRESS_WAIT: Final = 2.0
"""Seconds for the last output of a call to reach its MCP client before the answer does."""
MCP_CLOSE_WAIT: Final = 3
"""Seconds that open connections have when an MCP server ends."""
MAX_ANSWER_BYTES: Final = 16 << 20
"""Bytes of one answer of a model, in UTF-8; what follows is not read, and the run ends as `cut`."""
MAX_OPEN_REQUESTS_COUNT: Final = 32
"""Requests to the model that one run, with all of its tasks, has out at once."""
MAX_RUNNING_TASKS_COUNT: Final = 8
"""Tasks of one call of `task` that run at once; the others wait."""
MAX_SOURCE_SECONDS: Final = 30.0
"""Seconds that a program's own source of tools has to answer."""
CALL_DEPTH: Final = 16
"""Calls inside one another: a call made by a program has depth 1, a call that its tool makes has depth 2."""


@explains_misuse
@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the commands in a sandbox; None is no limit. Sizes are in bytes, cpu in seconds for each process.

    Example:
        ```python
        async with open_sandbox(limits=Limits(file_size=1_000)) as sandbox:
            done = await sandbox.run("head -c 2000 /dev/zero > big")
            print(done.exit_code != 0, (await sandbox.stat("big")).size)
        #> True 1000
        ```
    """

    memory: int | None = None
    processes: int | None = 512
    cpu: float | None = None
    open_files: int | None = 4096
    file_size: int | None = None
    tmp: int | None = 1 << 30
    workspace: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            unit = _UNITS.get(field.name, "a number of bytes above 0, such as 512 * 1024**2")
            value, whole = getattr(self, field.name), field.name != "cpu"
            expect_number(
                f"Limits.{field.name}", value, f"{unit}, or None for no limit", least=0, above=True, whole=whole
            )


_UNITS: Final = {
    "processes": "a whole number above 0",
    "open_files": "a whole number above 0",
    "cpu": "a number of seconds above 0",
}


@explains_misuse
@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one run, that is of one user turn. None means no limit.

    Example:
        ```python
        @tool(description="Add two numbers.")
        def add(a: int, b: int) -> int:
            return a + b

        async with Session([add], budget=Budget(calls=1)) as session:
            results = [await session.call("add", {"a": 1, "b": each}) for each in range(2)]
        print([result.ok for result in results])
        #> [True, False]
        ```
    """

    calls: int | None = 500
    refusals: int | None = 50
    """Calls that were answered without running: they do not spend `calls`."""
    seconds: float | None = None
    """Unpaused seconds since the run began: waiting for a person does not count."""
    script_calls: int | None = 50
    script_seconds: float | None = 300
    requests: int | None = 1_000
    """Requests to the model, by the run and all of its tasks; every try counts, and so do summaries."""
    tokens: int | None = None
    """Tokens of these requests and their answers, as the provider counts them."""
    cost: float | None = None
    """US dollars for these requests; one whose price is not known counts as 0."""
    script_inline_bytes: int | None = 4_096
    """Bytes of JSON above which a script is given a reference to a value instead of the value."""

    def __post_init__(self) -> None:
        for field in fields(self):
            unit = _BUDGET_UNITS.get(field.name)
            write = f"{unit or 'a whole number'} from 0 up, or None for no limit"
            expect_number(f"Budget.{field.name}", getattr(self, field.name), write, least=0, whole=unit is None)

    def inlines(self, text: str) -> bool:
        """Whether a script is given this text, or this JSON, itself and not a reference to it."""
        most = self.script_inline_bytes
        return most is None or len(text) * 4 <= most or len(text.encode("utf-8", "replace")) <= most


_BUDGET_UNITS: Final = {
    "seconds": "a number of seconds",
    "script_seconds": "a number of seconds",
    "cost": "a number of US dollars",
}


DEFAULT_BUDGET: Final = Budget()
"""The budget of a session that was given none: a program that writes `Budget()` has chosen one."""


@explains_misuse
@dataclass(frozen=True, slots=True)
class Caps:
    """Sizes of the parts of an answer that a model is shown, in characters unless a field says otherwise.

    A Session is given the caps; its tools and its sandbox keep to `context.caps`, and the gate `shape` cuts the rest.

    Example:
        ```python
        @tool(description="Count to a number.")
        def count(end: int) -> list[int]:
            return list(range(end))

        async with Session([count], caps=Caps(value=1_000)) as session:
            result = await session.call("count", {"end": 100_000})
        print(isinstance(result.value, Truncated), len(str(result.value)) < 2_000)
        #> True True
        ```
    """

    value: int = 48_000
    """A plain value: a text, or a list or an object as JSON."""
    stdout: int = 50_000
    stderr: int = 10_000
    lines: int = 2_000
    """Lines of a file."""
    line: int = 2_000
    """Bytes of one line of a file."""
    file: int = 50 << 10
    """Bytes of text of a file, of an artifact or of a job's output."""
    entries: int = 500
    """Entries of a listing."""
    matches: int = 100
    match: int = 500
    """Characters of a line that matches."""
    paths: int = 1_000
    diff: int = 20_000
    """A diff, as `write` and `edit` show it."""
    other: int = 100_000
    """Everything else in an answer that has a cap of its own above: long names in a listing, other fields."""
    spool: int = 64 << 20
    """Bytes of a command's output that are kept on disk, shown or not; its middle is discarded beyond them."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                refuse(f"Caps.{field.name}", value, "a whole number from 1 up")

    @property
    def smallest(self) -> int:
        """The smallest cap: an answer with no more characters than this keeps to every cap."""
        return min(self.value, self.stdout, self.stderr, self.lines, self.file, self.other)

    def fitting(self, tokens_left: int | None, output_cap: int | None = None) -> "Caps":
        """Return the caps for a context with `tokens_left`, for a tool that may have a cap of its own."""
        percent = 100 if tokens_left is None else max(LEAST_PERCENT, min(100, tokens_left * 100 // ROOMY_TOKENS))
        return self if percent == 100 and output_cap is None else _fitting(self, percent, output_cap)


DEFAULT_CAPS: Final = Caps()


@lru_cache(maxsize=16)
def uncut(caps: Caps) -> Caps:
    """Return caps for a call by a script, whose answer no model reads: nothing is cut but output on disk."""
    most = max(caps.spool, 1 << 40)
    return Caps(**{field.name: most if field.name not in _KEPT else caps.spool for field in fields(Caps)})


_KEPT: Final = frozenset({"stdout", "stderr", "spool"})
"""Caps of output on disk, which hold whoever reads the output."""
ROOMY_TOKENS: Final = 100_000
"""Tokens left in the context from which on no cap shrinks."""
LEAST_PERCENT: Final = 10
"""Least part of a cap that stays in a full context, in percent."""
_DO_NOT_SHRINK: Final = frozenset({"line", "match", "spool"})


@lru_cache(maxsize=256)
def _fitting(caps: Caps, percent: int, output_cap: int | None) -> Caps:
    sizes = {field.name: getattr(caps, field.name) for field in fields(caps)}
    if output_cap is not None:  # it is for all a tool says; the two streams share it as they share their own caps
        stderr = max(1, output_cap * caps.stderr // (caps.stdout + caps.stderr))
        sizes |= dict.fromkeys(("value", "file", "diff", "other"), output_cap)
        sizes |= {"stdout": max(1, output_cap - stderr), "stderr": stderr}
    shrunk = {name: max(1, size * percent // 100) for name, size in sizes.items() if name not in _DO_NOT_SHRINK}
    return Caps(**(sizes | shrunk))
