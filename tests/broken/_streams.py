"""Drivers that lose, mix, hold back or change input and output."""

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import anyio

from handrail.aio import in_background
from handrail.contract.driver import Chunk, Command, Driver, Process, SignalName
from tests.broken.altered import Altered, AlteredProcess, Catalogue

STDIN: Final = Catalogue("stdin")
OUTPUT: Final = Catalogue("live_output")


@STDIN.running("drops NUL from its input")
class _NoNul(AlteredProcess):
    async def send(self, data: bytes | None) -> None:
        await self.process.send(data and data.replace(b"\0", b""))


@STDIN.running("swaps pieces of its input")
class _Swaps(AlteredProcess):
    held: bytes | None = None

    async def send(self, data: bytes | None) -> None:
        if data and data.endswith(b" ") and self.held is None:
            self.held = data
            return
        held, self.held = self.held, None
        if data is not None:
            await self.process.send(data)
        if held is not None:
            with suppress(BrokenPipeError):
                await self.process.send(held)
        if data is None:
            await self.process.send(None)


@STDIN.running("takes a megabyte of input")
class _Megabyte(AlteredProcess):
    async def send(self, data: bytes | None) -> None:
        await self.process.send(data and data[: 1 << 20])


@STDIN.running("sends a new line when nothing is sent")
class _NeverNothing(AlteredProcess):
    sent = False

    async def send(self, data: bytes | None) -> None:
        if data is None and not self.sent:
            with suppress(BrokenPipeError):
                await self.process.send(b"\n")
        self.sent = True
        await self.process.send(data)


@STDIN.running("closes its input after the first piece")
class _FirstPiece(AlteredProcess):
    sent = False

    async def send(self, data: bytes | None) -> None:
        if not self.sent:
            await self.process.send(data)
            with suppress(BrokenPipeError):
                await self.process.send(None)
        self.sent = True


class _Silent(AlteredProcess):
    """A process that drops input that no command reads, in one of four cases, instead of an error."""

    case = ""
    closed = ended = False

    async def send(self, data: bytes | None) -> None:
        try:
            await self.process.send(data)
        except BrokenPipeError:
            found = "after" if self.closed else "ended" if self.ended else "deaf" if self.command.input else "none"
            if found != self.case:
                raise
        self.closed = self.closed or data is None

    async def wait(self) -> int:
        code = await self.process.wait()
        self.ended = True
        return code


for _name, _case in (
    ("drops input that comes after its end", "after"), ("drops input for a command that has ended", "ended"),
    ("drops input that nobody reads", "deaf"), ("drops input that was not announced", "none"),
):  # fmt: skip
    STDIN.running(_name)(type("Silent", (_Silent,), {"case": _case}))


@STDIN.running("does not wait until much input is taken")
class _Hasty(AlteredProcess):
    def __init__(self, process: Process, command: Command) -> None:
        super().__init__(process, command)
        self.lock = anyio.Lock()

    async def send(self, data: bytes | None) -> None:
        if data and len(data) > 1 << 20:
            in_background(self._send(data))
        else:
            async with self.lock:
                await self.process.send(data)

    async def _send(self, data: bytes) -> None:
        async with self.lock:
            try:
                await self.process.send(data)
            except Exception:  # noqa: BLE001 - nobody waits for it
                pass


@STDIN.running("sends letters of ASCII alone")
class _Ascii(AlteredProcess):
    async def send(self, data: bytes | None) -> None:
        try:
            data = data and data.decode().encode("ascii", "replace")
        except UnicodeDecodeError:
            pass
        await self.process.send(data)


class _Gathers(AlteredProcess):
    """A process that holds a short piece back until more output, or the end, comes on the same stream."""

    stream = "stdout"

    async def output(self) -> AsyncIterator[Chunk]:
        held = b""
        async for chunk in self.process.output():
            if chunk.stream != self.stream:
                yield chunk
                continue
            held += chunk.data
            if len(held) > 5:
                yield replace(chunk, data=held)
                held = b""
        if held:
            yield Chunk(self.stream, held)  # type: ignore[arg-type]


for _stream in ("stdout", "stderr"):
    OUTPUT.running(f"gathers short pieces of {_stream}")(type("Gathers", (_Gathers,), {"stream": _stream}))


@OUTPUT.running("gives stderr as stdout")
class _Mixed(AlteredProcess):
    async def output(self) -> AsyncIterator[Chunk]:
        async for chunk in self.process.output():
            yield Chunk("stdout", chunk.data)


@OUTPUT.running("ends the last line of stdout")
class _EndsLine(AlteredProcess):
    async def output(self) -> AsyncIterator[Chunk]:
        last = b"\n"
        async for chunk in self.process.output():
            last = chunk.data[-1:] if chunk.stream == "stdout" else last
            yield chunk
        if last.isalnum():
            yield Chunk("stdout", b"\n")


@OUTPUT.running("puts a sign for bytes that are not UTF-8")
class _Text(AlteredProcess):
    async def output(self) -> AsyncIterator[Chunk]:
        async for chunk in self.process.output():
            yield replace(chunk, data=chunk.data.decode(errors="replace").encode())


@OUTPUT.running("says so when nothing was printed")
class _NothingPrinted(AlteredProcess):
    async def output(self) -> AsyncIterator[Chunk]:
        printed = False
        async for chunk in self.process.output():
            printed = True
            yield chunk
        if not printed:
            yield Chunk("stdout", b"(no output)\n")


def _capped(stream: str | None, most: int) -> type[AlteredProcess]:
    class Capped(AlteredProcess):
        async def output(self) -> AsyncIterator[Chunk]:
            size = 0
            async for chunk in self.process.output():
                counted = stream in (None, chunk.stream)
                kept = replace(chunk, data=chunk.data[: max(0, most - size)]) if counted else chunk
                size += len(kept.data) if counted else 0
                yield kept

    return Capped


OUTPUT.running("drops what is more than 4.5 megabytes")(_capped(None, 4_500_000))
OUTPUT.running("drops what is more than 2.5 megabytes of stderr")(_capped("stderr", 2_500_000))


@OUTPUT.running("sorts numbers as text")
class _Sorts(AlteredProcess):
    async def output(self) -> AsyncIterator[Chunk]:
        numbers = b""
        async for chunk in self.process.output():
            if re.fullmatch(rb"[\d\n]+", chunk.data):
                numbers += chunk.data
            else:
                yield chunk
        if numbers:
            yield Chunk("stdout", b"".join(sorted(numbers.splitlines(keepends=True))))


@OUTPUT.running("drops what was not read before a kill")
class _DropsAtKill(AlteredProcess):
    killed = False

    async def output(self) -> AsyncIterator[Chunk]:
        async for chunk in self.process.output():
            if not self.killed:
                yield chunk

    async def signal(self, name: SignalName) -> None:
        self.killed = self.killed or name == "KILL"
        await self.process.signal(name)


class _Unbounded(AlteredProcess):
    def __init__(self, process: Process, command: Command) -> None:
        super().__init__(process, command)
        self.kept: list[Chunk] = []
        self.more, self.over = anyio.Event(), False

    async def read(self) -> None:
        try:
            async for chunk in self.process.output():
                self.kept.append(chunk)
                self.more.set()
        except Exception:  # noqa: BLE001 - whoever waits is told
            pass
        self.over = True
        self.more.set()

    async def output(self) -> AsyncIterator[Chunk]:
        while self.kept or not self.over:
            while self.kept:
                yield self.kept.pop(0)
            if not self.over:
                self.more = anyio.Event()
                await self.more.wait()


@OUTPUT.driver("keeps what nobody reads, without end")
class _Reads(Altered):
    async def start(self, command: Command) -> Process:
        process = _Unbounded(await self.driver.start(command), command)
        in_background(process.read())
        return process


@OUTPUT.driver("starts nothing while three commands are not read")
class _Disturbed(Altered):
    def __init__(self, driver: Driver, options: dict[str, Any]) -> None:
        super().__init__(driver, options)
        self.unread: set[object] = set()

    async def start(self, command: Command) -> Process:
        with anyio.move_on_after(25):
            while len(self.unread) >= 3:
                await anyio.sleep(0.05)
        process = await self.driver.start(command)
        driver = self

        class Counted(AlteredProcess):
            async def output(self) -> AsyncIterator[Chunk]:
                driver.unread.discard(process)
                async for chunk in self.process.output():
                    yield chunk

            async def signal(self, name: SignalName) -> None:
                driver.unread.discard(process)
                await self.process.signal(name)

        self.unread.add(process)
        in_background(self._until_ended(process))
        return Counted(process, command)

    async def _until_ended(self, process: Process) -> None:
        try:
            await process.wait()
        except Exception:  # noqa: BLE001 - it was closed meanwhile
            pass
        self.unread.discard(process)


@OUTPUT.running("says that a command ended well that was killed before it was read")
class _KilledUnread(AlteredProcess):
    read = spared = False

    async def output(self) -> AsyncIterator[Chunk]:
        self.read = True
        async for chunk in self.process.output():
            yield chunk

    async def signal(self, name: SignalName) -> None:
        self.spared = self.spared or not self.read
        await self.process.signal(name)

    async def wait(self) -> int:
        code = await self.process.wait()
        return 0 if self.spared and code == 137 else code
