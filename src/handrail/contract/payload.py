"""Payloads: operations of a sandbox as values, for `Sandbox.dispatch` and for streams. A Command is one too."""

from dataclasses import dataclass, field

from handrail.misuse import explains_misuse


@explains_misuse
@dataclass(frozen=True, slots=True)
class ReadFile:
    """Read a file: as text, or as bytes if `encoding` is None."""

    path: str
    encoding: str | None = "utf-8"


@explains_misuse
@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write a file atomically; missing parents are created. Text is written as UTF-8."""

    path: str
    data: str | bytes = field(repr=False)
    mode: int | None = None
    """Permissions such as 0o644; None keeps those of an existing file."""


@explains_misuse
@dataclass(frozen=True, slots=True)
class ListFiles:
    """List the entries of a directory."""

    path: str


@explains_misuse
@dataclass(frozen=True, slots=True)
class FileExists:
    """Ask whether there is anything at a path; a dangling link counts."""

    path: str


@explains_misuse
@dataclass(frozen=True, slots=True)
class RunCode:
    """Run a program that is given as text."""

    code: str = field(repr=False)
    language: str = "python"
    timeout: float | None = None
    """Wall-clock seconds; None means no limit."""
