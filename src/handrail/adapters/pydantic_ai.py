"""A session's tools as a toolset of pydantic-ai, and a sandbox as one of its workspaces."""

from dataclasses import dataclass
from typing import Any

import pydantic_core
from pydantic_ai import AbstractToolset, ApprovalRequired, BinaryContent, CustomEvent, RunContext, ToolDefinition
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_ai.workspaces import WorkspaceBackend

from handrail.adapters import _calls
from handrail.adapters._workspace import SandboxWorkspace
from handrail.misuse import expect
from handrail.sandbox.sandbox import Sandbox
from handrail.session.session import Session


def toolset(session: Session, *, approval: _calls.Approval = "ours") -> AbstractToolset[Any]:
    """The tools of an open session, for `Agent(toolsets=[…])`. Each run of the agent is a run of the session.

    `approval="framework"`: a call that needs approval ends the run with DeferredToolRequests, as ApprovalRequired does.
    """
    return _Toolset(_calls.checked(session, approval), asks=approval == "framework")


def workspace(sandbox: Sandbox) -> WorkspaceBackend:
    """An open sandbox as the workspace of an agent, whose tools then run commands and reach files in it alone."""
    expect("sandbox", sandbox, Sandbox, "an open sandbox: async with open_sandbox() as sandbox")
    return SandboxWorkspace(sandbox)


@dataclass(kw_only=True)
class HandrailOutput(CustomEvent):
    """A piece of what a running call shows, in the agent's stream of events."""

    stream: str
    text: str


class _AsWritten(dict[str, Any]):
    """Arguments that the framework may read, with the text that the model wrote."""

    text = ""


class _AnyArguments:
    """A validator that accepts any text: the session repairs and validates the arguments."""

    def validate_json(self, input: str | bytes | bytearray, **options: Any) -> dict[str, Any]:
        text = input if isinstance(input, str) else input.decode("utf-8", "replace")
        made = _AsWritten(_read(text))
        made.text = text
        return made

    def validate_python(self, input: Any, **options: Any) -> Any:
        return input


def _read(text: str) -> dict[str, Any]:
    try:
        read = pydantic_core.from_json(text)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


class _Toolset(AbstractToolset[Any]):
    def __init__(self, session: Session, *, asks: bool) -> None:
        self._session = session
        self._asks = asks  # otherwise the model is told what waits for approval
        self._asked: dict[str | None, str] = {}
        """Hash of the arguments, by the id of a call that waits for approval."""
        self._made: tuple[list[Any], dict[str, ToolsetTool[Any]]] = ([], {})

    @property
    def id(self) -> str:
        return f"handrail-{self._session.id}"

    async def for_run(self, ctx: RunContext[Any]) -> "AbstractToolset[Any]":
        self._session.begin_run()
        return self

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        await self._session.toolbox.refresh()
        schemas = self._session.schemas("mcp")
        if schemas != self._made[0]:
            self._made = schemas, {each["name"]: self._tool(each) for each in schemas}
        return self._made[1]

    def _tool(self, schema: dict[str, Any]) -> ToolsetTool[Any]:
        definition = ToolDefinition(
            name=schema["name"],
            description=schema.get("description", ""),
            parameters_json_schema=schema["inputSchema"],
            strict=False,
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=0, args_validator=_AnyArguments())

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        async def show(stream: str, text: str) -> None:
            await ctx.emit(HandrailOutput(stream=stream, text=text))

        arguments: str | dict[str, Any] = tool_args
        if isinstance(tool_args, _AsWritten) and tool_args == _read(tool_args.text):  # no hook has changed them
            arguments = tool_args.text
        id = ctx.tool_call_id
        approved = self._asked.pop(id, None) if ctx.tool_call_approved else None
        result = await _calls.run(self._session, name, arguments, id, show, approved)
        request = _calls.deferred(result, name) if self._asks else None
        if request and ctx.tool_call_approved:
            # The person changed the arguments, or approved them in another process: they are what was approved.
            result = await _calls.run(self._session, name, arguments, id, show, request["arguments_hash"])
        elif request:
            self._asked[id] = request["arguments_hash"]
            raise ApprovalRequired(metadata=request)
        text = _calls.text_of(result, name)
        pictures = [BinaryContent(each.data, media_type=each.media_type) for each in _calls.pictures_of(result)]
        return [text, *pictures] if pictures else text
