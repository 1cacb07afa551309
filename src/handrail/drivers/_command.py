"""Turn a Command into the guard's request, refusing what no system can run, and an errno into the right error."""

import errno
import os
from collections.abc import Callable, Mapping
from typing import Final

from handrail.contract.driver import Command
from handrail.contract.errors import Unavailable
from handrail.drivers.elsewhere import Explain, nothing_elsewhere
from handrail.drivers.guard import frames

ARGUMENT_MAX: Final = 128 * 1024 - 1
"""Bytes the kernel takes for one argument, without its final NUL."""
_BUSY: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC})


def encode_command(command: Command, *, workspace: str, env: Mapping[str, str] | None) -> Callable[[int], bytes]:
    """The request, still without its id; no `env` means the guard's own. Raises ValueError, naming what is wrong."""
    words = _words(command)
    cwd = command.cwd if command.cwd is not None else workspace
    if not cwd.startswith("/"):
        raise ValueError(f"cwd {cwd!r} is not an absolute path")
    pairs = None if env is None else [_pair(name, value) for name, value in {**env, **command.env}.items()]
    line = command.line is not None

    def request(id: int) -> bytes:
        return frames.start(id, words, line=line, cwd=os.fsencode(cwd), env=pairs, input=command.input)

    request(0)
    return request


def _words(command: Command) -> list[bytes]:
    if (command.argv is None) == (command.line is None):
        raise ValueError("a command is either argv or a line: give exactly one of them")
    if command.line is not None:
        if not command.line.strip():
            raise ValueError("the command is empty")
        return [os.fsencode(command.line)]
    words = [os.fsencode(word) for word in command.argv or ()]
    if not words or not words[0]:
        raise ValueError("the command is empty: argv needs a program")
    for place, word in enumerate(words):
        if len(word) > ARGUMENT_MAX:
            raise ValueError(
                f"argv[{place}] has {len(word):,} bytes, and no system takes more than {ARGUMENT_MAX:,} in one "
                "argument: put it into a file, or send it as input"
            )
    return words


def _pair(name: str, value: str) -> bytes:
    if not name or "=" in name or "\0" in name:
        raise ValueError(f"{name!r} cannot be the name of an environment variable")
    pair = os.fsencode(f"{name}={value}")
    if len(pair) > ARGUMENT_MAX:
        raise ValueError(f"the environment variable {name} has {len(pair):,} bytes, at most {ARGUMENT_MAX:,} can be")
    return pair


def command_error(
    command: Command, code: int, where: int, *, cwd: str, explain: Explain = nothing_elsewhere
) -> Exception:
    """Why a command did not start."""
    if where == frames.AT_CWD:
        return OSError(code, f"the working directory cannot be used: {os.strerror(code)}", cwd)
    program = command.argv[0] if command.argv else "sh"
    if code == errno.E2BIG:
        return ValueError("the arguments and the environment together are larger than the system takes")
    if where == frames.AT_EXEC or code == errno.ENOENT:
        more = explain(program) if code == errno.ENOENT else None
        return OSError(code, f"the program cannot be run: {os.strerror(code)}{f'. {more}' if more else ''}", program)
    if code in _BUSY:
        return Unavailable(
            f"the sandbox cannot start another command now ({os.strerror(code)}): "
            "end something that runs in it, or raise its limits"
        )
    return OSError(code, f"the command cannot be started: {os.strerror(code)}", program)


def file_error(code: int, path: str) -> OSError:
    """The errno of a file operation; what leads out of the sandbox is a PermissionError."""
    if code == errno.EXDEV:
        return PermissionError(errno.EACCES, "the path leads outside the sandbox's directories", path)
    if code == errno.EPERM:
        return PermissionError(errno.EPERM, "only regular files and directories may be touched", path)
    if code == errno.EFBIG:
        return OSError(code, "the file is too large for this: read it by range", path)
    return OSError(code, os.strerror(code), path)
