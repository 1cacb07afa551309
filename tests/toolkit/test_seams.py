"""What was written for another system runs here as it is: objects with `execute`, envelopes, commands as values."""

from typing import Any

import pytest

from handrail import Command, Context, HandrailError, Sandbox, Session, Tool, Unavailable, open_sandbox, tool
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
