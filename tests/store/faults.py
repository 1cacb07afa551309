"""Programs that meet a store that fails, each in a process of its own: `python faults.py NAME DIRECTORY [UID]`.

It says ok at the end.
"""

import asyncio
import os
import resource
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from handrail import HandrailError, Session, Store
from handrail.lazy import load_all

ran: list[int] = []


async def note(n: int) -> int:
    """Note it."""
    ran.append(n)
    return n


def same(store: Store, session: Session) -> None:
    assert list(store.events(session.id)) == list(session.trace)


def refused(result: object, *words: str) -> None:
    kind, message, data = (getattr(result, name) for name in ("kind", "message", "data"))
    assert (kind, data) == ("unavailable", {"started": False}), result
    assert any(word in message for word in words), message


async def later(write: Callable[[], object]) -> None:
    write()


async def must_say(word: str, doing: Awaitable[object]) -> None:
    """Fail unless it raises a HandrailError with the word in it."""
    try:
        await doing
    except HandrailError as error:
        if word in str(error):
            return
        raise
    raise AssertionError(f"nobody said {word!r}")


async def full(directory: Path) -> None:
    """The file system of the store has no room, and then has some again."""
    ballast = directory / "ballast"
    store = Store(directory / "sessions.db")
    async with Session([note], store=store, id="s") as session:
        assert (await session.call("note", {"n": 1})).ok
        with ballast.open("wb", buffering=0) as file:
            for size in (4096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    pass
        n = 2
        while (result := await session.call("note", {"n": n})).ok:  # until what SQLite has reserved is used up
            n += 1
        refused(result, "is full")
        refused(await session.call("note", {"n": n + 1}), "is full")
        done = list(range(1, n))
        assert ran == done
        ballast.unlink()
        assert (await session.call("note", {"n": 0})).ok
        assert ran == [*done, 0]
    same(store, session)
    async with Session.resume(store, "s", tools=[note]) as again:
        assert (await again.call("note", {"n": 0})).ok


async def full_at_the_end(directory: Path) -> None:
    """It stays full: closing counts what is missing, and what was stored can be resumed once there is room."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    store = Store(directory / "sessions.db")
    session = Session([note], store=store, id="s")
    await session.__aenter__()
    n = 0
    while (result := await session.call("note", {"n": n})).ok:
        n += 1
        session.emit("warning", data={"message": "x" * 5_000})
    refused(result, "full", "disk I/O error", "File too large")
    await must_say("events of the session are not in its store", session.__aexit__(None, None, None))
    store.close()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    stored = list(store.events("s"))
    assert stored == list(session.trace)[: len(stored)]
    async with Session.resume(store, "s", tools=[note]) as again:
        assert (await again.call("note", {"n": 1})).ok
    same(store, again)


async def read_only(directory: Path) -> None:
    """It can be read, and what would write says why it cannot."""
    store = Store(directory / "sessions.db")
    (summary,) = store.sessions()
    assert (summary.id, summary.calls) == ("s", 1)
    assert len(list(store.events("s"))) == 4
    assert len(list(store.export("s"))) == 5
    why = "cannot be claimed: " + ("Permission denied" if os.getuid() else "Read-only file system")
    for write in (
        lambda: Session.resume(store, "s", tools=[note]),
        lambda: Session([note], store=store),
        lambda: store.fork("s"),
        lambda: store.remove("s"),
        lambda: store.load(list(store.export("s"))),
    ):
        await must_say(why, later(write))


async def read_only_file(directory: Path) -> None:
    """Only the database itself may not be written: calls are refused, and closing says what is missing."""
    store = Store(directory / "sessions.db")
    session = Session.resume(store, "s", tools=[note])
    await session.__aenter__()
    refused(await session.call("note", {"n": 1}), "may not be written")
    assert not ran
    await must_say("may not be written", session.__aexit__(None, None, None))
    assert len(list(store.events("s"))) == 4


async def make(directory: Path) -> None:
    """A store to be met later."""
    with Store(directory / "sessions.db") as store:
        async with Session([note], store=store, id="s") as session:
            assert (await session.call("note", {"n": 1})).ok


if __name__ == "__main__":
    os.umask(0o022)
    load_all()  # another user may not be able to read the files
    if len(sys.argv) > 3:
        os.setgroups([])
        os.setgid(int(sys.argv[3]))
        os.setuid(int(sys.argv[3]))
    asyncio.run(globals()[sys.argv[1]](Path(sys.argv[2])))
    print("ok")
