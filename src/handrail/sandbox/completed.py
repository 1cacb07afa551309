"""The outcome of a command: its exit code, its output, whole or cut, and how it ended."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from handrail.contract.limits import DEFAULT_CAPS, Caps
from handrail.sandbox._spool import Spool

EndedBy = Literal["exit", "timeout", "idle", "user", "model", "output", "budget"]
"""The cause of a command's end: itself, a limit, a person, the model, too much output, or the run's time budget."""
EXIT_TIMED_OUT: Final = 124
"""The exit code of a command that a time limit ended."""
EXIT_NOT_FOUND: Final = 127
"""Exit code of a shell for a program that does not exist."""
EXIT_CANNOT_RUN: Final = 126
"""Exit code of a shell for a file that cannot be run."""


class Answer(ABC):
    """A value of the sandbox that a body may return; the model gets the same JSON as from the built-in tool."""

    __slots__ = ()

    @abstractmethod
    def to_data(self, caps: Caps = DEFAULT_CAPS) -> dict[str, Any]:
        """The JSON form, within these caps."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> dict[str, Any]:
        """Allow the class as a tool's return type; `__get_pydantic_json_schema__` describes `to_data`."""
        return {"type": "any"}


@dataclass(frozen=True, slots=True)
class Completed(Answer):
    """The outcome of a command. Texts and bytes are capped, sizes are not.

    A text is its bytes, decoded with replacement characters.

    Example:
        ```python
        async with open_sandbox() as sandbox:
            completed: Completed = await sandbox.run("echo hello; exit 3")
        print(completed.exit_code, completed.stdout.strip(), completed.ended_by)
        #> 3 hello exit
        ```
    """

    exit_code: int
    """The exit code: 128 + N after signal N, 124 after a time limit."""
    stdout: str = ""
    stderr: str = ""
    stdout_bytes: bytes = field(default=b"", repr=False)
    stderr_bytes: bytes = field(default=b"", repr=False)
    stdout_size: int = 0
    stderr_size: int = 0
    spool: Spool = field(default_factory=Spool, repr=False, compare=False)
    """The kept output of both streams, read by range."""
    ended_by: EndedBy = "exit"
    duration_ms: int = 0
    cwd: str = ""
    notes: tuple[str, ...] = ()
    """Remarks on the outcome, each a sentence."""
    truncated: bool = False
    """Whether one of the texts lacks its middle."""
    may_still_run: bool = False
    """Whether the sandbox has not confirmed that the command ended."""
    advice: tuple[str, ...] = ()
    """Changes to the sandbox that a person could make, if the lack of them made the command fail. Not for the model."""
    limit: str | None = None
    """The limit for which the command, a part of it, or something beside it in the sandbox was killed: `memory`."""

    def to_data(self, caps: Caps = DEFAULT_CAPS) -> dict[str, Any]:
        """The answer of `bash`, and of any tool whose body returns a Completed."""
        return {
            "exit_code": self.exit_code,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "cwd": self.cwd,
            "duration_ms": self.duration_ms,
            "ended_by": self.ended_by,
            **({} if self.limit is None else {"limit": self.limit}),
        }

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        text, whole = {"type": "string"}, {"type": "integer"}
        properties: dict[str, Any] = {
            "exit_code": whole, "stdout": text, "stderr": text, "cwd": text, "duration_ms": whole,
            "ended_by": {"enum": list(get_args(EndedBy))},
        }  # fmt: skip
        required = list(properties)
        return {"type": "object", "properties": properties | {"limit": text}, "required": required}


@dataclass(frozen=True, slots=True)
class CodeResult(Completed):
    """The outcome of a program that was given as text.

    Example:
        ```python
        async with open_sandbox() as sandbox:
            result: CodeResult = await sandbox.dispatch(RunCode("print('hello')\\n6 * 7"))
        print(result.text, result.stdout.strip(), result.error)
        #> 42 hello None
        ```
    """

    language: str = "python"
    text: str | None = None
    """The value of a Python program's last expression, as `repr` writes it; None where there is none."""
    error: str | None = None
    """The traceback, or else the exit code in words; None after exit code 0."""

    def to_data(self, caps: Caps = DEFAULT_CAPS) -> dict[str, Any]:
        """The answer of `run_code`."""
        text = {} if self.text is None else {"text": self.text}
        # Not super(): a dataclass with slots is a new class, which super() without arguments does not know.
        return {"language": self.language, "error": self.error, **text, **Completed.to_data(self, caps)}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        schema = Completed.__get_pydantic_json_schema__(core_schema, handler)
        text, maybe = {"type": "string"}, {"type": ["string", "null"]}
        properties = {"language": text, "error": maybe, "text": text, **schema["properties"]}
        return {**schema, "properties": properties, "required": ["language", "error", *schema["required"]]}


@dataclass(frozen=True, slots=True)
class Late:
    """The outcome of a command that ended after its call was answered: its exit code, or why it is unknown."""

    id: str
    exit_code: int | None = None
    completed: Completed | None = None
    error: Exception | None = None
