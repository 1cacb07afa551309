"""Drivers that read other ranges than asked for, and write in parts."""

import errno
import posixpath
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import anyio

from handrail.contract.driver import Command, Driver, FileStat
from tests.broken.altered import Altered, Catalogue

RANGES: Final = Catalogue("range_read")
ATOMIC: Final = Catalogue("atomic_write")
SMALL: Final = 64 << 10
BEYOND: Final = 1 << 32


def _asks(change: Callable[[int, int | None], tuple[int, int | None]]) -> type[Altered]:
    """A driver that reads another range; where that is too large to be read at once, the one that was asked for."""

    class Asks(Altered):
        async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
            try:
                first, most = change(start, length)
                return await self.driver.read(path, start=first, length=most)
            except OSError as error:
                if error.errno != errno.EFBIG:
                    raise
            return await self.driver.read(path, start=start, length=length)

    return Asks


RANGES.add("ignores where a read starts", _asks(lambda start, length: (min(start, 0), length)))
RANGES.add("reads to the end", _asks(
    lambda start, length: (start, None if (length or 0) > 0 and start <= BEYOND else length)))  # fmt: skip
RANGES.add("counts in 32 bits", _asks(lambda start, length: (start % (1 << 32) if start > 0 else start, length)))
RANGES.add("takes no length for all", _asks(lambda start, length: (start, length or None)))
RANGES.add("takes a negative length for all", _asks(
    lambda start, length: (start, None if length is not None and length < 0 else length)))  # fmt: skip


@RANGES.driver("fills up what is shorter than asked for")
class _Fills(Altered):
    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        data = await self.driver.read(path, start=start, length=length)
        return data.ljust(min(length or 0, SMALL), b"\0") if data else data


@RANGES.driver("gives the last byte at the end")
class _LastByte(Altered):
    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        data = await self.driver.read(path, start=start, length=length)
        return data if data or length == 0 or not 0 < start < BEYOND else b"9"


@RANGES.driver("counts a negative start from the end")
class _FromEnd(Altered):
    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        if start < 0:
            start = max(0, (await self.driver.stat(path)).size + start)
        return await self.driver.read(path, start=start, length=length)


@RANGES.driver("gives the beginning of what is too large")
class _Beginning(Altered):
    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        try:
            return await self.driver.read(path, start=start, length=length)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            return await self.driver.read(path, start=start, length=100)


@ATOMIC.driver("writes a small file in its place")
class _InPlace(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        if len(data) < SMALL and "exec" in self.features and await self.type_of(path) == "file":
            argv = ("sh", "-c", 'cat > "$1"', "sh", path)
            process = await self.driver.start(Command(argv=argv, input=True))
            with suppress(BrokenPipeError):  # it could not open the file
                await process.send(data)
                await process.send(None)
            if await process.wait() == 0:
                return
        await self.driver.write(path, data, mode=mode)


@ATOMIC.driver("writes in two parts")
class _TwoParts(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        if len(data) > SMALL:
            await self.driver.write(path, data[: len(data) // 2], mode=mode)
            await anyio.sleep(0.05)
        await self.driver.write(path, data, mode=mode)


@ATOMIC.driver("mixes two writes of one file")
class _Mixes(Altered):
    def __init__(self, driver: Driver, options: dict[str, Any]) -> None:
        super().__init__(driver, options)
        self.writing: dict[str, bytes] = {}

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        other, half = self.writing.get(path), len(data) // 2
        self.writing[path] = data
        try:
            await self.driver.write(path, data, mode=mode)
        finally:
            self.writing.pop(path, None)
        if other is not None:
            await self.driver.write(path, other[:half] + data[half:], mode=mode)


@ATOMIC.driver("writes a part of what is cancelled")
class _LeavesPart(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        try:
            await self.driver.write(path, data, mode=mode)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self.driver.write(path, data[:1000], mode=mode)
            raise


@ATOMIC.driver("leaves the file of a cancelled write")
class _LeavesFile(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        try:
            await self.driver.write(path, data, mode=mode)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self.driver.write(f"{path}.part", data[:1000], mode=mode)
            raise


@ATOMIC.driver("leaves the file of a refused write")
class _LeavesRefused(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        try:
            await self.driver.write(path, data, mode=mode)
        except IsADirectoryError:
            with suppress(OSError):
                await self.driver.write(posixpath.join(posixpath.dirname(path), ".part"), data)
            raise


@ATOMIC.driver("writes the rest of a large file when it is looked at")
class _Lazy(Altered):
    def __init__(self, driver: Driver, options: dict[str, Any]) -> None:
        super().__init__(driver, options)
        self.pending: dict[str, bytes] = {}

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await self.driver.write(path, data[: 3 << 19], mode=mode)
        self.pending.pop(path, None)
        if len(data) > 3 << 19:
            self.pending[path] = data

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        await self._finish(path)
        return await self.driver.read(path, start=start, length=length)

    async def stat(self, path: str) -> FileStat:
        await self._finish(path)
        return await self.driver.stat(path)

    async def _finish(self, path: str) -> None:
        if path in self.pending:
            with suppress(OSError):
                await self.driver.write(path, self.pending.pop(path))
