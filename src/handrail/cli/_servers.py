"""`handrail mcp inspect`, `accept` and `import`: the MCP servers that a person has configured."""

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from handrail.cli._app import Advice, Command, Workspace, new_app, or_exit, run
from handrail.cli._config import (
    FILE,
    ServerEntry,
    accept,
    as_toml,
    common_servers,
    own_file,
    read_file,
    servers_in,
)
from handrail.cli._settings import read_settings
from handrail.cli._state_file import JsonFile, Part
from handrail.contract.errors import HandrailError, Unavailable
from handrail.lazy import Lazy
from handrail.misuse import nearest

if TYPE_CHECKING:
    from handrail.drivers import open as _open
    from handrail.mcp import client as _client
    from handrail.policy import approval as _approval
    from handrail.toolkit import toolbox as _toolbox
else:
    _open = Lazy("handrail.drivers.open")
    _client = Lazy("handrail.mcp.client")
    _approval = Lazy("handrail.policy.approval")
    _toolbox = Lazy("handrail.toolkit.toolbox")

PINS: Final = "pins.json"
"""The definitions of tools that the person has agreed to, by server."""
UNREACHABLE: Final = 1
Ask = Callable[[str, str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""Given a server's name, its question and the schema of the answer: the answer, or None."""
Server = Annotated[str, typer.Argument(help=f"The name of a server in {FILE}, the URL of one, or a command line.")]
app = new_app()
"""Commands that join the group of `handrail mcp`."""


@app.command(cls=Command)
def inspect(
    server: Server,
    workspace: Workspace = ".",
    agree: Annotated[bool, typer.Option("--agree", help="Agree to the tools that have changed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tools' definitions as JSON.")] = False,
) -> None:
    """Connect to an MCP server, and print its tools and what is wrong with them. Nothing is called."""
    run(partial(inspect_server, server, workspace, agree, as_json))


async def inspect_server(name: str, workspace: str, agree: bool, as_json: bool) -> int:
    """Returns the exit code."""
    entry = find_server(name, workspace)
    try:
        async with connected(entry, workspace) as server:
            print(_as_json(server) if as_json else _described(server, agree), flush=True)
    except Unavailable as error:
        print(f"handrail: {_approval.visible(str(error), lines=False)}", file=sys.stderr)
        return UNREACHABLE
    return 0


def find_server(name: str, workspace: str) -> ServerEntry:
    """The server of this name; one without a name where a URL or a command line is given."""
    if name.startswith(("http://", "https://")):
        return ServerEntry("server", url=name)
    if " " in name.strip():
        return ServerEntry("server", command="sh", args=["-c", f"exec {name}"])
    settings = read_settings(workspace)
    if name not in settings.servers:
        left_out = "".join(f"\nhandrail: {_approval.visible(note, lines=False)}" for note in settings.notes)
        name = _approval.visible(name, lines=False)
        raise Advice(f"there is no server {name!r} in {FILE}; {nearest(name, settings.servers)}{left_out}")
    return settings.servers[name]


@asynccontextmanager
async def connected(entry: ServerEntry, workspace: str, ask: Ask | None = None) -> "AsyncIterator[_client.ToolServer]":
    """The server, connected. In a sandbox it sees the workspace, as the model's own commands do.

    `ask` answers what the server asks its user; without it, the server is told that nobody can be asked.
    """
    options = entry.options(workspace)
    if ask is not None:
        options["ask"] = partial(ask, entry.name)
    what = f"{entry.directory} {entry.what}" if entry.is_beside else entry.what
    key = f"{entry.name} {sha256(what.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
    async with AsyncExitStack() as stack:
        if entry.sandbox is not None:
            opening = _open.open_sandbox(entry.sandbox, workspace=workspace)
            options["sandbox"] = await stack.enter_async_context(opening)
        yield await stack.enter_async_context(_client.connect(entry.name, **options, pins=Part(JsonFile(PINS), key)))


def _as_json(server: "_client.ToolServer") -> str:
    box = _toolbox.Toolbox(server.tools)
    return json.dumps([*box.schemas("mcp"), *box.deferred_schemas("mcp")], indent=2)  # in ASCII: it is a server's text


def _described(server: "_client.ToolServer", agree: bool) -> str:
    count = len(server.tools)
    lines = [f"{server.name}: {count} tool{'' if count == 1 else 's'}, protocol {server.protocol}"]
    for tool in server.tools:
        about = _approval.visible(tool.description.partition("\n")[0], lines=False)[:200]
        lines.append(f"  {tool.name}  {tool.risk}  {', '.join(sorted(tool.effects))}\n      {about}")
        if (changed := tool.behaviour.changed) is not None and (change := changed()):
            lines.append(f"      ! {change.reason}" + (" - agreed" if agree else ""))
            if agree:
                change.accept()
    lines += [f"  ! {_approval.visible(warning, lines=False)}" for warning in server.warnings]
    return "\n".join(lines)


@app.command("accept", cls=Command)
def accept_file(
    path: Annotated[str, typer.Argument(help="The file, or the directory that it is in.")] = ".",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Accept the servers of a workspace's handrail.toml, as it is now; when it changes, they are not started."""
    or_exit(partial(_accept, path, yes))


def _accept(given: str, yes: bool) -> None:
    path = Path(given, FILE) if os.path.isdir(given) else Path(given)
    content = read_file(path)
    if content is None:
        raise HandrailError(f"there is no file {path}")
    servers = servers_in(content, path)
    if not servers:
        raise HandrailError(f"{path} has no servers: [mcp.servers.NAME]")
    for entry in servers.values():
        about = f"{entry.sandbox or 'no sandbox'}{', trusted' if entry.trust else ''}"
        about += ", a program that commands in this workspace can change" if entry.is_beside else ""
        print(_approval.visible(f"{entry.name}: {entry.what} ({about})", lines=False))
    print(_approval.visible(f"All of {path}, which counts from now on:\n{content.decode()}"))
    if not yes and not _agrees():
        raise HandrailError(f"{path} was not accepted")
    accept(path, content)


def _agrees() -> bool:
    if not sys.stdin.isatty():
        raise HandrailError("nobody can be asked here: look at the file, and give --yes")
    return input("Start these on your machine when they are needed? [y/N] ").strip().lower() in ("y", "yes")


@app.command("import", cls=Command)
def import_file(
    path: Annotated[str, typer.Argument(help='A JSON file with "mcpServers", as other programs have it.')],
) -> None:
    """Add the servers of another program's configuration to your own handrail.toml."""
    or_exit(partial(_import, path))


def _import(given: str) -> None:
    path = Path(os.path.expanduser(given))
    content = read_file(path)
    if content is None:
        raise HandrailError(f"there is no file {path}")
    found, left_out = common_servers(content, path)
    target = own_file()
    before = read_file(target) or b""
    known: dict[str, Any] = servers_in(before, target)
    new = {name: entry for name, entry in found.items() if name not in known}
    text = "".join(f"\n{as_toml(entry)}" for entry in new.values())
    servers_in(before + b"\n" + text.encode(), target)  # it can be read again
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)  # it may hold keys
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        file.write(text if before else text.lstrip("\n"))
    for name in found:
        print(f"{name}: {'added to' if name in new else 'already in'} {target}")
    for reason in left_out:
        print(f"handrail: {_approval.visible(reason, lines=False)}", file=sys.stderr)
    for name, entry in new.items():
        if entry.is_beside:
            print(f"{name}: its command {entry.command} is read from {target.parent}: write the whole path there")
