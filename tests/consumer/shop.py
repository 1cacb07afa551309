"""A program that somebody else might write on Handrail: its own tools, gate, model and driver, all of them typed.

It is read by `mypy --strict` and by pyright, which must agree with every `assert_type`, and it is run by a test.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, assert_type

from handrail import (
    STANDARD,
    Agent,
    ApprovalRequest,
    Approver,
    ArtifactRef,
    Budget,
    Call,
    Chunk,
    Command,
    Completed,
    Context,
    Decision,
    Driver,
    Event,
    Failure,
    Feature,
    FileStat,
    Gate,
    Job,
    Limits,
    Message,
    Model,
    ModelEvent,
    Mount,
    Next,
    Outcome,
    Policy,
    Process,
    Result,
    Rule,
    Sandbox,
    Session,
    Step,
    Success,
    TextDelta,
    Tool,
    Toolbox,
    ToolFailed,
    Turn,
    Unavailable,
    Usage,
    WeakerThanAsked,
    builtin_tools,
    open_sandbox,
    read_envelope,
    tool,
)


@dataclass
class Shop:
    """What the caller gives to its session, and every tool sees as `context.state`."""

    stock: dict[str, int] = field(default_factory=dict)
    audited: list[str] = field(default_factory=list)


@tool
def price(item: str, count: int = 1) -> float:
    """What some of an item cost."""
    return 1.5 * count


@tool(risk="high", effects=["spends"], timeout=5, lane="till")
async def order(item: str, count: int, context: Context[Shop]) -> str:
    """Order some of an item."""
    assert_type(context.state, Shop)
    context.state.stock[item] = context.state.stock.get(item, 0) + count
    context.show(f"ordering {item}")
    return f"{count} of {item}"


async def look(context: Context, arguments: Mapping[str, Any]) -> Any:
    assert_type(context.state, Any)
    if arguments["item"] not in context.state.stock:
        raise ToolFailed(Failure("not_found", f"There is no {arguments['item']}."))
    return context.state.stock[arguments["item"]]


by_hand = Tool("look", {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}, look)


async def plain_functions() -> None:
    """Calling a tool calls its function, with the function's own types: for its unit tests."""
    assert_type(price("apples"), float)
    assert_type(price("apples", count=3), float)
    assert price("apples", count=3) == 4.5
    assert_type(price.name, str)


async def audit(step: Step, proceed: Next) -> Result:
    """A gate of one's own: it is awaited before every tool that may run."""
    step.context.state.audited.append(f"{step.tool.name} {dict(step.arguments)}")
    return await proceed(step)


at = STANDARD.index(next(gate for gate in STANDARD if getattr(gate, "__name__", "") == "lane"))
gates: Sequence[Gate] = [*STANDARD[:at], audit, *STANDARD[at:]]


async def approve_small(request: ApprovalRequest) -> Decision:
    return Decision.approve() if request.arguments["count"] < 10 else Decision.deny("That is too much.")


approver: Approver = approve_small


def read(result: Result) -> str:
    """Both kinds of result have all fields, so that none of this needs a cast."""
    assert_type(result.message, str)
    assert_type(result.warnings, tuple[str, ...])
    text = result.value if result.ok else result.message
    if isinstance(result, Failure):
        assert_type(result.data, Mapping[str, Any])
        return f"{result.kind}: {text}"
    assert_type(result, Success)
    return str(text)


class Echo:
    """A model of one's own: it asks for one call, then says what came of it."""

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, system: str
    ) -> AsyncIterator[ModelEvent]:
        last = messages[-1]
        yield TextDelta("…")
        if last.role == "user":
            yield Turn(calls=(Call("1", "look", {"item": last.text}),), stop="tool_use", usage=Usage(1, 1))
        else:
            yield Turn(f"It is {last.results[0].value}.")


class Shelf:
    """A driver of one's own that keeps files in a dict and runs nothing."""

    features: frozenset[Feature] = frozenset({"files"})

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    async def start(self, command: Command) -> Process:
        raise Unavailable(f"{command.line or command.argv} cannot be run on a shelf.", retryable=False)

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path][start : None if length is None else start + length]

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        self.files[path] = data

    async def stat(self, path: str) -> FileStat:
        if path in self.files:
            return FileStat(path, path, "file", len(self.files[path]), 0o644, 0.0)
        if path == "/" or any(name.startswith(f"{path}/") for name in self.files) or path == "/workspace":
            return FileStat(path, path, "directory", 0, 0o755, 0.0)
        raise FileNotFoundError(path)

    async def list(self, path: str) -> list[FileStat]:
        return [await self.stat(name) for name in sorted(self.files) if name.rpartition("/")[0] == path]

    async def make_dir(self, path: str) -> None: ...

    async def remove(self, path: str) -> None:
        self.files.pop(path, None)

    async def close(self) -> None: ...


async def with_a_driver() -> bytes:
    shelf: Driver = Shelf()
    async with open_sandbox(shelf) as sandbox:
        assert_type(sandbox, Sandbox)
        await sandbox.write_text("note.txt", "kept")
        assert_type(await sandbox.read_text("note.txt"), str)
        return await sandbox.read_bytes("note.txt")


async def with_commands(workspace: str, seen: Callable[[Chunk], Awaitable[None] | None]) -> tuple[Completed, Job]:
    mounts, limits = [Mount("/usr/share/doc")], Limits(processes=64)
    try:
        async with open_sandbox(workspace=workspace, limits=limits, mounts=mounts) as sandbox:
            done = await sandbox.run(["true"], timeout=5, on_output=seen)
            job = await sandbox.start("sleep 60")
            assert_type(done.exit_code, int)
            assert_type(job.poll(), int | None)
            return done, job
    except WeakerThanAsked as error:
        raise SystemExit(str(error)) from error


async def with_an_agent(shop: Shop) -> Outcome:
    model: Model = Echo()
    toolbox = Toolbox([price, order, by_hand])
    async with Session(toolbox, state=shop) as session:
        outcome = await Agent(model, session=session).run("apples")
    assert_type(outcome.text, str)
    return outcome


async def main(seen: list[Event]) -> list[str]:
    """Everything but the commands, for which a machine has to have a jail."""
    shop = Shop({"apples": 3})
    policy = Policy(ask=[Rule("order(item=*)")], deny=["risk:critical"], mode="contained")
    await plain_functions()
    async with Session(
        [price, order, by_hand], policy=policy, approver=approver, budget=Budget(calls=20), state=shop, gates=gates,
        readers=[seen.append],
    ) as session:  # fmt: skip
        results = [
            await session.call("order", {"item": "pears", "count": 2}),
            await session.call("order", {"item": "pears", "count": 20}),
            await session.call("look", '{"item": "plums"}'),
        ]
        inner = await session.call("price", {"item": "pears"}, parent="call_1", origin="script")
    again = read_envelope('{"ok": false, "kind": "timeout", "message": "too long"}')
    provider: Literal["mcp"] = "mcp"
    assert [schema["name"] for schema in session.schemas(provider)] == ["look", "order", "price"]
    assert [each.name for each in builtin_tools("read_only") if each.risk != "safe"] == []
    assert ArtifactRef("a_1").to_wire()["$artifact"] == "a_1"
    outcome = await with_an_agent(shop)
    return [*map(read, [*results, inner, again]), outcome.text, (await with_a_driver()).decode(), *shop.audited]
