"""Settings for conversations: the person's own file is believed, the workspace's once they accepted it.

Commands write in the workspace. Until its file is accepted, only what narrows counts, and a line names the rest.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any, Final, get_args

from handrail.cli._app import Options
from handrail.cli._config import (
    FILE,
    ServerEntry,
    is_accepted,
    joined,
    line_of,
    own_file,
    own_files,
    read_file,
    servers_of,
)
from handrail.cli._limit_options import OPTIONS, lowers, read_limit
from handrail.contract.errors import HandrailError
from handrail.misuse import nearest, shown
from handrail.policy.policy import Mode, Policy

PYPROJECT: Final = "pyproject.toml"
STRICTEST_LAST: Final = ("open", "contained", "ask", "strict")
ROOT: Final[Mapping[str, tuple[type, str]]] = {
    "model": (str, 'such as "anthropic:claude-opus-5"'),
    "base_url": (str, 'such as "http://127.0.0.1:8080/v1"'),
    "policy": (dict, "a table: [policy]"),
    "sandbox": (dict, "a table: [sandbox]"),
    "mcp": (dict, "a table: [mcp.servers.NAME]"),
}
POLICY: Final[Mapping[str, tuple[type, str]]] = {
    "mode": (str, f"one of {', '.join(STRICTEST_LAST)}"),
    "allow": (list, 'a list of rules, such as ["bash(git *)"]'),
    "ask": (list, 'a list of rules, such as ["bash(git push *)"]'),
    "deny": (list, 'a list of rules, such as ["bash(rm *)"]'),
}
SANDBOX: Final[Mapping[str, tuple[type, str]]] = {
    "driver": (str, '"auto", "jail", "host", or an installed driver'),
    "network": (str, '"none" or "full"'),
    "allow_weaker": (bool, "true or false"),
    "mounts": (list, 'a list such as ["~/data", "~/cache:/cache:rw"]'),
    "env": (list, 'a list such as ["NAME", "NAME=VALUE"]'),
    "memory": (str, 'a size such as "2G", or "none"'),
    "processes": (int, "a whole number, such as 256"),
    "workspace_size": (str, 'a size such as "1G", or "none"'),
    "cpu": (Real, "a number of seconds, such as 60"),
}
TEMPLATE: Final = """\
# How `handrail chat`, `run`, `call` and `shell` work here. Options on the command line come first.
# Commands can write this file, so it counts only once you have typed `handrail trust`; what narrows counts at once.

# model = "anthropic:claude-opus-5"     # or openai:NAME, google:NAME, ollama:NAME, openai-chat:NAME, gguf:PATH
# base_url = "http://127.0.0.1:8080/v1" # another address of the model's provider

[policy]
# mode = "contained"                    # what needs your approval: contained, ask, strict or open
# allow = ["bash(git status)"]          # runs without asking
# ask = ["bash(git push *)"]            # always asks
# deny = ["bash(rm -rf *)"]             # never runs

[sandbox]
# driver = "auto"                       # jail, host, or an installed driver
# network = "none"                      # or full
# allow_weaker = false                  # true: run without isolation where no jail can be made
# mounts = ["~/data", "~/cache:/cache:rw"]
# env = ["LANG", "NAME=VALUE"]
# memory = "2G"                         # what all commands together may use
# processes = 256                       # how many may run at once
# workspace_size = "1G"                 # what fits into a workspace of the sandbox's own
# cpu = 60                              # seconds for which each process may compute

# [mcp.servers.NAME]                    # tools of an MCP server
# command = "npx"
# args = ["-y", "server"]
"""


@dataclass(frozen=True, slots=True)
class Configured:
    """The settings of both files together."""

    model: str | None = None
    base_url: str | None = None
    mode: str | None = None
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    driver: str | None = None
    network: str | None = None
    allow_weaker: bool | None = None
    mounts: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    memory: str | None = None
    processes: str | None = None
    workspace_size: str | None = None
    cpu: str | None = None
    servers: Mapping[str, ServerEntry] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Lines about settings that were left out, with what to type to have them."""

    def applied(self, options: Options, typed: frozenset[str]) -> Options:
        """The options with what is set here, except for those that the person has typed."""
        names = ("mode", "driver", "network", "allow_weaker", *OPTIONS)
        changed = {name: value for name in names if name not in typed and (value := getattr(self, name)) is not None}
        mount, env = [*self.mounts, *(options.mount or ())], [*self.env, *(options.env or ())]
        return replace(options, **changed, mount=mount or None, env=env or None)

    def policy(self, mode: Any) -> Policy:
        return Policy(allow=self.allow, ask=self.ask, deny=self.deny, mode=mode)


NOTHING_SET: Final = Configured()


def read_settings(workspace: str) -> Configured:
    """Raises HandrailError for a mistake in the person's own or an accepted file; another with one is left out."""
    settings = Configured()
    for path in _paths(workspace):
        own = path in own_files()
        try:
            content, tables = _read(path)
            found = _checked(tables, path, content)
        except HandrailError as error:
            if own or _is_believed(path):
                raise
            note = f"{error}. The file is not accepted, so all of it is left out; mend it, then: handrail trust"
            settings = replace(settings, notes=(*settings.notes, note))
            continue
        believed = own or (bool(content) and is_accepted(path, _to_accept(path, content, tables)))
        settings = _added(settings, found) if believed else _narrowed(settings, found, path)
    return settings


def to_accept(workspace: str) -> Iterator[tuple[Path, bytes, str]]:
    """Each file of the workspace that sets something: what is accepted of it, and that as text."""
    for path in _paths(workspace):
        content, tables = _read(path)
        if path not in own_files() and content:
            _checked(tables, path, content)
            part = _to_accept(path, content, tables)
            yield path, part, (part if path.name == PYPROJECT else content).decode("utf-8", "replace")


def _paths(workspace: str) -> Iterator[Path]:
    yield from dict.fromkeys((*own_files(), Path(workspace, PYPROJECT), Path(workspace, FILE)))


def _read(path: Path) -> tuple[bytes, dict[str, Any]]:
    """The content and the tables of a file; both empty where it sets nothing. Raises HandrailError."""
    content = read_file(path)
    if content is None:
        return b"", {}
    try:
        tables = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        if path.name == PYPROJECT:
            return b"", {}  # not ours
        raise HandrailError(f"{path}: {error}") from None
    if path.name == PYPROJECT:
        tool = tables.get("tool")
        tables = tool.get("handrail", {}) if isinstance(tool, dict) else {}
        if not isinstance(tables, dict) or not tables:
            return b"", {}
    return content, tables


def _is_believed(path: Path) -> bool:
    """Whether the person has accepted a file that has a mistake."""
    try:
        content = read_file(path) or b""
        return is_accepted(path, content)
    except HandrailError:
        return False


def _to_accept(path: Path, content: bytes, tables: Mapping[str, Any]) -> bytes:
    """The whole file; of a pyproject our table alone, because the rest changes often and says nothing to us."""
    return json.dumps(tables, sort_keys=True, default=str).encode() if path.name == PYPROJECT else content


def _checked(tables: Mapping[str, Any], path: Path, content: bytes) -> Configured:
    """The settings of one file. Raises HandrailError for a wrong key or value, with its line and the right key."""
    text = content.decode("utf-8", "replace")
    prefix = "tool.handrail" if path.name == PYPROJECT else ""
    _check(tables, ROOT, path, text, prefix)
    policy, sandbox = tables.get("policy", {}), tables.get("sandbox", {})
    _check(policy, POLICY, path, text, joined(prefix, "policy"))
    _check(sandbox, SANDBOX, path, text, joined(prefix, "sandbox"))
    if policy.get("mode", "open") not in get_args(Mode):
        where = f"{path}, line {line_of(text, joined(prefix, 'policy'), 'mode')}"
        raise HandrailError(f"{where}: mode is {policy['mode']!r}; {nearest(policy['mode'], STRICTEST_LAST)}")
    servers = servers_of(tables, path, text, prefix)
    lists: dict[str, Any] = {key: tuple(policy.get(key, ())) for key in ("allow", "ask", "deny")}
    lists |= {key: tuple(sandbox.get(key, ())) for key in ("mounts", "env")}
    one = {key: sandbox.get(key) for key in ("driver", "network", "allow_weaker")}
    for key in OPTIONS.keys() & sandbox.keys():
        read_limit(key, str(sandbox[key]), f"{path}, line {line_of(text, joined(prefix, 'sandbox'), key)}: {key}")
        one[key] = str(sandbox[key])
    return Configured(
        tables.get("model"), tables.get("base_url"), policy.get("mode"), **lists, **one, servers=servers
    )  # fmt: skip


def _check(table: Any, keys: Mapping[str, tuple[type, str]], path: Path, text: str, name: str) -> None:
    for key, value in table.items():
        where = f"{path}, line {line_of(text, name, key)}"
        if key not in keys:
            raise HandrailError(f"{where}: there is no key {key!r}{f' in [{name}]' if name else ''}; "
                                f"{nearest(key, keys)}")  # fmt: skip
        kind, write = keys[key]
        listed = value if isinstance(value, list) else ()
        if not isinstance(value, kind) or not all(isinstance(each, str) for each in listed):
            raise HandrailError(f"{where}: {key} is {shown(value)}; write {write}")


def _added(before: Configured, found: Configured) -> Configured:
    """The later file comes first where both say something; lists are joined."""
    twice = sorted(set(before.servers) & set(found.servers))
    if twice:
        raise HandrailError(f"the server {twice[0]} is in {own_file()} too; rename one of them")
    values: dict[str, Any] = {}
    for name in ("model", "base_url", "mode", "driver", "network", "allow_weaker", *OPTIONS):
        later = getattr(found, name)
        values[name] = getattr(before, name) if later is None else later
    for name in ("allow", "ask", "deny", "mounts", "env", "notes"):
        values[name] = (*getattr(before, name), *getattr(found, name))
    return Configured(**values, servers={**before.servers, **found.servers})


def _narrowed(before: Configured, found: Configured, path: Path) -> Configured:
    """Only what allows less than before, and a note about the rest."""
    now = before.mode or "contained"
    stricter = found.mode is not None and STRICTEST_LAST.index(found.mode) > STRICTEST_LAST.index(now)
    kept = replace(before, ask=(*before.ask, *found.ask), deny=(*before.deny, *found.deny))
    kept = replace(kept, mode=found.mode) if stricter else kept
    kept = replace(kept, network="none") if found.network == "none" else kept
    set_here = {name: text for name in OPTIONS if (text := getattr(found, name)) is not None}
    lower = {name: text for name, text in set_here.items() if lowers(name, text, getattr(kept, name))}
    kept = replace(kept, **lower)
    left = [
        name
        for name in ("model", "base_url", "allow", "driver", "allow_weaker", "mounts", "env")
        if getattr(found, name) not in (None, ())
    ]
    left += ["mode"] if found.mode is not None and not stricter and found.mode != now else []
    left += sorted(set_here.keys() - lower.keys())
    left += ["network"] if found.network not in (None, "none") else []
    left += [f"mcp.servers.{name}" for name in found.servers]
    if not left:
        return kept
    note = f"{path} is not accepted, so this is left out: {', '.join(sorted(left))}. Look at it, then: handrail trust"
    return replace(kept, notes=(*before.notes, note))
