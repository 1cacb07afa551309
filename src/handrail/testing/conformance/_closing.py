"""Checks of closing: nothing lives on when a driver is closed. They are seen from this machine, where it can look."""

import os
from typing import Final

import anyio

from handrail.testing.conformance._trees import HOLD, SHAPES
from handrail.testing.conformance.check import Group, NotTried, Seen
from handrail.testing.conformance.fixture import LOOK, Fixture, Open

CLOSING: Final = Group("tree_kill")


async def _pipe(fixture: Fixture) -> int:
    """Make a pipe inside; open its reading end on this machine. Raises NotTried if the files are elsewhere."""
    await fixture.needs("mkfifo", "setsid")
    await fixture.run("mkfifo alive")
    try:
        return os.open(fixture.at("alive"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise NotTried("the sandbox's files cannot be seen from this machine") from None


async def _read(pipe: int, patience: float, *, end: bool) -> bool:
    """Return whether a text comes, or the pipe has no writer any more."""
    with anyio.move_on_after(patience):
        while True:
            try:
                text = os.read(pipe, 100)
            except BlockingIOError:
                text = b"nothing yet"
            if (text == b"") if end else b"STARTED" in text:
                return True
            await anyio.sleep(LOOK)
    return False


async def _closed(open: Open, shape: str) -> Seen:
    fixture = await open(own=True)
    pipe = await _pipe(fixture)
    try:
        await fixture.start(HOLD + SHAPES[shape])
        started = await _read(pipe, fixture.patience * 5, end=False)
        await fixture.driver.close()
        dead = await _read(pipe, fixture.patience, end=True)
    finally:
        os.close(pipe)
    return Seen(f"close: {SHAPES[shape]}", started, True, dead)


for _shape in ("children in the background", "a child that ignores TERM", "a child in its own session"):
    CLOSING.add(f"closing ends {_shape}", _closed, _shape)


@CLOSING.check
async def a_closed_sandbox_leaves_no_job(open: Open) -> Seen:
    fixture = await open(own=True)
    pipe = await _pipe(fixture)
    try:
        sandbox = fixture.sandbox
        await sandbox.start(HOLD + SHAPES["a child in its own session"])
        started = await _read(pipe, fixture.patience * 5, end=False)
        await sandbox.close()
        dead = await _read(pipe, fixture.patience, end=True)
    finally:
        os.close(pipe)
    return Seen("Sandbox.close with a job", started, True, dead)
