"""Find the lines of files that a pattern matches, by ripgrep or by the engine in this library, in the same order."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from handrail.contract.errors import BadSchema
from handrail.sandbox.sandbox import Sandbox
from handrail.schema.validate import Validator
from handrail.tools.regex import portable

MOST_OUTPUT: Final = 32 << 20
"""Bytes of ripgrep's answer that are read; more than enough for the matches that are shown."""


@dataclass(frozen=True, slots=True)
class Found:
    """One matching line."""

    path: str
    line: int
    text: str


class Regex:
    """A checked pattern. Raises ValueError for one that is not valid."""

    def __init__(self, pattern: str, *, ignore_case: bool) -> None:
        self.text = portable(pattern, ignore_case=ignore_case)
        try:
            self.matches: Callable[[str], bool] = Validator({"pattern": self.text}, any_root=True).is_valid
            self._somewhere: Callable[[str], bool] = Validator({"pattern": f"(?m){self.text}"}, any_root=True).is_valid
        except BadSchema as error:
            raise ValueError(f"The pattern is not a valid regular expression: {_reason(error)}") from None

    def lines(self, path: str, data: bytes, most: int) -> list[Found]:
        """The matching lines of one file, the first `most` of them; none of a binary file."""
        if b"\0" in data:
            return []
        text = data.decode("utf-8", "replace")
        if not self._somewhere(text):
            return []
        found = []
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        for number, line in enumerate(lines, 1):
            if self.matches(line):
                found.append(Found(path, number, line))
                if len(found) >= most:
                    break
        return found


def _reason(error: BadSchema) -> str:
    said = str(error).splitlines()[0]
    return "look-around and back-references are not known" if "linear" in said else said.rpartition(": ")[2]


async def search(sandbox: Sandbox, regex: Regex, paths: Iterable[str], most: int) -> list[Found]:
    """The first `most` matching lines, read through the sandbox's own file operations."""
    found: list[Found] = []
    for path in paths:
        try:
            data = await sandbox.read_bytes(path)
        except OSError:
            continue  # it may not be read, or has gone meanwhile
        found.extend(regex.lines(path, data, most - len(found)))
        if len(found) >= most:
            break
    return found


async def search_with_ripgrep(sandbox: Sandbox, regex: Regex, paths: list[str], most: int) -> list[Found]:
    """The same by ripgrep, which is given exactly these files."""
    if not paths:
        return []
    options = [
        "--json",
        "--no-config",
        "--encoding",
        "none",
        "--no-messages",
        "--threads",
        "1",
        "--max-count",
        str(most),
    ]
    argv = ["xargs", "-0", "rg", *options, "--regexp", regex.text, "--"]
    names = b"\0".join(path.encode("utf-8", "surrogateescape") for path in paths)
    done = await sandbox.run(argv, cwd="/", stdin=names, max_output=MOST_OUTPUT)
    found: list[Found] = []
    here: list[Found] = []
    for row in done.spool.read(0, MOST_OUTPUT).splitlines():
        kind, data = _row(row)
        if kind == "match":
            here.append(Found(_text(data["path"]), data["line_number"], _text(data["lines"]).removesuffix("\n")))
        elif kind == "end":
            if data.get("binary_offset") is None:
                found.extend(here)
            here = []
        if len(found) >= most:
            break
    return found[:most]


def _row(row: bytes) -> tuple[str, dict[str, Any]]:
    try:
        event = json.loads(row)
        return event["type"], event["data"]
    except (ValueError, KeyError, TypeError):
        return "", {}  # the last row may be cut


def _text(field: dict[str, str]) -> str:
    if "text" in field:
        return field["text"]
    return b64decode(field["bytes"]).decode("utf-8", "replace")
