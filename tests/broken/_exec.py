"""Drivers that run another command, run it elsewhere, or report another end."""

import posixpath
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import anyio

from handrail.aio import in_background
from handrail.contract.driver import Chunk, Command, Driver, Process
from handrail.contract.errors import Unavailable
from tests.broken.altered import Altered, AlteredProcess, Catalogue

EXEC: Final = Catalogue("exec")
AT_A_TIME: Final = 5
CUT: Final = 512 << 10


@EXEC.running("trims blanks at the ends of lines")
class _Trims(AlteredProcess):
    async def output(self) -> AsyncIterator[Chunk]:
        async for chunk in self.process.output():
            yield replace(chunk, data=re.sub(rb" +\n", b"\n", chunk.data))


def _code(change: Callable[[int], int]) -> type[Altered]:
    class Recoded(AlteredProcess):
        async def wait(self) -> int:
            return change(await self.process.wait())

    return type("Recodes", (Altered,), {"process": Recoded})


EXEC.add("knows exit codes from 2 to 9 as 1", _code(lambda code: 1 if 2 <= code <= 9 else code))
EXEC.add("takes exit code 255 for -1", _code(lambda code: -1 if code == 255 else code))
EXEC.add("takes exit code 1 for 0", _code(lambda code: 0 if code == 1 else code))
EXEC.add("takes a fatal signal for a negative number", _code(lambda code: 128 - code if 129 <= code <= 159 else code))
EXEC.add("takes exit code 127 for 1", _code(lambda code: 1 if code == 127 else code))


def _command(change: Callable[[Command, Altered], Command]) -> type[Altered]:
    class Changed(Altered):
        async def start(self, command: Command) -> Process:
            return await super().start(change(command, self))

    return Changed


def _on_line(change: Callable[[str], str]) -> type[Altered]:
    return _command(lambda it, _: it if it.line is None or it.argv is not None else replace(it, line=change(it.line)))


EXEC.add("makes one blank of two in a line", _on_line(lambda line: line.replace("  ", " ")))
EXEC.add("makes blanks of the new lines in a line", _on_line(lambda line: line.replace("\n", " ").strip() or line))
EXEC.add("lets a pipeline succeed when a part of it fails",
         _on_line(lambda line: f"set +o pipefail 2>&-\n{line}" if line.strip() else line))  # fmt: skip
EXEC.add("cuts a long line", _on_line(lambda line: line[:CUT] if len(line) < 4 << 20 else line))
EXEC.add("cuts a line larger than any system takes", _on_line(lambda line: line[:CUT] if len(line) > 4 << 20 else line))
EXEC.add("ends a line at NUL", _on_line(lambda line: line.split("\0")[0]))
EXEC.add("runs a blank line", _on_line(lambda line: line if line.strip() else "true"))
EXEC.add("joins a long argv to a line", _command(
    lambda it, _: replace(it, argv=None, line=" ".join(it.argv)) if it.argv and len(it.argv) > 6 else it))  # fmt: skip
EXEC.add("starts in the root", _command(lambda it, _: replace(it, cwd="/") if it.cwd is None else it))
EXEC.add("starts above a directory with a blank in its name", _command(
    lambda it, _: replace(it, cwd=posixpath.dirname(it.cwd)) if it.cwd and " " in it.cwd else it))  # fmt: skip
EXEC.add("starts not deeper than one directory", _command(lambda it, driver: replace(it, cwd=_shallow(it.cwd, driver))))
EXEC.add("takes nothing for true", _command(
    lambda it, _: replace(it, line="true") if it.line is None and it.argv is None else it))  # fmt: skip
EXEC.add("takes the line where both are given", _command(
    lambda it, _: replace(it, argv=None) if it.line is not None else it))  # fmt: skip
EXEC.add("takes an empty argv for true", _command(lambda it, _: replace(it, argv=("true",)) if it.argv == () else it))
EXEC.add("ends an argument at NUL", _command(
    lambda it, _: replace(it, argv=tuple(word.split("\0")[0] for word in it.argv)) if it.argv else it))  # fmt: skip
EXEC.add("takes a relative directory for the workspace", _command(
    lambda it, driver: it if (it.cwd or "/").startswith("/") else replace(it, cwd=driver.workspace)))  # fmt: skip
EXEC.add("drops a variable without a name", _command(
    lambda it, _: replace(it, env={name: value for name, value in it.env.items() if name})))  # fmt: skip
EXEC.add("makes blanks of new lines in variables", _command(
    lambda it, _: replace(it, env={name: value.replace("\n", " ") for name, value in it.env.items()})))  # fmt: skip


def _shallow(cwd: str | None, driver: Altered) -> str | None:
    if cwd is None or not cwd.startswith(f"{driver.workspace}/"):
        return cwd
    return posixpath.join(driver.workspace, cwd.removeprefix(f"{driver.workspace}/").split("/")[0])


def _instead(error: type[OSError], about: str, line: str) -> type[Altered]:
    """A driver that runs something else where it cannot start a program (`argv`) or enter a directory (`cwd`)."""

    class Instead(Altered):
        async def start(self, command: Command) -> Process:
            try:
                return await super().start(command)
            except error as found:
                program = command.argv is not None and found.filename == command.argv[0]
                if type(found) is not error or program != (about == "argv"):
                    raise
                return await super().start(Command(line=line))

    return Instead


EXEC.add("takes a missing program for a failed one", _instead(FileNotFoundError, "argv", "exit 127"))
EXEC.add("takes a file that is not a program for a failed one", _instead(PermissionError, "argv", "exit 126"))
EXEC.add("starts elsewhere when its directory is missing", _instead(FileNotFoundError, "cwd", "true"))
EXEC.add("starts elsewhere when its directory is a file", _instead(NotADirectoryError, "cwd", "true"))


@EXEC.driver("gives a command its own input when none was announced")
class _Types(Altered):
    async def start(self, command: Command) -> Process:
        if command.input:
            return await super().start(command)
        process = await super().start(replace(command, input=True))
        with suppress(BrokenPipeError):
            await process.send(b"typed\n")
            await process.send(None)
        return process


@EXEC.running("tells the exit code once")
class _Once(AlteredProcess):
    told = False

    async def wait(self) -> int:
        code = await self.process.wait()
        self.told, again = True, self.told
        return 0 if again else code


@EXEC.running("answers all but the first who wait at once")
class _OneWaits(AlteredProcess):
    waiting = False

    async def wait(self) -> int:
        if self.waiting:
            return 0
        self.waiting = True
        try:
            return await self.process.wait()
        finally:
            self.waiting = False


@EXEC.driver("runs five commands at a time")
class _FiveAtATime(Altered):
    def __init__(self, driver: Driver, options: dict[str, Any]) -> None:
        super().__init__(driver, options)
        self.running = 0

    async def start(self, command: Command) -> Process:
        with anyio.move_on_after(20):
            while self.running >= AT_A_TIME:
                await anyio.sleep(0.02)
        process = await super().start(command)
        self.running += 1
        in_background(self._until_ended(process))
        return process

    async def _until_ended(self, process: Process) -> None:
        try:
            await process.wait()
        except Exception:  # noqa: BLE001 - it was closed meanwhile
            pass
        self.running -= 1


@EXEC.driver("gives all commands one id")
class _OneId(Altered):
    async def start(self, command: Command) -> Process:
        process = await super().start(command)
        process.id = "1"
        return process


@EXEC.driver("ends the last command when a program is missing")
class _EndsOther(Altered):
    last: Process | None = None

    async def start(self, command: Command) -> Process:
        try:
            process = await super().start(command)
        except FileNotFoundError:
            if self.last is not None:
                with suppress(Unavailable):
                    await self.last.signal("KILL")
                    await self.last.wait()
            raise
        self.last = process
        return process


class _Ended:
    """A command that is said to have ended well."""

    id = "0"
    pid: int | None = None

    async def output(self) -> AsyncIterator[Chunk]:
        nothing: tuple[Chunk, ...] = ()
        for chunk in nothing:
            yield chunk

    async def send(self, data: bytes | None) -> None:
        return None

    async def wait(self) -> int:
        return 0

    async def signal(self, name: str) -> None:
        return None


@EXEC.driver("says that a command ran though it is closed")
class _StartsClosed(Altered):
    async def start(self, command: Command) -> Process:
        try:
            return await super().start(command)
        except Unavailable:
            return _Ended()


@EXEC.running("says that a command ended well when its sandbox is closed")
class _EndsClosed(AlteredProcess):
    async def wait(self) -> int:
        try:
            return await self.process.wait()
        except Unavailable:
            return 0


@EXEC.driver("drops what is written to a hidden file")
class _NothingHidden(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        hidden = posixpath.basename(path).startswith(".")
        await self.driver.write(path, b"" if hidden else data, mode=mode)
