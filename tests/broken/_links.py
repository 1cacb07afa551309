"""Drivers that mistake links and pipes for something else."""

from contextlib import suppress
from dataclasses import replace
from typing import Final

from handrail.contract.driver import FileStat
from tests.broken.altered import Altered, Catalogue

LINKS: Final = Catalogue("files")
MOST: Final = 64 << 10


@LINKS.driver("does not resolve links")
class _Unresolved(Altered):
    async def stat(self, path: str) -> FileStat:
        return replace(await self.driver.stat(path), real_path=path)


@LINKS.driver("takes a dangling link for a file")
class _Dangling(Altered):
    async def stat(self, path: str) -> FileStat:
        found = await self.driver.stat(path)
        return replace(found, type="file") if found.type == "symlink" else found


@LINKS.driver("lists links as links")
class _Links(Altered):
    async def list(self, path: str) -> list[FileStat]:
        return [replace(it, type="symlink") if it.real_path != it.path else it for it in await self.driver.list(path)]


@LINKS.driver("replaces a link by what is written to it")
class _ReplacesLinks(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        try:
            if (await self.driver.stat(path)).real_path != path:
                await self.driver.remove(path)
        except OSError:
            pass
        await self.driver.write(path, data, mode=mode)


@LINKS.driver("removes what a link leads to")
class _RemovesTarget(Altered):
    async def remove(self, path: str) -> None:
        with suppress(OSError):
            await self.driver.remove((await self.driver.stat(path)).real_path)
            return
        await self.driver.remove(path)


@LINKS.driver("removes what links in a directory lead to")
class _RemovesTargets(Altered):
    async def remove(self, path: str) -> None:
        try:
            entries = await self.driver.list(path)
        except OSError:
            entries = []
        for entry in entries:
            if entry.real_path != entry.path and entry.type != "symlink":
                with suppress(OSError):
                    await self.driver.remove(entry.real_path)
        await self.driver.remove(path)


@LINKS.driver("takes a pipe for a file")
class _PipeIsFile(Altered):
    async def stat(self, path: str) -> FileStat:
        found = await self.driver.stat(path)
        return replace(found, type="file") if found.type == "other" else found


def _reads_other(device: bool) -> type[Altered]:
    class Reads(Altered):
        async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
            try:
                return await self.driver.read(path, start=start, length=length)
            except PermissionError:
                if path.startswith("/dev/") != device or await self.type_of(path) != "other":
                    raise
                return bytes(min(length or 0, MOST))

    return Reads


LINKS.add("reads a pipe as empty", _reads_other(device=False))
LINKS.add("reads from an endless device", _reads_other(device=True))


@LINKS.driver("puts a file in the place of a pipe")
class _ReplacesPipe(Altered):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        try:
            await self.driver.write(path, data, mode=mode)
        except PermissionError:
            if await self.type_of(path) != "other":
                raise
            await self.driver.remove(path)
            await self.driver.write(path, data, mode=mode)
