"""Drivers that lose, mistake or mangle files."""

import errno
import posixpath
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import anyio

from handrail.contract.driver import Driver, FileStat
from tests.broken.altered import Altered, Catalogue, Kind

FILES: Final = Catalogue("files")
EMPTY: Final = {"read": b"", "list": list[FileStat]()}


def _instead(method: str, error: type[OSError], number: int | None = None) -> Kind:
    """A driver whose method answers as if nothing were wrong."""

    async def answers(self: Altered, path: str, *rest: Any, **more: Any) -> Any:
        try:
            return await getattr(self.driver, method)(path, *rest, **more)
        except OSError as found:
            if type(found) is not error or (number is not None and found.errno != number):
                raise
            return FileStat(path, path, "file", 0, 0o644, 1.0) if method == "stat" else EMPTY.get(method)

    return type("Instead", (Altered,), {method: answers})


for _method, _error in (
    ("read", FileNotFoundError), ("stat", FileNotFoundError), ("list", FileNotFoundError),
    ("remove", FileNotFoundError), ("read", IsADirectoryError), ("write", IsADirectoryError),
    ("make_dir", FileExistsError),
    ("read", NotADirectoryError), ("write", NotADirectoryError), ("stat", NotADirectoryError),
    ("list", NotADirectoryError), ("make_dir", NotADirectoryError), ("remove", NotADirectoryError),
):  # fmt: skip
    FILES.add(f"{_method} hides {_error.__name__}", _instead(_method, _error))
FILES.add("read hides a loop of links", _instead("read", OSError, errno.ELOOP))


def _joined(method: str) -> Kind:
    async def joins(self: Altered, path: str, *rest: Any, **more: Any) -> Any:
        return await getattr(self.driver, method)(posixpath.join(self.workspace, path), *rest, **more)

    return type("Joined", (Altered,), {method: joins})


for _method in ("read", "write", "stat", "list", "make_dir", "remove"):
    FILES.add(f"{_method} takes a relative path", _joined(_method))


def _renamed(change: Callable[[str], str]) -> Kind:
    """A driver that keeps files under another name than it was given."""

    def method(name: str) -> Callable[..., Any]:
        async def renames(self: Altered, path: str, *rest: Any, **more: Any) -> Any:
            above, slash, last = path.rpartition("/")
            try:
                return await getattr(self.driver, name)(above + slash + (change(last) or last), *rest, **more)
            except OSError:  # a command may have made it, under the name that was given
                return await getattr(self.driver, name)(path, *rest, **more)

        return renames

    return type("Renamed", (Altered,), {name: method(name) for name in ("read", "write", "remove")})


for _what, _change in {
    "trims blanks off names": str.rstrip,
    "puts a question mark for a new line in a name": lambda name: name.replace("\n", "?"),
    "takes accents apart in names": lambda name: unicodedata.normalize("NFD", name),
    "drops quotes from names": lambda name: name.replace("'", ""),
    "drops a dash at the beginning of a name": lambda name: name.removeprefix("-"),
    "writes a star in a name as a code": lambda name: name.replace("*", "%2A"),
    "puts a question mark for bytes that are not UTF-8": lambda name: name.encode(errors="replace").decode(),
    "ends a name at NUL": lambda name: name.split("\0")[0],
}.items():
    FILES.add(_what, _renamed(_change))


@FILES.driver("writes lines as on Unix")
class _Lines(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        program = data.startswith(b"\x7fELF")
        await self.driver.write(path, data if program else data.replace(b"\r\n", b"\n"), mode=mode)


@FILES.driver("writes a new line into an empty file")
class _NeverEmpty(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await self.driver.write(path, data or b"\n", mode=mode)


@FILES.driver("writes two megabytes at most")
class _Short(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await self.driver.write(path, data[: 2 << 20], mode=mode)


@FILES.driver("leaves the rest of a longer old content")
class _Over(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        try:
            old = await self.driver.read(path)
        except OSError:
            old = b""
        await self.driver.write(path, data + old[len(data) :] if len(old) < 100 else data, mode=mode)


@FILES.driver("writes nothing where a parent is missing")
class _NoParents(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        try:
            await self.driver.stat(posixpath.dirname(path))
        except FileNotFoundError:
            return
        await self.driver.write(path, data, mode=mode)


@FILES.driver("gives a mode to the owner alone")
class _OwnerOnly(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await self.driver.write(path, data, mode=None if mode is None else mode & 0o700)


@FILES.driver("gives every written file the usual mode")
class _UsualMode(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await self.driver.write(path, data, mode=0o644 if mode is None else mode)


@FILES.driver("overwrites a file that nobody may write")
class _Overrules(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        try:
            await self.driver.write(path, data, mode=mode)
        except PermissionError:
            if await self.type_of(path) != "file":
                raise
            await self.driver.remove(path)
            await self.driver.write(path, data, mode=mode)


@FILES.driver("empties a directory that is made again")
class _MakesAnew(Altered):
    async def make_dir(self, path: str) -> None:
        if await self.type_of(path) == "directory":
            with suppress(OSError):
                await self.driver.remove(path)
        await self.driver.make_dir(path)


@FILES.driver("makes no parents of a directory")
class _OneLevel(Altered):
    async def make_dir(self, path: str) -> None:
        try:
            await self.driver.stat(posixpath.dirname(path))
        except FileNotFoundError:
            return
        await self.driver.make_dir(path)


@FILES.driver("removes no files")
class _Keeps(Altered):
    async def remove(self, path: str) -> None:
        if await self.type_of(path) != "file":
            await self.driver.remove(path)


@FILES.driver("leaves an empty directory where it removed one")
class _LeavesEmpty(Altered):
    async def remove(self, path: str) -> None:
        directory = await self.type_of(path) == "directory"
        await self.driver.remove(path)
        if directory:
            await self.driver.make_dir(path)


@FILES.driver("removes everything whose name begins so")
class _Prefix(Altered):
    async def remove(self, path: str) -> None:
        with suppress(OSError):
            for entry in await self.driver.list(posixpath.dirname(path)):
                if entry.path.startswith(path) and entry.path != path:
                    await self.driver.remove(entry.path)
        await self.driver.remove(path)


@FILES.driver("counts sizes in blocks")
class _Blocks(Altered):
    async def stat(self, path: str) -> FileStat:
        found = await self.driver.stat(path)
        return replace(found, size=-(-found.size // 512) * 512) if found.type == "file" else found


@FILES.driver("does not know directories")
class _NoDirectories(Altered):
    async def stat(self, path: str) -> FileStat:
        found = await self.driver.stat(path)
        return replace(found, type="other") if found.type == "directory" else found


@FILES.driver("gives a name where stat gives a path")
class _NameOnly(Altered):
    async def stat(self, path: str) -> FileStat:
        return replace(await self.driver.stat(path), path=posixpath.basename(path) + "/")


@FILES.driver("knows the day of a change alone")
class _Days(Altered):
    async def stat(self, path: str) -> FileStat:
        found = await self.driver.stat(path)
        return replace(found, mtime=found.mtime // 86_400 * 86_400)


@FILES.driver("mistakes where a directory is")
class _Elsewhere(Altered):
    async def stat(self, path: str) -> FileStat:
        found = await self.driver.stat(path)
        return replace(found, real_path=self.workspace) if found.type == "directory" else found


@FILES.driver("lists backwards")
class _Backwards(Altered):
    async def list(self, path: str) -> list[FileStat]:
        return (await self.driver.list(path))[::-1]


@FILES.driver("lists twenty entries at most")
class _Twenty(Altered):
    async def list(self, path: str) -> list[FileStat]:
        return (await self.driver.list(path))[:20]


@FILES.driver("lists names instead of paths")
class _Names(Altered):
    async def list(self, path: str) -> list[FileStat]:
        return [replace(entry, path=entry.name) for entry in await self.driver.list(path)]


@FILES.driver("lists directories as files")
class _AllFiles(Altered):
    async def list(self, path: str) -> list[FileStat]:
        return [replace(entry, type="file") if entry.type == "directory" else entry
                for entry in await self.driver.list(path)]  # fmt: skip


@FILES.driver("lists an empty directory as itself")
class _Itself(Altered):
    async def list(self, path: str) -> list[FileStat]:
        return await self.driver.list(path) or [await self.driver.stat(path)]


@FILES.driver("lists what is deeper too")
class _Deep(Altered):
    async def list(self, path: str) -> list[FileStat]:
        entries = await self.driver.list(path)
        deeper: list[FileStat] = []
        for entry in entries:
            with suppress(OSError):  # what is no directory, too
                deeper += await self.driver.list(entry.path)
        return entries + deeper


@FILES.driver("drops a write that comes while another runs")
class _OneAtATime(Altered):
    busy = False

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        if self.busy:
            return
        self.busy = True
        try:
            await self.driver.write(path, data, mode=mode)
        finally:
            self.busy = False


@FILES.driver("never finishes a second closing")
class _ClosesOnce(Altered):
    closed = False

    async def close(self) -> None:
        if self.closed:
            await anyio.sleep_forever()
        self.closed = True
        await self.driver.close()


@FILES.driver("reads from what it remembers when it is closed")
class _Remembers(Altered):
    closed = False

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        return b"" if self.closed else await self.driver.read(path, start=start, length=length)

    async def close(self) -> None:
        self.closed = True
        await self.driver.close()


@FILES.driver("reads what was last written, whatever commands did")
class _Cache(Altered):
    def __init__(self, driver: Driver, options: dict[str, Any]) -> None:
        super().__init__(driver, options)
        self.written: dict[str, bytes] = {}

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        data = await self.driver.read(path, start=start, length=length)
        return self.written.get(path, data) if (start, length) == (0, None) else data

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await self.driver.write(path, data, mode=mode)
        self.written[path] = data
