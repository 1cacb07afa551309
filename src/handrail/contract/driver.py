"""A Driver: the one thing that a sandbox connector writes.

Paths are absolute, as seen inside the sandbox; those of file operations contain no `..`, because the Sandbox resolves
it as the kernel would. Methods raise what their `Raises` lists, and nothing else.
The process tree is killed as one: a signal reaches the command and everything it started, setsid or not.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal, Protocol

from handrail.misuse import expect, explains_misuse, refuse

Feature = Literal[
    "files", "atomic_write", "range_read",
    "exec", "stdin", "live_output", "tree_kill",
    "file_isolation", "env_isolation", "process_isolation", "network_isolation", "no_privileges",
    "limit_memory", "limit_processes", "limit_cpu", "limit_open_files", "limit_file_size", "limit_tmp",
    "limit_workspace",
]  # fmt: skip
"""The name of a guarantee that a driver can make.

Example:
    ```python
    wanted: set[Feature] = {"exec", "tree_kill"}
    async with open_sandbox() as sandbox:
        print(wanted <= sandbox.features)
    #> True
    ```
"""
Standing = Literal["enforced", "advisory", "absent"]
SignalName = Literal["TERM", "KILL"]
StreamName = Literal["stdout", "stderr"]


@explains_misuse
@dataclass(frozen=True, slots=True)
class Mount:
    """A directory or file of this machine that appears inside the sandbox.

    Example:
        ```python
        async with open_sandbox(mounts=[Mount("/usr/share", target="/data")]) as sandbox:
            print((await sandbox.stat("/data")).type)
        #> directory
        ```
    """

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
class Guarantee:
    """One line of a sandbox's report: whether a feature is enforced here.

    Example:
        ```python
        print(Guarantee("limit_memory", "absent", reason="needs a cgroup"))
        #> Guarantee(feature='limit_memory', standing='absent', reason='needs a cgroup', remedy='')
        ```
    """

    feature: Feature
    standing: Standing
    reason: str = ""
    """The reason why the feature is not enforced; empty if it is."""
    remedy: str = ""
    """Advice: a program to install, an option to set, or another driver; empty where nothing helps."""


@dataclass(frozen=True, slots=True)
class Report:
    """The guarantees of a sandbox, found by self-test. `features` are exactly the enforced ones.

    Example:
        ```python
        async with open_sandbox() as sandbox:
            report: Report = sandbox.report
        print(report.driver, report.standing("file_isolation"), report.network)
        #> jail enforced none
        ```
    """

    driver: str
    guarantees: tuple[Guarantee, ...]
    network: str = "full"
    notes: tuple[str, ...] = ()
    """Notes on parts that are weaker here than one would expect, or could be changed."""
    facts: tuple[str, ...] = ()
    """Facts about every sandbox of this kind."""
    writable: bool = True
    """Whether commands may write in the workspace."""
    lasting: tuple[str, ...] = ()
    """Directories whose files outlive the sandbox, by their paths inside; empty if unknown."""
    passing: tuple[str, ...] = ()
    """The sandbox's own directories, HOME and the one for temporary files, which are removed with the sandbox."""

    @property
    def features(self) -> frozenset[Feature]:
        """The enforced features."""
        return frozenset(guarantee.feature for guarantee in self.guarantees if guarantee.standing == "enforced")

    def standing(self, feature: Feature) -> Standing:
        """Return the standing of a feature; an unlisted feature is absent."""
        return next((p.standing for p in self.guarantees if p.feature == feature), "absent")


@dataclass(frozen=True, slots=True)
class Command:
    """A command: either `argv`, which needs no shell, or `line`, which runs in bash with pipefail, else in sh.

    Example:
        ```python
        async with open_sandbox() as sandbox:
            print((await sandbox.dispatch(Command(line="tr a-z A-Z", stdin=b"hello"))).stdout)
        #> HELLO
        ```
    """

    argv: tuple[str, ...] | None = None
    line: str | None = None
    cwd: str | None = None
    """The working directory, an absolute path; None for the sandbox's own directory."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """Variables that are added to the sandbox's environment."""
    # Not hashed, because a dict has no hash; equal commands still have equal hashes.
    timeout: int | None = None
    """A time limit in whole seconds, rounded up, as a hint: the caller enforces the real limit."""
    input: bool = False
    """Whether the caller will send input; otherwise the command reads an empty input."""
    stdin: bytes | None = field(default=None, repr=False)
    """The whole input, for `Sandbox.dispatch` only. A driver never gets a Command with stdin."""

    def __post_init__(self) -> None:
        if isinstance(self.argv, list):  # as untyped programs write it; a list has no hash
            object.__setattr__(self, "argv", tuple(self.argv))


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of output, byte for byte.

    Example:
        ```python
        def show(chunk: Chunk) -> None:
            print(chunk.stream, chunk.data)

        async with open_sandbox() as sandbox:
            await sandbox.run("echo hello", on_output=show)
        #> stdout b'hello\\n'
        ```
    """

    stream: StreamName
    data: bytes


@dataclass(frozen=True, slots=True)
class FileStat:
    """A file, directory or link at a path.

    Example:
        ```python
        sandbox = Sandbox(MemoryDriver({"/workspace/notes.txt": b"hello"}))
        found: FileStat = await sandbox.stat("notes.txt")
        print(found.name, found.type, found.size)
        #> notes.txt file 5
        ```
    """

    path: str
    real_path: str
    """The path inside the sandbox with every link resolved."""
    type: Literal["file", "directory", "symlink", "other"]
    """The type; a link has the type of its target, and `symlink` is a dangling link."""
    size: int
    mode: int
    mtime: float
    name: str = ""
    """The name; by default the last part of `path`."""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.path.rstrip("/").rpartition("/")[2] or "/")


class Process(Protocol):
    """A running command and its whole process tree.

    Example:
        ```python
        async with open_sandbox() as sandbox:
            process: Process = await sandbox.open_process("cat")
            await process.send(b"hello")
            await process.send(None)
            print([chunk.data async for chunk in process.output()], await process.wait())
        #> [b'hello'] 0
        ```
    """

    id: str
    pid: int | None
    """The pid that the command itself would see, if the driver knows it."""

    def output(self) -> AsyncIterator[Chunk]:
        """Yield the output, with back-pressure, until the command has ended and all output was given.

        Raises:
            Unavailable: the sandbox is gone.
        """

    async def send(self, data: bytes | None) -> None:
        """Write to the command's input, and return when its pipe has taken the data. None closes the input.

        Raises:
            BrokenPipeError: the command has ended, or no longer reads its input.
            Unavailable: the sandbox is gone.
        """

    async def wait(self) -> int:
        """Wait until the tree is dead; return the exit code, 128 + N after signal N. May be called many times.

        Raises:
            Unavailable: the sandbox is gone.
        """

    async def signal(self, name: SignalName) -> None:
        """Send a signal to the WHOLE tree. A command that has ended is not an error.

        Raises:
            Unavailable: the sandbox is gone.
        """


class Driver(Protocol):
    """Runs commands and file operations somewhere.

    A driver may also have `name` (str), `workspace` (str: the directory inside where relative paths and commands
    start; "/workspace" when absent) and `report` (Report). Without a report, the features are the report.

    Example:
        ```python
        driver: Driver = MemoryDriver({"/workspace/notes.txt": b"hello"})
        async with open_sandbox(driver) as sandbox:
            print(await sandbox.read_text("notes.txt"))
        #> hello
        ```
    """

    features: frozenset[Feature]
    """The features that the driver really enforces."""

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
        """Read a regular file from `start`; fewer bytes than `length` if the file ends before.

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
        """Look up a path.

        Raises:
            FileNotFoundError: there is nothing at the path.
            NotADirectoryError: a file stands where the path needs a directory.
            PermissionError: a directory on the way may not be entered, or the path leads out of the sandbox.
            OSError: the path cannot be looked up, for example because links form a loop.
            ValueError: the path is not absolute.
            Unavailable: the sandbox is gone or busy.
        """

    async def list(self, path: str) -> list[FileStat]:
        """List the entries of a directory, sorted by name.

        Raises:
            FileNotFoundError: there is nothing at the path.
            NotADirectoryError: it is not a directory.
            PermissionError: it may not be listed, or leads out of the sandbox.
            OSError: there are too many entries to list at once (EFBIG), or it cannot be listed.
            ValueError: the path is not absolute.
            Unavailable: the sandbox is gone or busy.
        """

    async def make_dir(self, path: str) -> None:
        """Create a directory with its parents. An existing directory is not an error.

        Raises:
            FileExistsError: there is something else at the path.
            NotADirectoryError: a file stands where the path needs a directory.
            PermissionError: it may not be created, or the path leads out of the sandbox.
            OSError: it cannot be created, for example because the disk is full.
            ValueError: the path is not absolute.
            Unavailable: the sandbox is gone or busy.
        """

    async def remove(self, path: str) -> None:
        """Remove a file, a link (not its target), or a directory with everything in it.

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
