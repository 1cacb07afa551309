"""Tools that note who is inside a lane with whom, and fail where two are that must not be."""

from typing import Any

import anyio

from handrail import Context, Policy, Sandbox, Session, Tool, tool
from handrail.testing import MemoryDriver

OPEN = Policy(mode="open")


def doing(naps: int = 0, *inner: tuple[str, Any]) -> dict[str, Any]:
    """Arguments: how long to stay, and what to call inside, all at once."""
    return {"naps": naps, "inner": list(inner)}


class World:
    """What is inside now, and what has happened. Each body notes its coming and going."""

    def __init__(self) -> None:
        self.inside: list[tuple[str, bool, tuple[str, ...]]] = []
        self.order: list[str] = []
        self.together = 0

    def line(self, context: Context) -> tuple[str, ...]:
        """The calls around this one, and itself."""
        lines = context.state.setdefault("lines", {})
        lines[context.call.id] = (*lines.get(context.call.parent, ()), context.call.id)
        return lines[context.call.id]  # type: ignore[no-any-return]

    async def visit(self, context: Context, writes: bool, naps: int, inner: list[Any]) -> None:
        line = self.line(context)
        for id, also_writes, their_line in self.inside:
            strangers = id not in line and context.call.id not in their_line
            nested = len(line) > 1 or len(their_line) > 1
            assert not (strangers and writes and also_writes), f"two writers: {context.call.id} beside {id}"
            assert not (strangers and (writes or also_writes) and not nested), f"{context.call.id} beside {id}"
        me = (context.call.id, writes, line)
        self.inside.append(me)
        self.order.append(context.call.id)
        self.together = max(self.together, len(self.inside))
        try:
            for _ in range(naps):
                await anyio.sleep(0)  # noqa: ASYNC115
            async with anyio.create_task_group() as group:
                for name, arguments in inner:
                    group.start_soon(context.use, name, arguments)
        finally:
            self.inside.remove(me)

    def tools(self) -> list[Tool]:
        async def look(context: Context, naps: int, inner: list[Any]) -> None:
            await self.visit(context, False, naps, inner)

        async def change(context: Context, naps: int, inner: list[Any]) -> None:
            await self.visit(context, True, naps, inner)

        async def free(context: Context, naps: int, inner: list[Any]) -> None:
            self.line(context)
            async with anyio.create_task_group() as group:
                for name, arguments in inner:
                    group.start_soon(context.use, name, arguments)

        return [
            tool(effects=["reads"], needs=["files"])(look),
            tool(effects=["writes"], needs=["files"])(change),
            tool(lane="none", effects=["writes"])(free),
        ]

    def session(self, *tools: Tool, sandbox: Sandbox | None = None, policy: Policy = OPEN, **options: Any) -> Session:
        """On a sandbox, in which nobody is asked."""
        used = Sandbox(MemoryDriver()) if sandbox is None else sandbox
        return Session([*tools, *self.tools()], sandbox=used, policy=policy, state={}, **options)
