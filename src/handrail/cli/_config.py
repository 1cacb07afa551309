"""Read `handrail.toml`: the person's own, and the workspace's once the person has accepted its content.

Commands write in the workspace, so a file there says what a program wants, not what the person wants.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from handrail.cli._state_file import JsonFile, NoHome, person_directory
from handrail.contract.errors import HandrailError
from handrail.misuse import kind_of, nearest, shown

FILE: Final = "handrail.toml"
LARGEST: Final = 1 << 20
"""Bytes of a file that is read."""
ACCEPTED: Final = "accepted.json"
"""The table of accepted content by file; kept outside of every workspace."""
KEYS: Final[Mapping[str, tuple[type, str]]] = {
    "command": (str, 'a program, such as "npx"'),
    "args": (list, 'a list of texts, such as ["-y", "server"]'),
    "env": (dict, 'a table of texts, such as { KEY = "${KEY}" }'),
    "cwd": (str, "a directory, or leave it out for the workspace"),
    "url": (str, 'such as "https://example.com/mcp"'),
    "headers": (dict, 'a table of texts, such as { Authorization = "Bearer ${TOKEN}" }'),
    "sandbox": (str, '"jail", or leave it out'),
    "trust": (bool, "true or false"),
    "privileges": (str, '"kept" for a server that makes sandboxes of its own as root, or leave it out'),
}
OURS: Final = frozenset({"sandbox", "trust", "privileges"})
"""Keys that no other program's file may set."""
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One `[mcp.servers.NAME]`."""

    name: str
    command: str | None = None
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    sandbox: str | None = None
    trust: bool = False
    privileges: str = "dropped"
    directory: str = field(default="", compare=False)
    """The directory of the entry's file: a command that is a relative path starts there."""

    @property
    def what(self) -> str:
        """The command line or the address, for a person."""
        return self.url or " ".join([self.command or "", *self.args])

    @property
    def is_beside(self) -> bool:
        """Whether the command is a relative path, from the file that has it."""
        return "/" in (self.command or "") and (self.command or "")[0] not in "/~$"

    def options(self, workspace: str) -> dict[str, Any]:
        """For `connect`, with the variables of this process filled in where the entry names them.

        A command starts in the workspace. Commands write there, so a relative program is not looked for there, but
        beside the file that names it.
        """
        if self.url is not None:
            return {"url": _filled(self.url), "headers": _all_filled(self.headers), "trust": self.trust}
        words = [_filled(word) for word in (self.command or "", *self.args)]
        words[0] = os.path.join(self.directory, words[0]) if self.is_beside else os.path.expanduser(words[0])
        given = os.path.join(os.path.abspath(workspace), os.path.expanduser(_filled(self.cwd or ".")))
        cwd = None if self.sandbox and self.cwd is None else os.path.normpath(given)  # a sandbox has its own default
        return {
            "command": words, "env": _all_filled(self.env), "cwd": cwd, "sandbox": self.sandbox, "trust": self.trust,
            "privileges": self.privileges,
        }  # fmt: skip


def own_file() -> Path:
    """The person's own file. Raises NoHome."""
    return person_directory("XDG_CONFIG_HOME", ".config") / "handrail" / FILE


def own_files() -> tuple[Path, ...]:
    """The person's own file, if they have a home to keep it in."""
    try:
        return (own_file(),)
    except NoHome:
        return ()


def read_file(path: Path) -> bytes | None:
    """Its content; None if there is no file. Raises HandrailError for a pipe, a device or what never ends."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HandrailError(f"{path} is not used: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise HandrailError(f"{path} is not used: it is not an ordinary file; remove it")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(LARGEST + 1)
    finally:
        os.close(descriptor)
    if len(content) > LARGEST:
        raise HandrailError(f"{path} is not used: it has more than {LARGEST >> 20} MiB")
    return content


def is_accepted(path: Path, content: bytes) -> bool:
    return JsonFile(ACCEPTED).get(_place(path)) == sha256(content).hexdigest()


def accept(path: Path, content: bytes) -> None:
    """Remember that the person has accepted this content of this file."""
    JsonFile(ACCEPTED)[_place(path)] = sha256(content).hexdigest()


def _place(path: Path) -> str:
    """The file's path. A link is a file of its own: its target was accepted for another directory."""
    return os.path.join(os.path.realpath(path.parent), path.name)


def servers_in(content: bytes, path: Path) -> dict[str, ServerEntry]:
    """The servers that a file of ours describes. Raises HandrailError, naming the key."""
    try:
        tables = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HandrailError(f"{path}: {error}") from None
    return servers_of(tables, path, content.decode())


def servers_of(tables: Mapping[str, Any], path: Path, text: str, prefix: str = "") -> dict[str, ServerEntry]:
    """The servers in the tables of this text; `prefix` is the table that they are in."""
    whole = _table(tables, "mcp", path)
    for key in whole.keys() - {"servers"}:
        table = joined(prefix, "mcp")
        at = f"{path}, line {line_of(text, table, key)}"
        raise HandrailError(f"{at}: there is no key {key!r} in [{table}]; did you mean 'servers'?")
    found = _table(whole, "servers", path)
    directory = os.path.abspath(path.parent)

    def where(name: str, key: str) -> str:
        table = joined(prefix, f"mcp.servers.{name}")
        return f"{path}, line {line_of(text, table, key)}: [{table}]"

    return {
        name: replace(_entry(name, _table(found, name, path), partial(where, name)), directory=directory)
        for name in found
    }


def joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def line_of(text: str, table: str, key: str) -> int:
    """The line on which a key of a table is written, or the table's own where it is written in another way."""
    current, found = "", 1
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            current = header[1].replace('"', "").replace(" ", "")
            if f"{current}.".startswith(f"{joined(table, key)}."):
                return number
            found = number if current == table else found
        written = re.match(r"\s*([\w.\"'-]+)\s*=", line)
        name = "" if written is None else written[1].replace('"', "").replace("'", "")
        if written and joined(current, name) in (joined(table, key), *([table] if table else [])):
            return number
        if written and joined(current, name).startswith(f"{joined(table, key)}."):
            return number
    return found


def _table(tables: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    table = tables.get(key, {})
    if not isinstance(table, dict):
        raise HandrailError(f"{path}: {key} is {shown(table)}; write a table: [mcp.servers.NAME]")
    return table


def _entry(name: str, table: Mapping[str, Any], where: Callable[[str], str]) -> ServerEntry:
    """One server; `where` tells where a key of it is written. Raises HandrailError."""
    for key, value in table.items():
        if key not in KEYS:
            raise HandrailError(f"{where(key)} has no key {key!r}; {nearest(key, KEYS)}")
        kind, write = KEYS[key]
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if not isinstance(value, kind) or not all(isinstance(each, str) for each in inside):
            given = kind_of(value) if key in ("env", "url", "headers") else shown(value)  # those may be secrets
            raise HandrailError(f"{where(key)}: {key} is {given}; write {write}")
    if ("command" in table) == ("url" in table):
        raise HandrailError(f"{where('url')}: give either a command or a url")
    if wrong := [key for key in ("args", "env", "cwd", "sandbox", "privileges") if key in table and "url" in table]:
        raise HandrailError(f"{where(wrong[0])}: {wrong[0]} is for a command, and this is a url")
    return ServerEntry(name, **table)


def common_servers(content: bytes, path: Path) -> tuple[dict[str, ServerEntry], list[str]]:
    """The servers of a JSON file as other programs write it, and why others are left out. Raises HandrailError."""
    try:
        given = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise HandrailError(f"{path} cannot be read as JSON: {error}") from None
    found = next((given[key] for key in ("mcpServers", "servers") if isinstance(given, dict) and key in given), None)
    if not isinstance(found, dict):
        raise HandrailError(f'{path}: there is no "mcpServers" in it')
    servers: dict[str, ServerEntry] = {}
    left_out = []
    for given_name, table in found.items():
        where = f"{path}: mcpServers.{given_name}"
        if not isinstance(table, dict):
            raise HandrailError(f"{where} is {kind_of(table)}, not an object")
        if reason := _unusable(table):
            left_out.append(f"{where} is left out: {reason}")
            continue
        entry = _entry(_free_name(given_name, servers), _known(table), partial(_same, where))
        servers[entry.name] = entry
    return servers, left_out


def _same(where: str, key: str) -> str:
    """A file of another program has no lines that we know."""
    return where


def _unusable(table: Mapping[str, Any]) -> str:
    if table.get("disabled") is True or table.get("enabled") is False:
        return "it is turned off there"
    if table.get("type", table.get("transport")) == "sse":
        return "it speaks the transport sse, which the protocol has given up; ask for its streamable HTTP"
    if asked := re.search(r"\$\{(?!env:)[A-Za-z]+:[^}-][^}]*\}", json.dumps(table)):
        return f"{asked[0]} is filled in by the other program; write it as ${{NAME}}, a variable"
    return ""


def _free_name(given: str, taken: Mapping[str, ServerEntry]) -> str:
    """A name that `connect` takes, and that no other has."""
    plain = re.sub(r"[^A-Za-z0-9-]+", "-", given).strip("-")[:32] or "server"
    plain = plain if plain[0].isalpha() else f"server-{plain}"[:32]
    name, count = plain, 1
    while name in taken:
        count += 1
        name = f"{plain[:28]}-{count}"
    return name


def _known(table: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of another program's entry that are ours too; a null there counts as not set."""
    known = {key: value for key, value in table.items() if key in KEYS and key not in OURS}
    address = table.get("httpUrl", table.get("serverUrl"))
    known = {**known, "url": address} if address is not None else known
    return {key: value for key, value in known.items() if value is not None}


def as_toml(entry: ServerEntry) -> str:
    """The entry as lines for `handrail.toml`."""
    lines = [f"[mcp.servers.{entry.name}]"]
    for key in KEYS:
        value = getattr(entry, key)
        if value not in (None, [], {}, False, "dropped"):
            lines.append(f"{key} = {_written(value)}")
    return "\n".join(lines) + "\n"


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_written(key)} = {_written(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's texts and its true are TOML's too


def _all_filled(texts: Mapping[str, str]) -> dict[str, str]:
    return {key: _filled(text) for key, text in texts.items()}


def _filled(text: str) -> str:
    """`${NAME}` and `${NAME:-default}` become the variable's value. Raises HandrailError for one that is not set."""

    def value(found: re.Match[str]) -> str:
        name, default = found.groups()
        if (given := os.environ.get(name, default)) is None:
            raise HandrailError(f"the variable {name}, which {FILE} names, is not set")
        return given

    return _VARIABLE.sub(value, text)
