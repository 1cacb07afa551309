"""Run one payload in a sandbox and return the typed answer."""

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from handrail.contract.driver import Command, FileStat
from handrail.contract.limits import DEFAULT_CAPS, Caps
from handrail.contract.payload import FileExists, ListFiles, ReadFile, RunCode, WriteFile
from handrail.misuse import shown
from handrail.sandbox.checks import tidy
from handrail.sandbox.completed import Answer, CodeResult, Completed
from handrail.sandbox.last_value import run_for_value

if TYPE_CHECKING:
    from handrail.sandbox.sandbox import Sandbox

Payload = Command | ReadFile | WriteFile | ListFiles | FileExists | RunCode


@dataclass(frozen=True, slots=True)
class Written:
    """The answer to WriteFile.

    Example:
        ```python
        sandbox = Sandbox(MemoryDriver())
        written: Written = await sandbox.dispatch(WriteFile("notes.txt", "hello"))
        print(written)
        #> Written(path='notes.txt', bytes_written=5)
        ```
    """

    path: str
    """The path as given in the payload."""
    bytes_written: int


@dataclass(frozen=True, slots=True)
class Listing(Answer):
    """The answer to ListFiles: the entries of a directory, sorted by name.

    Example:
        ```python
        sandbox = Sandbox(MemoryDriver({"/workspace/notes.txt": b"hello"}))
        listing: Listing = await sandbox.dispatch(ListFiles("."))
        print([entry.name for entry in listing.entries], listing.truncated)
        #> ['notes.txt'] False
        ```
    """

    path: str
    """The path as given in the payload."""
    entries: tuple[FileStat, ...]
    truncated: bool = False
    """Whether entries are missing."""

    def to_data(self, caps: Caps = DEFAULT_CAPS) -> dict[str, Any]:
        """The answer of `read` to a directory. Each entry's path can be passed to the next call."""
        entries = [
            {"name": each.name, "path": tidy(posixpath.join(self.path, each.name)), "type": each.type}
            for each in self.entries[: caps.entries]
        ]
        truncated = self.truncated or len(entries) < len(self.entries)
        return {
            "kind": "listing", "path": self.path, "entries": entries, "entry_count": len(self.entries),
            "truncated": truncated,
        }  # fmt: skip

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        text = {"type": "string"}
        entry = {"type": "object", "properties": {"name": text, "path": text, "type": text}}
        properties: dict[str, Any] = {
            "kind": {"const": "listing"}, "path": text, "entries": {"type": "array", "items": entry},
            "entry_count": {"type": "integer"}, "truncated": {"type": "boolean"},
        }  # fmt: skip
        return {"type": "object", "properties": properties, "required": list(properties)}


Answered = Completed | str | bytes | Written | Listing | bool | CodeResult


async def dispatch(sandbox: "Sandbox", payload: Payload, caps: Caps) -> Answered:
    """Perform a payload. Raises as the method of the same purpose, and ValueError for other values."""
    check_payload(payload)
    match payload:
        case Command():
            given = payload.line if payload.line is not None else payload.argv or ()
            return await sandbox.run(
                given, cwd=payload.cwd, env=payload.env, stdin=payload.stdin, timeout=payload.timeout
            )
        case ReadFile():
            data = await sandbox.read_bytes(payload.path)
            return data if payload.encoding is None else data.decode(payload.encoding)
        case WriteFile():
            data = payload.data.encode() if isinstance(payload.data, str) else payload.data
            await sandbox.write_bytes(payload.path, data, mode=payload.mode)
            return Written(payload.path, len(data))
        case ListFiles():
            return Listing(payload.path, tuple(await sandbox.list(payload.path)))
        case FileExists():
            return await sandbox.exists(payload.path)
        case RunCode():
            return await run_for_value(sandbox, payload.code, payload.language, payload.timeout, most=caps.spool)


def check_payload(payload: object) -> None:
    """Raise ValueError for a value that is not a payload, or for a Command without argv and line."""
    if not isinstance(payload, Payload):
        raise ValueError(
            f"dispatch() takes a payload such as Command(line='ls -l') or ReadFile('notes.txt'), not {shown(payload)}."
        )
    if isinstance(payload, Command):
        if (payload.argv is None) == (payload.line is None):
            raise ValueError("dispatch() takes a Command with argv or with line: Command(line='ls -l').")
        if payload.input and payload.stdin is None:
            raise ValueError(
                "dispatch() sends a Command's `stdin`: write Command(…, stdin=b'…') instead of input=True."
            )
