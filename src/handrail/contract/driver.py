"""A Driver: the one thing that a sandbox connector writes.

Paths are absolute, as seen inside the sandbox; those of file operations have no `..`, which the Sandbox has resolved
as the kernel would. File operations raise OSError's children (FileNotFoundError, IsADirectoryError,
PermissionError, …); anything raises Unavailable when the sandbox below is gone or busy.
The tree is the unit of killing: a signal reaches the command and everything it started, setsid or not.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

Feature = Literal[
    "files", "atomic_write", "range_read",
    "exec", "stdin", "live_output", "tree_kill",
    "file_isolation", "env_isolation", "process_isolation", "network_isolation", "no_privileges",
    "limit_memory", "limit_processes", "limit_cpu", "limit_open_files", "limit_file_size", "limit_tmp",
    "limit_workspace",
]  # fmt: skip
Standing = Literal["enforced", "advisory", "absent"]
SignalName = Literal["TERM", "KILL"]
StreamName = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory or file of the host, shown inside the sandbox."""

    source: str
    target: str | None = None
    """Where it appears; the same path when None."""
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Promise:
    """One line of a sandbox's report: how a promise stands here, and how that was found out."""

    feature: Feature
    standing: Standing
    reason: str = ""
    """Why it is not enforced, and what to install or set; empty when it is."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a sandbox promises, found by self-test. `features` is exactly what it calls enforced."""

    driver: str
    promises: tuple[Promise, ...]
    network: str = "full"
    notes: tuple[str, ...] = ()

    @property
    def features(self) -> frozenset[Feature]:
        return frozenset(promise.feature for promise in self.promises if promise.standing == "enforced")

    def standing(self, feature: Feature) -> Standing:
        """How this promise stands; what is not listed is absent."""
        return next((p.standing for p in self.promises if p.feature == feature), "absent")


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: either `argv`, which needs no shell, or `line`, which runs in bash with pipefail, else in sh."""

    argv: tuple[str, ...] | None = None
    line: str | None = None
    cwd: str | None = None
    """Absolute, or None for the sandbox's own directory."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the sandbox's environment."""
    timeout: int | None = None
    """A hint, in whole seconds, rounded up: the caller keeps the real clock."""
    input: bool = False
    """Whether something will be sent; without it the command reads an empty input."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of output, exactly as written."""

    stream: StreamName
    data: bytes


@dataclass(frozen=True, slots=True)
class FileStat:
    """What a path is, without following it further than `real_path`."""

    path: str
    real_path: str
    """Where it really leads, inside the sandbox."""
    type: Literal["file", "directory", "symlink", "other"]
    """A link that leads somewhere has the type of what it leads to; `symlink` is a dangling one."""
    size: int
    mode: int
    mtime: float
    name: str = ""
    """The last part of `path`, unless it is given."""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.path.rstrip("/").rpartition("/")[2] or "/")


class Process(Protocol):
    """A running command and its whole tree."""

    id: str
    pid: int | None
    """The number the command itself would see, where the driver knows it."""

    def output(self) -> AsyncIterator[Chunk]:
        """What it prints, with back-pressure; ends when the command has ended and all it printed was given."""

    async def send(self, data: bytes | None) -> None:
        """Feed its input; returns when it was taken. None closes it. Raises BrokenPipeError when nobody reads."""

    async def wait(self) -> int:
        """The exit code, 128 + N after signal N. The tree is dead when it returns. May be called many times."""

    async def signal(self, name: SignalName) -> None:
        """To the WHOLE tree. No error when it has ended."""


class Driver(Protocol):
    """A place where commands run and files live.

    A driver may also carry `name` (str), `workspace` (str: its own directory inside, where relative paths and
    commands begin; "/workspace" when absent) and `report` (Report). Without a report its features are the report.
    """

    features: frozenset[Feature]
    """What it really enforces; the conformance kit checks the claim."""

    async def start(self, command: Command) -> Process:
        """Raises FileNotFoundError or NotADirectoryError for cwd or argv[0], ValueError for what no system can run."""

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes: ...

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Atomic: a reader sees the old content or the new, never part. Parents are made; the old mode stays."""

    async def stat(self, path: str) -> FileStat: ...

    async def list(self, path: str) -> list[FileStat]:
        """The entries of a directory, sorted by name."""

    async def make_dir(self, path: str) -> None:
        """With its parents; no error when it is there."""

    async def remove(self, path: str) -> None:
        """A file, a link (not what it leads to), or a directory with everything in it."""

    async def close(self) -> None:
        """End every process and give everything back. May be called twice."""
