"""A session with the built-in tools on any driver, and the files it works on, seen from outside."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any
from zlib import crc32

import anyio

from handrail import Failure, Policy, Result, Sandbox, Session, Success, open_sandbox
from handrail.contract.clock import Clock
from handrail.contract.event import Reader
from handrail.testing import MemoryDriver
from handrail.toolkit.gate import Gate
from handrail.toolkit.tool import Tool, tool
from handrail.tools.builtin import builtin_tools

REAL = ("jail", "host")
EVERY = (*REAL, "memory")
NO_PROGRAMS = "/var/empty"
"""A PATH on which nothing is found."""


class Person:
    """Answers every question with the question itself, and remembers what was asked and how the work ended.

    A question counts only if the clock stands while it is asked: else nobody could take the time to answer.
    """

    def __init__(self) -> None:
        self.summaries: list[str] = []
        self.asked: list[tuple[str, list[str]]] = []
        self.clock: Clock | None = None
        """Of the call that asks, where somebody notes it here."""

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        before = None if self.clock is None else self.clock.now()
        await anyio.sleep(0.02)
        if self.clock is None or self.clock.now() == before:
            self.asked.append((question, list(choices)))
        return f"{question} {list(choices)}"

    async def spawn(
        self, prompt: str, *, role: str = "", tools: Sequence[str] | None = None, cwd: str | None = None
    ) -> Result:
        """Answers a task with a number that stands for what it was asked."""
        asked = crc32(f"{prompt} {role} {tools} {cwd}".encode())
        return Success({"task": "1", "text": f"{asked}", "artifacts": []})

    def finish(self, summary: str) -> None:
        self.summaries.append(summary)


class World:
    """One sandbox and one session."""

    def __init__(self, driver: str, root: Path, sandbox: Sandbox, session: Session, person: Person) -> None:
        self.driver = driver
        self.root = root
        self.sandbox = sandbox
        self.session = session
        self.person = person

    async def call(self, name: str, /, **arguments: Any) -> Result:
        """Each call as if it were the first of its turn."""
        self.session.begin_run()
        return await self.session.call(name, arguments)

    async def value(self, name: str, /, **arguments: Any) -> Any:
        result = await self.call(name, **arguments)
        assert result.ok, result
        return result.value

    async def failure(self, name: str, /, **arguments: Any) -> Failure:
        result = await self.call(name, **arguments)
        assert isinstance(result, Failure), result
        return result

    async def put(self, name: str, content: str | bytes) -> None:
        """As somebody else would, behind the session's back."""
        data = content.encode() if isinstance(content, str) else content
        if self.driver == "memory":
            await self.sandbox.write_bytes(name, data)
        else:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_bytes(data)

    async def get(self, name: str) -> bytes:
        if self.driver == "memory":
            return await self.sandbox.read_bytes(name)
        return (self.root / name).read_bytes()

    async def files(self) -> dict[str, bytes]:
        """Everything in the workspace that is a plain file and not huge."""
        if self.driver == "memory":
            return await self._memory(".")
        plain = [path for path in sorted(self.root.rglob("*")) if path.is_file() and path.stat().st_size < 1 << 20]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in plain}

    async def _memory(self, top: str) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for entry in await self.sandbox.list(top):
            if entry.type == "directory":
                found |= await self._memory(entry.path)
            else:
                found[entry.path.removeprefix(self.sandbox.cwd + "/")] = await self.sandbox.read_bytes(entry.path)
        return found


@tool(deferred=True)
async def weather() -> str:
    """Tell how warm it is."""
    return "18 degrees"


@tool(deferred=True)
async def rain() -> str:
    """Tell how warm the rain is."""
    return "9 degrees"


def tools_for(driver: str) -> list[Tool]:
    """All that the driver can serve: in memory nothing runs."""
    return [tool for tool in builtin_tools("all") if driver != "memory" or "exec" not in tool.needs]


@asynccontextmanager
async def opened(driver: str, root: Path, options: Any) -> AsyncIterator[Sandbox]:
    """A new sandbox on `root`."""
    if driver == "memory":
        async with Sandbox(MemoryDriver()) as sandbox:
            yield sandbox
        return
    root.mkdir(parents=True, exist_ok=True)
    async with open_sandbox(driver, workspace=str(root), allow_weaker=driver == "host", **options) as sandbox:
        yield sandbox


@asynccontextmanager
async def world(
    driver: str,
    root: Path,
    *,
    gates: Sequence[Gate] | None = None,
    readers: Sequence[Reader] = (),
    instead: Sequence[Tool] = (),
    **options: Any,
) -> AsyncIterator[World]:
    """A session in a new sandbox on `root`, with other tools `instead` of the built-in ones of their names."""
    person: Any = Person()
    tools = [*(each for each in tools_for(driver) if each.name not in {other.name for other in instead}), *instead]
    async with opened(driver, root, options) as sandbox:
        session = Session(
            [*tools, weather, rain], sandbox=sandbox, host=person, state=person, gates=gates, readers=readers,
            policy=Policy(mode="open"),
        )  # fmt: skip
        async with session:
            yield World(driver, root, sandbox, session, person)


@contextmanager
def in_time(seconds: float = 90) -> Iterator[None]:
    """Nothing hangs: neither what waits nor what keeps everybody else from running."""
    began = monotonic()
    with anyio.fail_after(seconds):
        yield
    assert monotonic() - began < seconds
