"""`handrail mcp`: serve the built-in tools, sandboxed and gated, to any client of the Model Context Protocol."""

import logging
import os
import secrets
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import typer

from handrail.cli import _servers
from handrail.cli._app import AllowWeaker, Driver, Mode, Network, Options, Workspace, new_app, run
from handrail.cli._limit_options import Cpu, Memory, Processes, WorkspaceSize
from handrail.cli._sandbox_options import Env, Mounts
from handrail.cli._stderr import Log, say
from handrail.contract.errors import HandrailError, MissingExtra
from handrail.contract.limits import Budget
from handrail.lazy import Lazy
from handrail.misuse import nearest

if TYPE_CHECKING:
    import handrail.serving as _serving
    from handrail.drivers import open as _open
    from handrail.mcp import http as _http
    from handrail.mcp import server as _server
    from handrail.policy import policy as _policy
    from handrail.session import session as _session
    from handrail.session.session import Session
    from handrail.toolkit.tool import Tool
    from handrail.tools import builtin as _builtin
    from handrail.tools import plugins as _plugins
else:
    _open = Lazy("handrail.drivers.open")
    _http = Lazy("handrail.mcp.http")
    _serving = Lazy("handrail.serving")
    _server = Lazy("handrail.mcp.server")
    _policy = Lazy("handrail.policy.policy")
    _session = Lazy("handrail.session.session")
    _builtin = Lazy("handrail.tools.builtin")
    _plugins = Lazy("handrail.tools.plugins")

NEED_A_LOOP: Final = frozenset({"ask_user", "complete", "task"})
"""Tools that only an agent loop can serve."""
TOKEN: Final = "HANDRAIL_MCP_TOKEN"
Http = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Serve over HTTP there instead of standard input; port 0 is any free one."),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help=f"The tokens that HTTP clients need, one a line; without it {TOKEN}, or a new one, which is printed.",
    ),
]
Handles = Annotated[bool, typer.Option("--handles", help="Let clients open more sandboxes, with sandbox_open.")]
Tools = Annotated[
    str, typer.Option(help="coding, read_only or all, or names with commas between them, of plugins too.")
]
app = new_app(invoke_without_command=True)
app.add_typer(_servers.app)  # without a name of its own: its commands join these


@app.callback()
def mcp(
    context: typer.Context,
    http: Http = None,
    token_file: TokenFile = None,
    handles: Handles = False,
    tools: Tools = "coding",
    workspace: Workspace = ".",
    driver: Driver = "auto",
    allow_weaker: AllowWeaker = False,
    network: Network = "none",
    mode: Mode = "contained",
    mount: Mounts = None,
    env: Env = None,
    memory: Memory = None,
    processes: Processes = None,
    workspace_size: WorkspaceSize = None,
    cpu: Cpu = None,
) -> None:
    """Serve the built-in tools to a client of the Model Context Protocol.

    Over standard input and output, as most clients start a server; with --http over HTTP, to those who know a token.
    Each client has a sandbox of its own on the workspace. What needs approval is asked at the client, and refused
    where it cannot ask.

    \b
    handrail mcp --workspace ~/project
    handrail mcp --http 127.0.0.1:8765 --token-file ~/.handrail-token
    """
    if context.invoked_subcommand is None:
        options = Options(
            workspace, driver, allow_weaker, network, mode, mount=mount, env=env, memory=memory, processes=processes,
            workspace_size=workspace_size, cpu=cpu,
        )  # fmt: skip
        run(partial(serve, options.for_model(), http, token_file, handles, tools))


async def serve(options: Options, http: str | None, token_file: str | None, handles: bool, tools: str) -> int:
    """Serve until the client leaves, or a signal ends the program."""
    logging.getLogger().addHandler(Log())
    if http is not None:
        (host, port), (tokens, minted) = read_address(http), read_tokens(token_file)
        say("starting")  # what follows takes seconds to import
    opener = session_opener(options, chosen(tools))
    try:
        server = _server.make_server(opener, handles=handles)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"handrail.mcp needs {error.name}", "mcp") from None
    if http is None:
        await _server.serve_stdio(server)
        return 0

    def ready(address: str) -> None:
        say(f"serving on {address}")
        if minted:
            say(f"clients need this token: {tokens[0]}")
        if not _serving.is_loopback(host):
            say("other machines can reach it, and nothing on the way is encrypted: put a proxy with TLS before it")

    await _http.serve_http(server, host, port, tokens, ready=ready)
    return 0


def session_opener(options: Options, tools: "list[Tool]") -> "Callable[[], AbstractAsyncContextManager[Session]]":
    """A function that opens a session for one client, in a sandbox of its own. Wrong options are told at once."""
    if not os.path.isdir(options.workspace):
        raise HandrailError(f"--workspace {options.workspace}: there is no such directory")
    if options.network not in ("none", "full"):
        raise HandrailError(f"--network {options.network}: write none or full")
    given = {**options.for_sandbox(), "workspace": os.path.abspath(options.workspace)}
    mode: Any = options.mode  # Policy says what is wrong with it
    policy = _policy.Policy(mode=mode)

    @asynccontextmanager
    async def open_session() -> "AsyncIterator[Session]":
        async with (
            _open.open_sandbox(**given) as sandbox,
            _session.Session(
                tools, sandbox=sandbox, policy=policy, budget=Budget(calls=None, refusals=None)
            ) as session,
        ):
            yield session

    return open_session


def chosen(words: str) -> "list[Tool]":
    """The tools of a profile, without those that need a loop around them, or the named ones. Raises HandrailError."""
    if words in get_args(_builtin.Profile):
        return [tool for tool in _builtin.builtin_tools(words) if tool.name not in NEED_A_LOOP]  # type: ignore[arg-type]
    known = {tool.name: tool for tool in (*_builtin.builtin_tools("all"), *_plugins.plugin_tools())}
    names = [name.strip() for name in words.split(",")]
    for name in names:
        if name not in known:
            raise HandrailError(f"--tools {words}: there is no tool {name!r}; {nearest(name, known)}")
    return [known[name] for name in dict.fromkeys(names)]


def read_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `[IPV6]:PORT` or `PORT`, which is on this machine only."""
    host, colon, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535 or (colon and not host):
        raise HandrailError(f"--http {text!r} cannot be read: write HOST:PORT, such as 127.0.0.1:8765")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def read_tokens(path: str | None) -> tuple[list[str], bool]:
    """The tokens that the person set, or a new one; and whether it is new."""
    if path is not None:
        file = Path(os.path.expanduser(path))
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not a text"
            raise HandrailError(
                f"--token-file {path} cannot be read: {why}; write a file with one token a line"
            ) from None
        tokens = [line.strip() for line in text.splitlines() if line.strip()]
        if not tokens:
            raise HandrailError(f"--token-file {path}: it has no token; write one a line")
        if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            say(f"others can read {path}; type: chmod 600 {path}")
        return tokens, False
    if given := os.environ.get(TOKEN, "").strip():
        return [given], False
    return [secrets.token_urlsafe(32)], True
