"""Keep the whole of a command's output where the model can read it, without having it in memory."""

from collections.abc import AsyncIterator, Awaitable, Callable
from inspect import isawaitable
from typing import Final

from handrail.artifacts.scope import TEXT, Scope
from handrail.contract.result import ArtifactRef

STEP: Final = 1 << 20
Read = Callable[[int, int], bytes | Awaitable[bytes]]
"""`read(start, length)`: shorter at the end, empty behind it."""


async def keep_stream(artifacts: Scope, read: Read, name: str | None = None, *, media_type: str = TEXT) -> ArtifactRef:
    """Store everything that `read` gives, piece by piece. Raises what `read` raises; then nothing is stored."""
    return await artifacts.put_stream(_chunks(read), media_type=media_type, name=name)


async def _chunks(read: Read) -> AsyncIterator[bytes]:
    start = 0
    while True:
        given = read(start, STEP)
        data = await given if isawaitable(given) else given
        if not data:
            return
        yield data
        start += len(data)
