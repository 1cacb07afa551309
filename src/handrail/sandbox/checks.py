"""Check a caller's arguments before anything starts; each error names a valid value."""

import posixpath
from collections.abc import Mapping, Sequence
from math import ceil, isfinite
from pathlib import PurePath
from typing import TypeVar

from handrail.contract.driver import Command
from handrail.misuse import kind_of, shown

F = TypeVar("F")


def resolve(directory: str, path: str) -> str:
    """`path` as an absolute path; a relative one starts at `directory`. `..` stays, because it depends on links."""
    if not isinstance(path, str):
        advice = f"; write {str(path)!r}" if isinstance(path, PurePath) else ""
        raise ValueError(f"A path in the sandbox is a string, not {shown(path)}{advice}.")
    if not path:
        raise ValueError("The path is empty; give '.' for the sandbox's own directory.")
    if "\0" in path:
        raise ValueError("The path contains a NUL character, which no file name can; leave it out.")
    return tidy("/" + posixpath.join(directory, path).lstrip("/"))


def tidy(path: str) -> str:
    """`path` without `.`, double slashes and a final slash. `..` stays, because it depends on links."""
    slash = "/" if path.startswith("/") else ""
    return slash + "/".join(name for name in path.split("/") if name not in ("", ".")) or "."


def as_command(
    command: str | Sequence[str],
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    timeout: float | None,
    input: bool,
) -> Command:
    """A string is a line for the shell, a sequence of strings is an argv. Raises ValueError."""
    hint = None if timeout is None else ceil(timeout)
    checked = environment(env) if env else {}
    if isinstance(command, str):
        if not command.strip():
            raise ValueError("The command is empty; give a line such as 'ls -l'.")
        _no_nul(command, "The command")
        return Command(line=command, cwd=cwd, env=checked, timeout=hint, input=input)
    return Command(argv=_argv(command), cwd=cwd, env=checked, timeout=hint, input=input)


def seconds(value: float | None, name: str) -> float | None:
    """A limit in seconds: a finite number above 0, or None for no limit. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        raise ValueError(f"{name} is {value!r}; give a number of seconds above 0, or None for no limit.")
    return value


def count(value: int | None, name: str) -> int | None:
    """A number of bytes above 0, or None for no limit. Raises ValueError."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"{name} is {value!r}; give a whole number of bytes above 0, or None for no limit.")
    return value


def as_bytes(data: str | bytes | None, name: str) -> bytes | None:
    """Text becomes UTF-8. Raises ValueError."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    advice = "; give what it holds: .read()" if hasattr(data, "read") else ""
    raise ValueError(f"{name} is text or bytes, not {kind_of(data)}{advice}.")


def called(function: F, name: str) -> F:
    """A function that is called with each piece of output, or None. Raises ValueError."""
    if function is not None and not callable(function):
        raise ValueError(
            f"{name} is {shown(function)}; give a function of a Chunk, such as lambda chunk: print(chunk.data)."
        )
    return function


def whole(value: int | None, name: str, write: str = "a whole number from 0 upwards") -> None:
    """Raise ValueError unless the value is None or a whole number from 0 up."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError(f"{name} is {shown(value)}; give {write}.")


def _argv(command: Sequence[str]) -> tuple[str, ...]:
    if isinstance(command, bytes | bytearray | Mapping) or not isinstance(command, Sequence):
        raise ValueError(f"A command is a string or a sequence of strings such as ['ls', '-l'], not {shown(command)}.")
    argv = tuple(command)
    for word in argv:
        if not isinstance(word, str):
            raise ValueError(f"Every word of a command is a string, not {shown(word)}; write {str(word)!r}.")
        _no_nul(word, "The command")
    if not argv or not argv[0]:
        raise ValueError("The command is empty; its first word names the program, such as ['ls', '-l'].")
    return argv


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """The variables to add. Raises ValueError; values stay out of its message, because they may be secrets."""
    if not isinstance(env, Mapping):
        raise ValueError(f"env is {kind_of(env)}; give a dict: {{'NAME': 'value'}}.")
    for name, value in env.items():
        if not isinstance(name, str):
            raise ValueError(f"The names in env are strings, not {shown(name)}.")
        if not isinstance(value, str):
            raise ValueError(f"env[{name!r}] is {kind_of(value)}; give a string.")
        if "=" in name:
            bare = name.partition("=")[0]
            raise ValueError(f"env has the name {name!r}; give the name without '=': {{{bare!r}: …}}.")
        if not name:
            raise ValueError("env has an empty name; give {'NAME': 'value'}.")
        _no_nul(name, "The environment")
        _no_nul(value, f"The environment variable {name}")
    return dict(env)


def _no_nul(text: str, what: str) -> None:
    if "\0" in text:
        raise ValueError(f"{what} contains a NUL character, which cannot be passed to a program; leave it out.")
