"""The description of `script`: what a model may write, and the session's tools as typed Python."""

from collections.abc import Mapping, Sequence
from keyword import iskeyword
from typing import Any, Final

from handrail.script.plan import OWN_NAMES
from handrail.toolkit.tool import Tool

INTRODUCTION: Final = """\
Run a Python script that calls tools itself: one script instead of many calls. Every call in it is checked, counted and
approved as if you made it. tools.NAME(argument=value) returns plain data, or raises ToolError (kind, message, field,
retryable). tools.gather(call("NAME", argument=value), ...) makes calls together. A value above a few KB is a Ref:
.preview, .size, .kind, .incomplete, .read(start, end), .lines(), and ["key"] for a part of it; pass it on as an
argument as it is. The value of the last expression, or of `return`, is the result: JSON data. print() goes to the
logs. Files under media/ come back as media. How many calls and seconds a script may use is limited;
a refusal says the limit. It sees the sandbox's files, and a network only where bash has one; nothing of it is kept but
files."""
TYPES: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
ANSWERS: Final = {
    "bash": "{'exit_code': int, 'stdout': str, 'stderr': str}",
    "edit": "{'path': str, 'replacements': int, 'diff': str}",
    "glob": "{'paths': list[str], 'count': int}",
    "grep": "{'matches': list[{'path': str, 'line': int, 'text': str}], 'match_count': int}",
    "read": "{'text': str, 'total_lines': int} | {'entries': list[{'name': str, 'type': str}]}",
    "read_artifact": "{'text': str}",
    "run_code": "{'exit_code': int, 'stdout': str, 'stderr': str}",
    "write": "{'path': str, 'created': bool, 'diff': str}",
}
"""Types of the answers of built-in tools, as far as a script needs them; the bodies return Any."""
BUILT_IN: Final = "handrail.tools."
MAX_TYPE_CHARS: Final = 80
"""Characters of a type in a stub; a longer one is Any."""
MAX_SUMMARY_CHARS: Final = 120
"""Characters of a tool's summary in its stub."""


def describe(tools: Sequence[Tool]) -> str:
    """The description of `script` for these tools; the same tools give the same text."""
    usable = sorted(
        (tool for tool in tools if "script" in tool.callable_from),
        key=lambda it: it.name,
    )
    shown = [stub(tool) for tool in usable if not tool.deferred]
    hidden = sum(tool.deferred for tool in usable)
    search = "; tools.search_tools finds them" if any(tool.name == "search_tools" for tool in usable) else ""
    more = [f"# and {hidden} more{search}"] if hidden else []
    return "\n".join([INTRODUCTION, "The tools:", *(shown or ["# none"]), *more])


def stub(tool: Tool) -> str:
    """A line of Python that declares the tool as a function."""
    schema = tool.parameters
    required = schema.get("required", ())
    fields = sorted(schema.get("properties", {}).items(), key=lambda item: item[0] not in required)
    given = [_parameter(name, field, schema, name in required) for name, field in fields if _is_name(name)]
    unnamed = [name for name, _ in fields if not _is_name(name)]
    if unnamed:
        given.append("**more: Any")
    returns = f" -> {type_of(tool.output, tool.output)}" if tool.output else _answer(tool)
    plain = _is_name(tool.name) and tool.name not in OWN_NAMES and not tool.name.startswith("_")
    title = tool.name if plain else "".join(char if char.isidentifier() else "_" for char in f"_{tool.name}")
    notes = [
        *([] if plain else [f"tools[{tool.name!r}]"]),
        *([f"**{{{', '.join(f'{name!r}: …' for name in unnamed)}}}"] if unnamed else []),
        *(
            [summary]
            if (summary := " ".join(tool.description.strip().partition("\n")[0][:MAX_SUMMARY_CHARS].split()))
            else []
        ),
    ]
    return f"def {title}({'*, ' * any(map(_is_name, dict(fields)))}{', '.join(given)}){returns}: ..." + (
        f"  # {'; '.join(notes)}" if notes else ""
    )


def _answer(tool: Tool) -> str:
    is_built_in = getattr(tool.function, "__module__", "") == f"{BUILT_IN}{tool.name}"
    return f" -> {ANSWERS[tool.name]}" if is_built_in and tool.name in ANSWERS else ""


def _is_name(name: str) -> bool:
    return name.isidentifier() and not iskeyword(name)


def _parameter(name: str, field: Any, root: Mapping[str, Any], required: bool) -> str:
    default = field.get("default") if isinstance(field, Mapping) else None
    return f"{name}: {type_of(field, root)}" + ("" if required else f" = {default!r}")


def type_of(schema: Any, root: Mapping[str, Any], depth: int = 0) -> str:
    """The Python type of a JSON Schema; Any where the type is long or deep."""
    text = _type(schema, root, depth) if isinstance(schema, Mapping) and depth < 4 else "Any"
    return text if len(text) <= MAX_TYPE_CHARS else "Any"


def _type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    if isinstance(ref := schema.get("$ref"), str) and ref.startswith("#/$defs/"):
        return type_of(root.get("$defs", {}).get(ref[len("#/$defs/") :]), root, depth + 1)
    if isinstance(values := schema.get("enum"), list):
        return f"Literal[{', '.join(map(repr, values))}]" if values else "Any"
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(type_of(branch, root, depth + 1) for branch in branches))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(type_of({**schema, "type": each}, root, depth + 1) for each in kind)) or "Any"
    if kind == "array":
        return f"list[{type_of(schema.get('items', {}), root, depth + 1)}]"
    return _object(schema, root, depth) if kind == "object" else TYPES.get(str(kind), "Any")


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    inner, fields = schema.get("additionalProperties"), schema.get("properties")
    if isinstance(fields, Mapping) and fields:
        return "{" + ", ".join(f"{name!r}: {type_of(held, root, depth + 1)}" for name, held in fields.items()) + "}"
    return f"dict[str, {type_of(inner, root, depth + 1)}]" if isinstance(inner, Mapping) else "dict"
