"""Use the tools of any MCP server: every call passes the gates, and a server can do no more than answer."""

import os
import re
import shlex
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self, get_args

import anyio
import httpx2
from mcp.client.stdio import get_default_environment
from mcp.shared.dispatcher import ProgressFnT
from pydantic import ValidationError

from handrail.aio import OwnLoop, finish, on_own_loop, refuse_other_loops
from handrail.contract.driver import Command, Driver, Process
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.limits import (
    MCP_CONNECT_WAIT,
    MCP_MAX_QUESTIONS_COUNT,
    MCP_REASON_WAIT,
    MCP_RESTART_PATIENCE,
    MCP_RESTART_WAITS,
    TOOL_TIMEOUT,
)
from handrail.contract.result import Failure, Result
from handrail.contract.wire import sendable_data
from handrail.drivers.open import open_own_guard, open_sandbox
from handrail.mcp._answers import read_answer
from handrail.mcp._catalogue import Catalogue
from handrail.mcp._connection import Link
from handrail.mcp._listing import Offer
from handrail.mcp._questions import Ask, Questions, answers
from handrail.mcp._sifting import UNREADABLE
from handrail.mcp._transports import Log, over_http, over_process
from handrail.misuse import AsyncWith, explains_misuse, kind_of, refuse, shown
from handrail.policy.approval import visible
from handrail.sandbox.sandbox import Sandbox
from handrail.toolkit.context import Context
from handrail.toolkit.tool import Tool
from mcp import MCPError, types

Privileges = Literal["dropped", "kept"]
SERVER_NAME: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]|_(?=[A-Za-z0-9-])){0,31}", re.ASCII)
"""Pattern of a server's name: no `_` at the end and no `__`, so that `server__tool` has one reading."""
SENT: Final = "The call had been sent, so it may have taken effect; look before you repeat it."
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"(?! )[ -~\t]*(?<![ \t])", re.ASCII)
MAX_REASON_CHARS: Final = 1_000
"""Length of a server's own words that a message quotes, in characters."""


def connect(
    name: str,
    *,
    command: str | Sequence[str] | None = None,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    sandbox: str | Sandbox | None = None,
    trust: bool = False,
    pins: MutableMapping[str, str] | None = None,
    timeout: float = TOOL_TIMEOUT,
    deferred: bool | None = None,
    cwd: str | None = None,
    ask: Ask | None = None,
    privileges: Privileges = "dropped",
) -> "ToolServer":
    """Connect to an MCP server with `async with`; its `tools` are for a Session.

    Args:
        name: what its tools' names begin with: `name__tool`.
        command: starts it, as a list of words or as one line; messages go over its input and output.
        url: where it is, instead of a command: streamable HTTP.
        env: variables for the command, besides HOME, LOGNAME, PATH, SHELL, TERM and USER; in a sandbox, the only ones.
        headers: for every request to `url`.
        sandbox: runs the command in a sandbox of its own, such as "jail", or in one that is open already.
        trust: believe what the server says of its tools' risk; otherwise each of them may do anything.
        pins: hashes of the definitions that a person agreed to, by tool. Keep it, and a changed tool asks again.
        timeout: seconds for one call.
        deferred: keep the tools out of the model's sight until it searches for them; if None, when there are over 50.
        cwd: the directory in which the command starts; this process's own if None, in a sandbox its workspace.
        ask: answers what the server asks its user, given the question and the schema of the answer; None declines.
        privileges: "kept" leaves root's capabilities to the command, which can then make sandboxes of its own.

    Raises, on entering, Unavailable if the server cannot be reached or does not start.
    """
    _check_options(name, env, headers, privileges)
    return ToolServer(
        name, _words(name, command, url), url, dict(env or {}), dict(headers or {}), sandbox, trust,
        {} if pins is None else pins, timeout, deferred, cwd, ask, privileges,
    )  # fmt: skip


def _check_options(
    name: str, env: Mapping[str, str] | None, headers: Mapping[str, str] | None, privileges: str
) -> None:
    _expect_texts(f"server {name}: env", env)
    _expect_headers(name, headers)
    if privileges not in get_args(Privileges):
        refuse(f"server {name}: privileges", privileges, "'dropped' or 'kept'")


def _words(name: str, command: str | Sequence[str] | None, url: str | None) -> tuple[str, ...]:
    if not isinstance(name, str) or not SERVER_NAME.fullmatch(name):
        refuse(
            "the name of a server", name, "1 to 32 of A-Z, a-z, 0-9, - and single _, beginning with a letter: 'files'"
        )
    if (command is None) == (url is None):
        raise HandrailError(f"server {name}: give either a command that starts it or the url where it is")
    if url is not None:
        _expect_url(name, url)
    words = tuple(shlex.split(command) if isinstance(command, str) else command or ())
    if url is None and not (words and all(isinstance(word, str) for word in words)):
        refuse(f"server {name}: command", command, "a list of words such as ['npx', '-y', 'server']")
    return words


def _expect_url(name: str, url: str) -> None:
    """Refuse a text that is not an address, without repeating it: it may hold a password or a key."""
    try:
        if isinstance(url, str) and url.startswith(("http://", "https://")) and httpx2.URL(url).host:
            return
    except httpx2.InvalidURL:  # which repeats a part of it
        pass
    raise HandrailError(
        f"server {name}: the url cannot be read: write http:// or https://, the name of a machine, its port and a path"
    )


def _expect_texts(what: str, given: Mapping[str, str] | None) -> None:
    """Refuse all but a table of texts, without repeating the texts: they may be secrets."""
    if given is not None and not isinstance(given, Mapping):
        raise HandrailError(f"{what} is {kind_of(given)}; write a dict of texts: {{'NAME': 'value'}}")
    for key, value in (given or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise HandrailError(f"{what}: {shown(key)} is {kind_of(value)}; names and values are texts")


def _expect_headers(name: str, headers: Mapping[str, str] | None) -> None:
    _expect_texts(f"server {name}: headers", headers)
    for key, value in (headers or {}).items():
        if not _HEADER_NAME.fullmatch(key):
            start = _HEADER_NAME.match(key)
            about = "an empty name" if start is None else f"a name that cannot be sent: {start[0][:40]!r} and more"
            raise HandrailError(f"server {name}: a header has {about}; write {{'Authorization': 'Bearer …'}}")
        if not _HEADER_VALUE.fullmatch(value):
            raise HandrailError(
                f"server {name}: the value of the header {key} cannot be sent: it has a line break, another control "
                "character or a letter beyond ASCII, or it begins or ends with a space; look where it comes from"
            )


@explains_misuse
class ToolServer(AsyncWith):
    """An MCP server and its tools. A server that crashes is started again when it is needed, with growing waits."""

    def __init__(
        self, name: str, words: tuple[str, ...], url: str | None, env: dict[str, str], headers: dict[str, str],
        sandbox: str | Sandbox | None, trust: bool, pins: MutableMapping[str, str], timeout: float,
        deferred: bool | None, cwd: str | None, ask: Ask | None, privileges: Privileges,
    ) -> None:  # fmt: skip
        refuse_other_loops("An MCP server")
        self.name = name
        self.own_loop = OwnLoop()
        self._argv, self._url, self._env, self._headers = words, url, env, headers
        self._keeps_privileges = privileges == "kept"
        self._given_sandbox, self._ask = sandbox, None if ask is None else Questions(ask)
        self._cwd = cwd if url is not None or sandbox is not None else os.path.abspath(cwd or os.getcwd())
        self._catalogue = Catalogue(name, self._call, trust=trust, pins=pins, timeout=timeout, deferred=deferred)
        self._log = Log()
        self._open = AsyncExitStack()
        self._sandbox: Sandbox | None = None
        self._guard: Driver | None = None
        self._link: Link | None = None
        self._connecting = anyio.Lock()
        self._crashes, self._last_start, self._lost_by = 0, 0.0, ""
        self._entered = self._closed = False

    def __repr__(self) -> str:
        where = self._argv[0] if self._url is None else _machine(self._url)
        return f"<ToolServer {self.name} at {where}: {len(self.tools)} tools{', closed' if self._closed else ''}>"

    @property
    def tools(self) -> list[Tool]:
        """Tools for a Session, sorted by name. When the server's tools change, so does this list, in new sessions."""
        return list(self._catalogue.tools)

    @property
    def warnings(self) -> list[str]:
        """Deviations from the server's definitions: names that were changed, tools that were left out, and why."""
        return list(self._catalogue.warnings)

    @property
    def stderr(self) -> str:
        """The last 64 KiB that the server printed."""
        return self._log.text

    @property
    def protocol(self) -> str | None:
        """Revision of the protocol in use; None while the server is not connected."""
        client = None if self._link is None else self._link.client
        return None if client is None else client.protocol_version

    async def __aenter__(self) -> Self:
        if self._closed or self._entered:
            raise HandrailError(f"{self!r} was entered before; call connect() for each `async with`")
        self._entered = True
        try:
            if isinstance(self._given_sandbox, str):
                self._sandbox = await self._open.enter_async_context(open_sandbox(self._given_sandbox))
            elif self._given_sandbox is not None:
                self._sandbox = await self._open.enter_async_context(self._given_sandbox)
            await self._connected()
        except BaseException:
            await finish(self._close)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await finish(self._close)

    async def _close(self) -> None:
        self._closed = True
        if self._link is not None:
            await self._link.close()
        await self._close_guard()
        await self._open.aclose()

    async def _close_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            await guard.close()

    async def _start(self) -> Process:
        if self._sandbox is not None:
            return await self._sandbox.open_process(self._argv, cwd=self._cwd, env=self._env)
        await self._close_guard()
        env = {**get_default_environment(), **self._env}
        self._guard = await open_own_guard(env, privileges=self._keeps_privileges)
        return await self._guard.start(Command(argv=self._argv, cwd=self._cwd, input=True))

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        if self._url is not None:
            return over_http(self._url, self._headers, self._log)
        return over_process(self._start, self._log, self._lost)

    def _lost(self, reason: str) -> None:
        if self._link is not None:
            self._link.lose(reason)

    async def _connected(self) -> Link:
        """The open connection, or a new one. Raises Unavailable when there is none, or none yet."""
        async with self._connecting:
            if self._closed:
                raise Unavailable(f"The connection to the MCP server {self.name} is closed.", retryable=False)
            if self._link is not None and self._link.lost:
                await self._bury(self._link)
            if self._link is None:
                await self._wait_for_turn()
                self._link = Link(self._transport(), self._catalogue.read, self._ask).begin()
            link = self._link
            if not link.listed:
                with anyio.move_on_after(MCP_CONNECT_WAIT) as limit:
                    await self._set_up(link)
                if limit.cancelled_caught:
                    link.lose(f"it did not answer within {MCP_CONNECT_WAIT:g} s")
            if not link.listed or link.lost:
                link.lose("it did not list its tools")
                await self._bury(link)
                raise Unavailable(self._gone(link.reason))
            return link

    async def _bury(self, link: Link) -> None:
        """Clear away a connection that was lost."""
        await link.close()
        self._link, self._lost_by = None, link.reason
        self._crashes += 1

    async def _wait_for_turn(self) -> None:
        pause = MCP_RESTART_WAITS[min(self._crashes, len(MCP_RESTART_WAITS) - 1)]
        left = self._last_start + pause - anyio.current_time() if self._crashes else 0.0
        if left > MCP_RESTART_PATIENCE:
            raise Unavailable(f"{self._gone(self._lost_by)} It is started again in {left:.0f} s.")
        await anyio.sleep(max(0.0, left))
        self._last_start = anyio.current_time()

    async def _set_up(self, link: Link) -> None:
        await link.ready.wait()
        if link.client is not None:
            try:
                await self._catalogue.read(link.client)
                link.listed = True
            except MCPError as error:
                link.lose(f"it did not list its tools: {error.message[:MAX_REASON_CHARS]}")
            except ValidationError as error:
                link.lose(f"its list of tools is not valid: {_first(error)}")

    def _gone(self, reason: str) -> str:
        printed = self._log.last_lines()
        return f"The MCP server {self.name} is gone: {_quoted(reason).rstrip('.')}." + (
            f" It printed: {printed!r}." if printed else ""
        )

    @on_own_loop
    async def _call(self, made: Offer, context: Context, arguments: Mapping[str, Any]) -> Result:
        link = await self._connected()
        if refused := self._catalogue.refusal(made, arguments):
            return refused
        params = types.CallToolRequestParams(name=made.original, arguments=sendable_data(dict(arguments)))
        try:
            with nullcontext() if self._ask is None else self._ask.during(context.clock):
                raw = await self._answered(link, params, partial(_show_progress, context))
            if raw.get("resultType") == "input_required":
                return Failure(
                    "unavailable", f"{made.name} asks for more input, which is not given here.", retryable=False
                )
            answer = types.CallToolResult.model_validate(raw, by_name=False)
        except MCPError as error:
            return await self._failed(link, error)
        except ValidationError as error:
            message = f"The MCP server {self.name} sent an invalid answer: {_quoted(_first(error))}."
            return Failure("execution_error", f"{message} {SENT}")
        self._crashes = 0
        return await read_answer(context, made, answer, self._catalogue.output_checks(made))

    async def _answered(self, link: Link, params: types.CallToolRequestParams, progress: ProgressFnT) -> dict[str, Any]:
        """The server's answer, after the user has answered the questions that the server asked first."""
        for _ in range(MCP_MAX_QUESTIONS_COUNT):
            raw = await link.request(types.CallToolRequest(params=params), progress)
            if raw.get("resultType") != "input_required" or self._ask is None:
                return raw
            asked = types.InputRequiredResult.model_validate(raw, by_name=False)
            found = await answers(self._ask, asked)
            if found is None:
                return raw
            params = params.model_copy(update={"input_responses": found, "request_state": asked.request_state})
        return raw

    async def _failed(self, link: Link, error: MCPError) -> Failure:
        if error.data == UNREADABLE:
            message = f"The MCP server {self.name} sent an answer that cannot be read: {_quoted(error.message)}."
            return Failure("execution_error", f"{message} {SENT}")
        if self._url is not None and error.code == types.INVALID_REQUEST:
            link.lose(error.message)  # an HTTP server that has forgotten its session: the next call begins a new one
        elif error.code != types.CONNECTION_CLOSED:
            about = f"code {error.code}" if self._url is None else f"code {error.code}; {self._log.last_lines(1)}"
            why = f"{_quoted(error.message)} ({_quoted(about.removesuffix('; '))})"
            return Failure("execution_error", f"The MCP server {self.name} refused the call: {why}.")
        with anyio.move_on_after(MCP_REASON_WAIT):
            await link.over.wait()
        return Failure("unavailable", f"{self._gone(link.reason or error.message)} {SENT}")


def _machine(url: str) -> str:
    """The server's address without parts that may be secret: its user, path and query."""
    parsed = httpx2.URL(url)
    return f"{parsed.scheme}://{parsed.netloc.decode('ascii', 'replace')}"


async def _show_progress(context: Context, progress: float, total: float | None, message: str | None) -> None:
    of = "" if total is None else f" of {total:g}"
    context.show(f"{message or f'{progress:g}{of}'}\n")


def _quoted(words: str) -> str:
    """A server's own words in one line: their beginning, with control characters as codes."""
    return visible(words[:MAX_REASON_CHARS], lines=False) + ("…" if len(words) > MAX_REASON_CHARS else "")


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
