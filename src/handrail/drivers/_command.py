"""Check a Command, encode it for the guard, and turn an errno into the right error."""

import errno
import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from handrail.contract.driver import Command
from handrail.contract.errors import Unavailable
from handrail.drivers._explain import Explain, no_explanation
from handrail.drivers.guard import frames

ARGUMENT_MAX: Final = 128 * 1024 - 1
"""Longest argument that the kernel takes, in bytes without the final NUL."""
_BUSY: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC})


class Words(NamedTuple):
    """A checked command in bytes; without `env`, it inherits the environment of its starter."""

    argv: list[bytes]
    """The arguments, or the line alone."""
    cwd: bytes
    env: list[bytes] | None


def check_command(command: Command, *, workspace: str, env: Mapping[str, str] | None) -> Words:
    """Check a command, and return it in bytes. Raises ValueError, with the reason."""
    words = _words(command, workspace, env)
    _encode(command, words)
    return words


def _words(command: Command, workspace: str, env: Mapping[str, str] | None) -> Words:
    argv = _argv(command)
    cwd = command.cwd if command.cwd is not None else workspace
    if not cwd.startswith("/"):
        raise ValueError(f"cwd {cwd!r} is not an absolute path")
    variables = None if env is None else [_variable(name, value) for name, value in {**env, **command.env}.items()]
    return Words(argv, os.fsencode(cwd), variables)


def encode_command(
    command: Command, *, workspace: str, env: Mapping[str, str] | None, pipes: bool = False
) -> Callable[[int], bytes]:
    """Return the guard's request as a function of its id. Raises ValueError, with the reason."""
    frame = _encode(command, _words(command, workspace, env), pipes)
    return lambda id: frames.renumber(frame, id)


def _encode(command: Command, words: Words, pipes: bool = False) -> bytes:
    line, input = command.line is not None, command.input and not pipes
    return frames.start(0, words.argv, line=line, cwd=words.cwd, env=words.env, input=input, pipes=pipes)


def _argv(command: Command) -> list[bytes]:
    """The arguments, or the line alone."""
    if (command.argv is None) == (command.line is None):
        raise ValueError("a command is either argv or a line: give exactly one of them")
    if command.line is not None:
        if not command.line.strip():
            raise ValueError("the command is empty")
        return [os.fsencode(command.line)]
    argv = [os.fsencode(argument) for argument in command.argv or ()]
    if not argv or not argv[0]:
        raise ValueError("the command is empty: argv needs a program")
    for index, argument in enumerate(argv):
        if len(argument) > ARGUMENT_MAX:
            raise ValueError(
                f"argv[{index}] has {len(argument):,} bytes, and no system takes more than {ARGUMENT_MAX:,} in one "
                "argument: put it into a file, or send it as input"
            )
    return argv


def _variable(name: str, value: str) -> bytes:
    if not name or "=" in name or "\0" in name:
        raise ValueError(f"{name!r} cannot be the name of an environment variable")
    variable = os.fsencode(f"{name}={value}")
    if len(variable) > ARGUMENT_MAX:
        raise ValueError(
            f"the environment variable {name} has {len(variable):,} bytes, and no system takes more than "
            f"{ARGUMENT_MAX:,}: put it into a file"
        )
    return variable


def command_error(command: Command, code: int, stage: int, *, cwd: str, explain: Explain = no_explanation) -> Exception:
    """Make the error of a command that did not start; `stage` is that of the guard's FAILED frame."""
    if stage == frames.AT_CWD:
        return OSError(code, f"the working directory cannot be used: {os.strerror(code)}", cwd)
    program = command.argv[0] if command.argv else "sh"
    if code == errno.E2BIG:
        return ValueError("the arguments and the environment together are larger than the system takes")
    if stage == frames.AT_EXEC or code == errno.ENOENT:
        more = explain(program) if code == errno.ENOENT else None
        reason = f"the program cannot be run: {os.strerror(code)}{f'. {more.note}' if more else ''}"
        error = OSError(code, reason, program)
        if more:
            error.add_note(more.advice)  # a person reads it in the traceback
        return error
    if code in _BUSY:
        return Unavailable(
            f"the sandbox cannot start another command now ({os.strerror(code)}): "
            "stop something that runs in it, or raise its limits"
        )
    return OSError(code, f"the command cannot be started: {os.strerror(code)}", program)


def file_error(code: int, path: str) -> OSError:
    """Make the error of a file operation; a path that leads out of the sandbox is a PermissionError."""
    if code == errno.EXDEV:
        return PermissionError(errno.EACCES, "the path leads outside the sandbox's directories", path)
    if code == errno.EPERM:
        return PermissionError(errno.EPERM, "only regular files and directories can be used", path)
    if code == errno.EFBIG:
        return OSError(code, "the file is too large to be read at once: read it by range", path)
    return OSError(code, os.strerror(code), path)
