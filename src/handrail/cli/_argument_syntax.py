"""Read the arguments of a call as a person types them: JSON, `name=value`, `name=@file`, or one plain text."""

import difflib
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from handrail.contract.errors import HandrailError
from handrail.schema.navigate import escape, spec_at, takes
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import Toolbox

Arguments = str | dict[str, Any]
FROM_FILE: Final = "@"
_FIELD: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_JSON_OBJECT: Final = re.compile(r"""\s*\{\s*(?:\}|$|"[^"]*"\s*:|'[^']*'\s*:)""")
"""The beginning of a JSON object, right or wrong; `{ echo hi; }` is a command."""
_WORD: Final = re.compile(r"""((?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+)\s*""", re.DOTALL)
"""One word of a command line, with its quotes, and the space after it."""
LIKE_A_FIELD: Final = 0.75
"""Similarity of a name to a field's, from 0 to 1, from which the name counts as a slip."""


def read_words(tool: Tool | None, words: Sequence[str], *, stdin: bool = True) -> Arguments:
    """The arguments that these words of a command line mean; with `stdin`, `-` stands for standard input.

    Raises HandrailError, saying what to type.
    """
    if list(words) == ["-"] and stdin:
        return sys.stdin.read()
    if tool is None or not words:  # the session says which tools there are
        return "{}"
    if len(words) == 1 and _JSON_OBJECT.match(words[0]):
        return words[0]
    fields: dict[str, Any] = {}
    texts = [word for word in words if not _take_field(tool, word, fields, stdin=stdin)]
    if texts:
        _take_text(tool, texts, fields)
    return fields


def read_line(line: str, tools: Toolbox) -> tuple[str, Arguments]:
    """The tool's name and the arguments that a line of the shell means: a call as JSON, or the tool and its words.

    A tool that runs what it is given takes the rest of the line as it stands.
    """
    if _JSON_OBJECT.match(line):
        return _read_call(line)
    name, rest = [*line.split(maxsplit=1), ""][:2]
    rest, tool = rest.strip(), tools.get(name)
    if tool is None or not rest or _JSON_OBJECT.match(rest):
        return name, rest if rest and tool is not None else "{}"
    fields: dict[str, Any] = {}
    main = command_field(tool)
    if main is not None:
        while (word := _WORD.match(rest)) and _take_field(tool, _unquoted(word[1]), fields, stdin=False):
            rest = rest[word.end() :]
        if rest:
            _put(tool, main, rest, fields)
        return name, fields
    return name, read_words(tool, shlex_words(rest), stdin=False)


def shlex_words(text: str) -> list[str]:
    """The words of a line. Raises HandrailError for a quotation mark that is not closed."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise HandrailError(f"this line cannot be read: {error}; close it, or put it into other quotes") from None


def lone_text(tool: Tool) -> str | None:
    """The field that one text without a name means: the only required one, if it takes text."""
    required = tool.parameters.get("required", [])
    return required[0] if len(required) == 1 and _takes(tool, required[0], "string") else None


def command_field(tool: Tool) -> str | None:
    """The field that takes the rest of a line as it stands: the lone text of a tool that runs what it is given."""
    main = lone_text(tool) if "executes" in tool.effects else None
    return None if main is None or choices_of(tool, main) else main


def fields_of(tool: Tool) -> list[str]:
    """The names of the tool's fields."""
    return list(tool.parameters.get("properties", {}))


def choices_of(tool: Tool, field: str) -> list[str]:
    """The values that a field takes, where they can be listed."""
    found = spec_at(tool.parameters, _location(field))
    members = found.members or ()
    if _takes(tool, field, "boolean"):
        return ["true", "false"]
    return [member for member in members if isinstance(member, str)]


def _read_call(line: str) -> tuple[str, Arguments]:
    try:
        call = json.loads(line)
    except ValueError as error:
        raise HandrailError(f"this line is not JSON: {error}") from None
    name = call.get("name", call.get("tool"))
    arguments = call.get("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, str | dict):
        raise HandrailError('a call as JSON is {"name": "bash", "arguments": {"command": "echo hi"}}')
    return name, arguments


def _take_field(tool: Tool, word: str, fields: dict[str, Any], *, stdin: bool) -> bool:
    """Whether the word names a field of the tool; its value is then in `fields`."""
    found = _FIELD.fullmatch(word)
    if found is None or found[1] not in fields_of(tool):
        return False
    _put(tool, found[1], _value(tool, found[1], found[2], stdin=stdin), fields)
    return True


def _put(tool: Tool, name: str, value: Any, fields: dict[str, Any]) -> None:
    if name in fields:
        raise HandrailError(f"{name} of {tool.name} is given twice; give it once")
    fields[name] = value


def _take_text(tool: Tool, texts: Sequence[str], fields: dict[str, Any]) -> None:
    main, known = lone_text(tool), fields_of(tool)
    for text in texts:
        slip = _FIELD.fullmatch(text)
        near = difflib.get_close_matches(slip[1], known, 1, LIKE_A_FIELD) if slip else []
        if slip and (near or main is None):
            instead = f"; did you mean {near[0]}=?" if near else ""
            raise HandrailError(f"{tool.name} has no field {slip[1]!r}; it has {', '.join(known)}{instead}")
    if main is None:
        listed = f"it has {', '.join(known)}" if known else "it has no fields"
        raise HandrailError(f"{texts[0]!r} is neither JSON nor a field of {tool.name} (name=value); {listed}")
    if len(texts) > 1:
        raise HandrailError(f"{tool.name} takes one text, {main}; put it into quotes: {shlex.quote(' '.join(texts))}")
    _put(tool, main, texts[0], fields)


def _value(tool: Tool, name: str, text: str, *, stdin: bool) -> Any:
    """The value of a field: text where the field takes text, otherwise JSON; `@file` is what is in the file."""
    if text.startswith(FROM_FILE * 2):
        text = text[1:]
    elif text.startswith(FROM_FILE):
        text = _content(name, text[1:], stdin=stdin)
    if _takes(tool, name, "string"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text  # preflight says what the field takes


def _content(name: str, path: str, *, stdin: bool) -> str:
    try:
        if path == "-" and stdin:
            return sys.stdin.read()
        with open(os.path.expanduser(path), encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError:
        raise HandrailError(f"{name}=@{path}: the file is not UTF-8 text") from None
    except OSError as error:
        raise HandrailError(
            f"{name}=@{path}: {error.strerror}; a text that begins with @ is written {name}=@@…"
        ) from None


def _unquoted(word: str) -> str:
    """The word without its quotes; a word with an open quotation mark stays as it is."""
    try:
        return "".join(shlex.split(word))
    except ValueError:
        return word


def _takes(tool: Tool, field: str, kind: str) -> bool:
    return takes(tool.parameters, _location(field), kind)


def _location(field: str) -> tuple[str, ...]:
    return (f"#/properties/{escape(field)}",)


def described(tool: Tool, field: str) -> Mapping[str, Any]:
    """The schema of a field."""
    about: Mapping[str, Any] = tool.parameters["properties"][field]
    return about
