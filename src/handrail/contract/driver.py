"""A Driver: the one thing that a sandbox connector writes.

Paths are absolute, as seen inside the sandbox; those of file operations contain no `..`, because the Sandbox resolves
it as the kernel would. Methods raise what their `Raises` lists, and nothing else.
The process tree is killed as one: a signal reaches the command and everything it started, setsid or not.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal, Protocol

from handrail.contract.expect import expect, explains_misuse, refuse

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


@explains_misuse
@dataclass(frozen=True, slots=True)
class Mount:
    """A directory or file of this machine that appears inside the sandbox."""

    source: str
    target: str | None = None
    """The path inside; the same as `source` when None."""
    writable: bool = False

    def __post_init__(self) -> None:
        for name in ("source", "target"):
            path = getattr(self, name)
            if isinstance(path, PurePath):
                object.__setattr__(self, name, str(path))
            elif not isinstance(path, str) and (path is not None or name == "source"):
                refuse(f"Mount.{name}", path, "a path such as '/data/models'")
        expect("Mount.writable", self.writable, bool, "writable=True, or leave it out for a read-only mount")


@dataclass(frozen=True, slots=True)
class Promise:
    """One line of a sandbox's report: whether a feature is enforced here."""

    feature: Feature
    standing: Standing
    reason: str = ""
    """Why it is not enforced; empty when it is."""
    remedy: str = ""
    """What to install, set or use instead; empty where nothing helps."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a sandbox promises, found by self-test. `features` are exactly those that it reports as enforced."""

    driver: str
    promises: tuple[Promise, ...]
    network: str = "full"
    notes: tuple[str, ...] = ()
    """What is weaker here than one would expect, or could be changed."""
    facts: tuple[str, ...] = ()
    """What holds in every sandbox of this kind, and is good to know."""
    writable: bool = True
    """Whether commands may write in the workspace."""
    lasting: tuple[str, ...] = ()
    """Directories whose files outlive the sandbox, by their paths inside; empty where that is not known."""
    passing: tuple[str, ...] = ()
    """Directories of the sandbox's own, HOME and the one for temporary files, which go with it."""

    @property
    def features(self) -> frozenset[Feature]:
        """What is enforced."""
        return frozenset(promise.feature for promise in self.promises if promise.standing == "enforced")

    def standing(self, feature: Feature) -> Standing:
        """The standing of this feature; one that is not listed is absent."""
        return next((p.standing for p in self.promises if p.feature == feature), "absent")


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: either `argv`, which needs no shell, or `line`, which runs in bash with pipefail, else in sh."""

    argv: tuple[str, ...] | None = None
    line: str | None = None
    cwd: str | None = None
    """Absolute, or None for the sandbox's own directory."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """Added to the sandbox's environment. Equal commands have equal hashes, though a dict has none."""
    timeout: int | None = None
    """A hint in whole seconds, rounded up: the caller enforces the real limit."""
    input: bool = False
    """Whether input will be sent; otherwise the command reads an empty input."""
    stdin: bytes | None = field(default=None, repr=False)
    """The whole input, for `Sandbox.dispatch`, which sends it. A driver is never given it."""

    def __post_init__(self) -> None:
        if isinstance(self.argv, list):  # as untyped programs write it; a list has no hash
            object.__setattr__(self, "argv", tuple(self.argv))


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of output, exactly as written."""

    stream: StreamName
    data: bytes


@dataclass(frozen=True, slots=True)
class FileStat:
    """What is at a path."""

    path: str
    real_path: str
    """The path inside the sandbox with every link resolved."""
    type: Literal["file", "directory", "symlink", "other"]
    """A link has the type of what it leads to; `symlink` is a dangling one."""
    size: int
    mode: int
    mtime: float
    name: str = ""
    """The last part of `path`, unless given."""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.path.rstrip("/").rpartition("/")[2] or "/")


class Process(Protocol):
    """A running command and its whole process tree."""

    id: str
    pid: int | None
    """The number the command itself would see, where the driver knows it."""

    def output(self) -> AsyncIterator[Chunk]:
        """What it prints, with back-pressure; ends when the command has ended and all its output was given.

        Raises:
            Unavailable: the sandbox is gone.
        """

    async def send(self, data: bytes | None) -> None:
        """Write to its input; returns when the command's pipe has taken the data. None closes the input.

        Raises:
            BrokenPipeError: the command has ended, or no longer reads its input.
            Unavailable: the sandbox is gone.
        """

    async def wait(self) -> int:
        """The exit code, 128 + N after signal N. The tree is dead when it returns. May be called many times.

        Raises:
            Unavailable: the sandbox is gone.
        """

    async def signal(self, name: SignalName) -> None:
        """Send a signal to the WHOLE tree. Not an error when it has ended.

        Raises:
            Unavailable: the sandbox is gone.
        """


class Driver(Protocol):
    """Runs commands and file operations somewhere.

    A driver may also have `name` (str), `workspace` (str: the directory inside where relative paths and commands
    start; "/workspace" when absent) and `report` (Report). Without a report, its features are the report.
    """

    features: frozenset[Feature]
    """What it really enforces."""

    async def start(self, command: Command) -> Process:
        """Start a command. A cancelled start leaves nothing running.

        Raises:
            FileNotFoundError: the program or the working directory does not exist.
            NotADirectoryError: the working directory is not a directory.
            PermissionError: the program may not be run, or the working directory may not be entered.
            OSError: the system cannot run the program for another reason.
            ValueError: the command is empty, or larger than any system takes.
            Unavailable: the sandbox is gone, or cannot start another command now.
        """

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """The bytes of a regular file from `start`; fewer than `length` when the file ends before.

        Raises:
            FileNotFoundError: there is nothing at the path.
            IsADirectoryError: it is a directory.
            NotADirectoryError: a file stands where the path needs a directory.
            PermissionError: it may not be read, is not a regular file, or leads out of the sandbox.
            OSError: the file is too large to be read at once (EFBIG), or cannot be read.
            ValueError: `start` or `length` is negative, or the path is not absolute.
            Unavailable: the sandbox is gone or busy.
        """

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a file atomically: a reader sees the old content or the new, never a part of it.

        Missing parents are created; an existing file keeps its mode unless `mode` is given. What a command here may
        not write, such as a file of mode 0444, is refused.

        Raises:
            IsADirectoryError: the path is a directory.
            NotADirectoryError: a file stands where the path needs a directory.
            PermissionError: it may not be written, is not a regular file, or leads out of the sandbox.
            OSError: the file cannot be written, for example because the disk is full.
            ValueError: the path is not absolute.
            Unavailable: the sandbox is gone or busy.
        """

    async def stat(self, path: str) -> FileStat:
        """What is at a path.

        Raises:
            FileNotFoundError: there is nothing at the path.
            NotADirectoryError: a file stands where the path needs a directory.
            PermissionError: a directory on the way may not be entered, or the path leads out of the sandbox.
            OSError: the path cannot be looked up, for example because links form a loop.
            ValueError: the path is not absolute.
            Unavailable: the sandbox is gone or busy.
        """

    async def list(self, path: str) -> list[FileStat]:
        """The entries of a directory, sorted by name.

        Raises:
            FileNotFoundError: there is nothing at the path.
            NotADirectoryError: it is not a directory.
            PermissionError: it may not be listed, or leads out of the sandbox.
            OSError: there are too many entries to list at once (EFBIG), or it cannot be listed.
            ValueError: the path is not absolute.
            Unavailable: the sandbox is gone or busy.
        """

    async def make_dir(self, path: str) -> None:
        """Create a directory with its parents. Not an error when it exists.

        Raises:
            FileExistsError: there is something else at the path.
            NotADirectoryError: a file stands where the path needs a directory.
            PermissionError: it may not be created, or the path leads out of the sandbox.
            OSError: it cannot be created, for example because the disk is full.
            ValueError: the path is not absolute.
            Unavailable: the sandbox is gone or busy.
        """

    async def remove(self, path: str) -> None:
        """Remove a file, a link (not what it leads to), or a directory with everything in it.

        Raises:
            FileNotFoundError: there is nothing at the path.
            NotADirectoryError: a file stands where the path needs a directory.
            PermissionError: it may not be removed, or leads out of the sandbox.
            OSError: it cannot be removed, for example because it is a mount.
            ValueError: the path is not absolute.
            Unavailable: the sandbox is gone or busy.
        """

    async def close(self) -> None:
        """Kill every process and release everything. May be called twice.

        Raises:
            Unavailable: the sandbox could not be closed; processes may still run.
        """
