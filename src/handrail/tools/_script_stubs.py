"""The description of `script`: what a model may write, and the session's tools as typed Python."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from handrail.toolkit.tool import Tool
from handrail.tools._script_plan import NOT_INSIDE

INTRODUCTION: Final = """\
Run a Python script that calls tools itself: one script instead of many calls. Every call in it is checked, counted and
approved as if you made it. tools.NAME(argument=value) returns plain data, or raises ToolError (kind, message, field,
retryable). tools.gather(call("NAME", argument=value), ...) makes calls together. A value above 4,096 bytes is a Ref:
.preview, .size, .kind, .read(start, end), .lines(), and ["key"] for a part of it; pass it on as an argument as it is.
The value of the last expression, or of `return`, is the result: JSON data. print() goes to the logs. Files under media/
come back as media. At most 50 calls and 300 seconds; the script has no network and nothing of it is kept but files."""
TYPES: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
LONGEST_TYPE: Final = 80
LONGEST_SUMMARY: Final = 120


def describe(tools: Sequence[Tool]) -> str:
    """Always the same text for the same tools."""
    usable = sorted(
        (tool for tool in tools if tool.name not in NOT_INSIDE and "script" in tool.callable_from),
        key=lambda it: it.name,
    )
    shown = [stub(tool) for tool in usable if not tool.deferred]
    hidden = sum(tool.deferred for tool in usable)
    more = [f"and {hidden} more: tools.search_tools(query=…) finds them"] if hidden else []
    return "\n".join([INTRODUCTION, "The tools:", *(shown or ["none"]), *more])


def stub(tool: Tool) -> str:
    """One tool as a line of Python."""
    schema = tool.parameters
    required = schema.get("required", ())
    fields = sorted(schema.get("properties", {}).items(), key=lambda item: item[0] not in required)
    given = [
        f"{name}: {type_of(field, schema)}" + ("" if name in required else f" = {field.get('default')!r}")
        for name, field in fields
    ]
    returns = f" -> {type_of(tool.output, tool.output)}" if tool.output else ""
    summary = tool.description.strip().partition("\n")[0][:LONGEST_SUMMARY]
    return f"{tool.name}({', '.join(given)}){returns}" + (f"  # {summary}" if summary else "")


def type_of(schema: Any, root: Mapping[str, Any], depth: int = 0) -> str:
    """A JSON Schema as a Python type, short: what is long or deep is Any."""
    text = _type(schema, root, depth) if isinstance(schema, Mapping) and depth < 4 else "Any"
    return text if len(text) <= LONGEST_TYPE else "Any"


def _type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    if isinstance(ref := schema.get("$ref"), str) and ref.startswith("#/$defs/"):
        return type_of(root.get("$defs", {}).get(ref[len("#/$defs/") :]), root, depth + 1)
    if isinstance(values := schema.get("enum"), list):
        return f"Literal[{', '.join(map(repr, values))}]"
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(type_of(branch, root, depth + 1) for branch in branches))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(type_of({**schema, "type": each}, root, depth + 1) for each in kind))
    if kind == "array":
        return f"list[{type_of(schema.get('items', {}), root, depth + 1)}]"
    if kind == "object":
        inner = schema.get("additionalProperties")
        fields = schema.get("properties")
        if isinstance(fields, Mapping) and fields:
            return "{" + ", ".join(f"{name}: {type_of(held, root, depth + 1)}" for name, held in fields.items()) + "}"
        return f"dict[str, {type_of(inner, root, depth + 1)}]" if isinstance(inner, Mapping) else "dict"
    return TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"
