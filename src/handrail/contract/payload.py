"""Payloads: operations of a sandbox as values, for `Sandbox.dispatch` and for streams. A Command is one too."""

from dataclasses import dataclass, field

from handrail.misuse import explains_misuse


@explains_misuse
@dataclass(frozen=True, slots=True)
class ReadFile:
    """Read a file: as text, or as bytes if `encoding` is None.

    Example:
        ```python
        sandbox = Sandbox(MemoryDriver({"/workspace/notes.txt": b"hello"}))
        text = await sandbox.dispatch(ReadFile("notes.txt"))
        data = await sandbox.dispatch(ReadFile("notes.txt", encoding=None))
        print(text, data)
        #> hello b'hello'
        ```
    """

    path: str
    encoding: str | None = "utf-8"


@explains_misuse
@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write a file atomically; missing parents are created. Text is written as UTF-8.

    Example:
        ```python
        sandbox = Sandbox(MemoryDriver())
        await sandbox.dispatch(WriteFile("notes.txt", "hello"))
        print(await sandbox.read_text("notes.txt"))
        #> hello
        ```
    """

    path: str
    data: str | bytes = field(repr=False)
    mode: int | None = None
    """Permissions such as 0o644; None keeps those of an existing file."""


@explains_misuse
@dataclass(frozen=True, slots=True)
class ListFiles:
    """List the entries of a directory.

    Example:
        ```python
        sandbox = Sandbox(MemoryDriver({"/workspace/notes.txt": b"hello"}))
        print((await sandbox.dispatch(ListFiles("."))).entries[0].name)
        #> notes.txt
        ```
    """

    path: str


@explains_misuse
@dataclass(frozen=True, slots=True)
class FileExists:
    """Ask whether there is anything at a path; a dangling link counts.

    Example:
        ```python
        sandbox = Sandbox(MemoryDriver({"/workspace/notes.txt": b"hello"}))
        print(await sandbox.dispatch(FileExists("notes.txt")), await sandbox.dispatch(FileExists("other.txt")))
        #> True False
        ```
    """

    path: str


@explains_misuse
@dataclass(frozen=True, slots=True)
class RunCode:
    """Run a program that is given as text.

    Example:
        ```python
        async with open_sandbox() as sandbox:
            print((await sandbox.dispatch(RunCode("6 * 7"))).text)
        #> 42
        ```
    """

    code: str = field(repr=False)
    language: str = "python"
    timeout: float | None = None
    """Wall-clock seconds; None means no limit."""
