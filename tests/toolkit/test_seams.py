"""What was written for another system runs here as it is: objects with `execute`, envelopes, commands as values."""

import inspect
from enum import Enum, IntEnum, StrEnum
from typing import Any, ClassVar

import pytest

from handrail import Command, Context, HandrailError, Sandbox, Session, Tool, Toolbox, Unavailable, open_sandbox, tool
from handrail import ReadFile as BackendToolFilesRead
from handrail.testing import MemoryDriver

pytestmark = pytest.mark.anyio
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


class Looks:
    """A tool of another system."""

    name = "look"
    description = "Look at it."
    parameters = PATH
    effects = ("reads",)

    def execute(self, path: str) -> str:
        return f"seen {path}"


class Waits(Looks):
    name = "wait"

    async def execute(self, path: str) -> str:  # type: ignore[override]
        return f"waited for {path}"


class Both(Looks):
    name = "both"

    async def __call__(self, context: Context, arguments: Any) -> str:
        return f"called with {dict(arguments)}"


async def test_an_object_with_execute_is_a_tool() -> None:
    async with Session([Looks(), Waits(), Both()]) as session:
        assert (await session.call("look", '{"path": "a"}')).value == "seen a"
        assert (await session.call("wait", '{"path": "a"}')).value == "waited for a"
        assert (await session.call("both", '{"path": "a"}')).value == "called with {'path': 'a'}"
        bounced = await session.call("look", '{"path": 7, "more": []}')
        assert not bounced.ok or bounced.warnings, "its schema is checked before anything runs"
        assert session.toolbox.find("look").effects == {"reads"}
    with pytest.raises(HandrailError, match="execute"):
        Session([type("Bare", (), {"name": "bare", "parameters": PATH})()])


CALLS: dict[str, Any] = {
    "execute(ctx, path)": ("execute", lambda self, ctx, path: (ctx, path)),
    "execute(*, ctx=None, **args)": ("execute", lambda self, *, ctx=None, **args: (ctx, args["path"])),
    "execute(path, context)": ("execute", lambda self, path, context: (context, path)),
    "execute(**args)": ("execute", lambda self, **args: (None if set(args) == {"path"} else args, args["path"])),
    "__call__(ctx, path)": ("__call__", lambda self, ctx, path: (ctx, path)),
    "__call__(session, **args)": ("__call__", lambda self, session, **args: (session, args["path"])),
    "__call__(session, *, path)": ("__call__", lambda self, session, *, path: (session, path)),
    "__call__(path)": ("__call__", lambda self, path: (None, path)),
    "__call__(**args)": ("__call__", lambda self, **args: (None, args["path"])),
    "__call__(session, arguments)": ("__call__", lambda self, session, arguments: (session, arguments["path"])),
    "__call__(a, b)": ("__call__", lambda self, a, b: (a, b["path"])),
    "__call__(*all)": ("__call__", lambda self, *all: (all[0], all[1]["path"])),
}


@pytest.mark.parametrize("form", CALLS)
@pytest.mark.parametrize("waits", [True, False])
async def test_an_object_gets_the_context_where_it_asks_for_it(form: str, waits: bool) -> None:
    method, body = CALLS[form]
    seen: list[Any] = []

    class Theirs:
        name = "theirs"
        parameters = PATH

    def run(self: Any, /, *args: Any, **named: Any) -> str:
        seen.append(body(self, *args, **named))
        return "ran"

    async def run_async(self: Any, /, *args: Any, **named: Any) -> str:
        return run(self, *args, **named)

    made = run_async if waits else run
    made.__signature__ = inspect.signature(body)  # type: ignore[attr-defined]
    setattr(Theirs, method, made)
    async with Session([Theirs()]) as session:
        result = await session.call("theirs", {"path": "a"})
    assert result.value == "ran", result
    (context, path) = seen[0]
    assert path == "a"
    assert isinstance(context, Context) == (form not in ("execute(**args)", "__call__(path)", "__call__(**args)"))
    assert context is None or isinstance(context, Context)


async def test_a_property_that_is_called_as_the_context_is_an_argument() -> None:
    class Theirs:
        name = "theirs"
        parameters: ClassVar[dict[str, Any]] = {"type": "object", "properties": {"ctx": {"type": "string"}}}

        def execute(self, ctx: str) -> str:
            return ctx

    async with Session([Theirs()]) as session:
        assert (await session.call("theirs", {"ctx": "mine"})).value == "mine"


class Level(IntEnum):
    SAFE = 0
    HIGH = 1
    CRITICAL = 2


class Word(Enum):
    ONE = "HIGH"
    TWO = "unheard of"


class Text(StrEnum):
    CRITICAL = "critical"


@pytest.mark.parametrize(
    ("given", "risk"),
    [(Level.SAFE, "safe"), (Level.CRITICAL, "critical"), (Word.ONE, "high"), (Text.CRITICAL, "critical")],
)
def test_a_risk_may_be_a_member_of_an_enum(given: Any, risk: str) -> None:
    made = Tool("t", PATH, lambda context, arguments: 1, risk=given)
    assert (made.risk, type(made.risk)) == (risk, str)
    decorated = tool(name="t", description="x", risk=given)(lambda: 1)
    assert decorated.risk == risk
    theirs = type("Theirs", (Looks,), {"risk": given})()
    assert Toolbox([theirs]).find("look").risk == risk


def test_an_enum_that_means_no_risk_is_refused() -> None:
    for wrong in (Word.TWO, "HIGH", 1):
        with pytest.raises(HandrailError, match="risk"):
            Tool("t", PATH, lambda context, arguments: 1, risk=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("returned", "warned"),
    [
        ({"ok": False, "error": "It broke."}, True),
        ({"ok": False}, True),
        ({"ok": True, "result": 1}, False),
        ({"ok": 0}, False),
        ({"inner": {"ok": False}}, False),
        ('{"ok": false}', False),
    ],
)
async def test_an_object_that_says_it_is_not_ok_is_a_success_with_a_warning(returned: Any, warned: bool) -> None:
    plain = Tool("plain", {"type": "object"}, lambda context, arguments: returned)
    async with Session([plain]) as session:
        result = await session.call("plain")
    assert result.ok
    assert result.value == returned
    assert bool(result.warnings) == warned
    assert not warned or 'returns="envelope"' in result.warnings[0]


ENVELOPES: list[tuple[Any, Any]] = [
    ({"ok": True, "result": {"n": 1}}, {"n": 1}),
    ('{"ok": true, "result": {"text": "hi"}, "warnings": ["w"]}', "hi"),
    ({"ok": True, "n": 1, "tool": "x"}, {"n": 1}),
    ({"ok": False, "kind": "not_found", "message": "No such file."}, "not_found: No such file."),
    ({"ok": False, "error": "It broke."}, "execution_error: It broke."),
    ("[TIMEOUT] too slow", "timeout: too slow"),
]


@pytest.mark.parametrize(("returned", "expected"), ENVELOPES)
async def test_an_envelope_that_a_body_returns_is_its_result(returned: Any, expected: Any) -> None:
    made = Tool("answers", {"type": "object"}, lambda context, arguments: returned, returns="envelope")
    plain = Tool("plain", {"type": "object"}, lambda context, arguments: returned)
    async with Session([made, plain]) as session:
        result = await session.call("answers")
        assert (result.value if result.ok else f"{result.kind}: {result.message}") == expected
        assert (await session.call("plain")).value == returned, "a control: without it, it is a value like any other"


@pytest.mark.parametrize("returned", ["hi", {"n": 1}, None, 7, "{", {"ok": "yes"}, {"ok": True, "warnings": 7}])
async def test_what_is_no_envelope_is_the_mistake_of_the_tool(returned: Any) -> None:
    @tool(returns="envelope")
    def answers() -> dict[str, Any]:
        """Answer."""
        return returned  # type: ignore[no-any-return]

    async with Session([answers]) as session:
        result = await session.call("answers")
    assert not result.ok
    assert result.kind == "execution_error"
    assert "did not return an envelope" in result.message
    with pytest.raises(HandrailError, match="envelope"):
        Tool("answers", {"type": "object"}, lambda context, arguments: 1, returns="json")  # type: ignore[arg-type]


async def test_a_body_can_require_the_sandbox() -> None:
    @tool
    async def looks(context: Context) -> str:
        """Look."""
        await context.require_sandbox().write_text("a", "b")
        return await context.require_sandbox().read_text("a")

    async with Session([looks], sandbox=Sandbox(MemoryDriver())) as session:
        assert (await session.call("looks")).value == "b"
    async with Session([looks]) as session:
        result = await session.call("looks")
        assert not result.ok
        assert result.kind == "unavailable"


FlowToolCall = object


class ReadTextTool(FlowToolCall):
    """As OpenRath's page prints it; only its imports were replaced."""

    @property
    def name(self):  # type: ignore[no-untyped-def]
        return "read_text"

    @property
    def parameters(self):  # type: ignore[no-untyped-def]
        return {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        }

    def __call__(self, session, arguments):  # type: ignore[no-untyped-def]
        call = BackendToolFilesRead(path=str(arguments["path"]))
        return session.require_sandbox().dispatch(call)


async def test_a_tool_of_openrath_runs_as_it_was_printed() -> None:
    async with Session([ReadTextTool()], sandbox=Sandbox(MemoryDriver({"a": "apple"}))) as session:
        assert (await session.call("read_text", {"path": "a"})).value == "apple"
        assert (await session.call("read_text", {"path": "gone"})).kind == "not_found"
        assert (await session.call("read_text", {})).kind == "invalid_args"


async def test_a_command_as_a_value_runs_to_its_end() -> None:
    async with open_sandbox() as sandbox:
        done = await sandbox.dispatch(Command(line="echo $WHO | tr a-z A-Z; pwd", env={"WHO": "me"}, cwd="/tmp"))
        assert (done.stdout, done.exit_code) == ("ME\n/tmp\n", 0)
        assert (await sandbox.dispatch(Command(argv=("printf", "%s", "a b")))).stdout == "a b"
        assert (await sandbox.dispatch(Command(line="setsid sleep 99 & sleep 99", timeout=1))).ended_by == "timeout"
        for wrong in (Command(), Command(argv=("a",), line="a"), Command(line="cat", input=True), "ls"):
            with pytest.raises(ValueError, match=r"dispatch\(\)"):
                await sandbox.dispatch(wrong)  # type: ignore[arg-type]
    with pytest.raises(Unavailable):
        await sandbox.dispatch(Command(line="true"))
