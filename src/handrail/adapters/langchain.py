"""A session's tools for LangChain, and the middleware of an agent that uses them."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_core.tools import BaseTool, ToolException

from handrail.adapters import _calls
from handrail.adapters._langchain_run import ends_with_its_run, shown_in_its_run
from handrail.contract.call import Arguments
from handrail.contract.errors import HandrailError
from handrail.contract.result import Result
from handrail.session.session import Session

NOT_JSON: Final = "not_json"
_call_id: ContextVar[str | None] = ContextVar("handrail_call_id", default=None)


def tools(session: Session) -> list[BaseTool]:
    """The tools of an open session, for `create_agent(tools=…)` or `bind_tools`; they are awaited.

    Without the middleware nobody tells where a run begins, so a default budget is replaced by one without a number of
    calls; the middleware brings it back.
    """
    _calls.without_runs(_calls.checked(session))
    return [
        _Tool(
            session=session,
            name=each["name"],
            description=each.get("description", ""),
            args_schema=dict(each["inputSchema"]),
        )
        for each in session.schemas("mcp")
    ]


def middleware(session: Session) -> AgentMiddleware[Any, Any, Any]:
    """Middleware for `create_agent(middleware=…)`: each run of the agent is a run of the session.

    And arguments that are not JSON reach the session. Without it such a call ends the agent's run, silently.
    """
    return _Middleware(_calls.checked(session))


class _Tool(BaseTool):
    session: Any
    handle_tool_error: Any = True

    async def arun(self, *args: Any, tool_call_id: str | None = None, **options: Any) -> Any:
        _call_id.set(tool_call_id)
        return await super().arun(*args, tool_call_id=tool_call_id, **options)

    async def _arun(self, /, **arguments: Any) -> Any:
        result = await _run(self.session, self.name, arguments, _call_id.get())
        if not result.ok:
            raise ToolException(_calls.text_of(result, self.name))  # becomes a message whose status is error
        return _content(result, self.name)

    def _run(self, /, **arguments: Any) -> Any:
        raise HandrailError(f"{self.name} belongs to a session, which is async; use ainvoke or astream")


async def _run(session: Session, name: str, arguments: Arguments, id: str | None) -> Result:
    with ends_with_its_run():
        return await _calls.run(session, name, arguments, id, shown_in_its_run(name, id))


def _content(result: Result, name: str) -> str | list[dict[str, Any]]:
    told = _calls.text_of(result, name)
    pictures = [
        {"type": "image", "base64": each.base64(), "mime_type": each.media_type} for each in _calls.pictures_of(result)
    ]
    return [{"type": "text", "text": told}, *pictures] if pictures else told


class _NotJson(str):
    """The arguments of a call as the model wrote them, which LangChain could not read."""


class _Middleware(AgentMiddleware[Any, Any, Any]):
    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    async def abefore_agent(self, state: Any, runtime: Any) -> None:
        _calls.with_runs(self._session).begin_run()

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        response = await handler(request)
        response.result = [self._readable(message) for message in response.result]
        return response

    def _readable(self, message: Any) -> Any:
        """The message with a call in place of each one that LangChain could not read."""
        if not isinstance(message, AIMessage) or not message.invalid_tool_calls:
            return message
        calls = list(message.tool_calls)
        for number, each in enumerate(message.invalid_tool_calls):
            arguments = {NOT_JSON: _NotJson(each["args"] or "")}
            calls.append(tool_call(name=each["name"] or "", args=arguments, id=each["id"] or f"{message.id}-{number}"))
        return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": []})

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        call = request.tool_call
        text = call["args"].get(NOT_JSON)
        if not isinstance(text, _NotJson) or call["name"] not in self._session.toolbox:
            return await handler(request)
        result = await _run(self._session, call["name"], str(text), call["id"])
        return ToolMessage(
            _content(result, call["name"]),
            name=call["name"],
            tool_call_id=call["id"],
            status="success" if result.ok else "error",
        )
