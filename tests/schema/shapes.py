"""The schemas that the tests of preflight share: flat, nested, lists of objects, enums, unions, references, none."""

from typing import Any, Final

from handrail.schema.validate import Validator


def closed(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    """A strict object schema."""
    base = {"type": "object", "properties": properties, "additionalProperties": False, **more}
    return {**base, "required": list(required)} if required else base


INTEGER: Final = {"type": "integer"}
STRING: Final = {"type": "string"}
FLAT_SCHEMA: Final = closed(
    {
        "n": INTEGER,
        "f": {"type": "number"},
        "s": STRING,
        "b": {"type": "boolean"},
        "tags": {"type": "array", "items": STRING},
        "ids": {"type": "array", "items": INTEGER},
        "o": {"type": "object"},
        "max_depth": INTEGER,
        "path": STRING,
    },
    "n",
)
NESTED_SCHEMA: Final = closed(
    {"where": closed({"line": INTEGER, "note": STRING, "marks": {"type": "array", "items": INTEGER}}, "line")}, "where"
)
ROWS_SCHEMA: Final = closed(
    {
        "edits": {
            "type": "array",
            "minItems": 1,
            "items": closed({"old": STRING, "new": STRING, "replace_all": {"type": "boolean"}}, "old", "new"),
        },
        "labels": {"type": "array", "items": {"type": "array", "items": STRING}},
    },
    "edits",
)
ENUMS_SCHEMA: Final = closed(
    {
        "mode": {"enum": ["fast", "Slow", "two words"]},
        "twin": {"enum": ["A", "a", "b"]},
        "level": {"type": "integer", "enum": [1, 2, 3]},
        "kind": {"const": "Fixed"},
    }
)
UNIONS_SCHEMA: Final = closed(
    {
        "count": {"anyOf": [INTEGER, {"type": "null"}]},
        "flag": {"anyOf": [INTEGER, {"type": "boolean"}]},
        "either": {"anyOf": [STRING, INTEGER]},
        "one": {"oneOf": [{"type": "integer", "minimum": 10}, {"type": "integer", "maximum": 5}]},
        "shape": {"anyOf": [closed({"radius": INTEGER}, "radius"), closed({"side": INTEGER}, "side")]},
        "list": {"anyOf": [{"type": "array", "items": STRING}, {"type": "null"}]},
        "both": {"allOf": [INTEGER, {"minimum": 3}]},
        "several": {"type": ["integer", "null"]},
    }
)
REFS_SCHEMA: Final = closed(
    {"tree": {"$ref": "#/$defs/Tree"}, "at": {"$ref": "#/$defs/At", "default": {"x": 1}}},
    "tree",
    **{
        "$defs": {
            "Tree": closed({"value": INTEGER, "left": {"$ref": "#/$defs/Tree"}}, "value"),
            "At": closed({"x": {"type": "integer", "minimum": 1}}, "x"),
        }
    },
)
BOUNDS_SCHEMA: Final = closed(
    {
        "port": {"type": "integer", "minimum": 1, "maximum": 65535},
        "code": {"type": "string", "pattern": "^[A-Z]{3}[0-9]+$"},
        "pair": {"type": "array", "items": INTEGER, "minItems": 2},
        "short": {"type": "string", "maxLength": 3},
        "step": {"type": "number", "multipleOf": 0.5, "exclusiveMinimum": 0},
    }
)
OPEN_SCHEMA: Final = {"type": "object", "properties": {"n": INTEGER, "s": STRING}, "required": ["n"]}
NONE_SCHEMA: Final = closed({})

SCHEMAS: Final = {
    "flat": FLAT_SCHEMA,
    "nested": NESTED_SCHEMA,
    "rows": ROWS_SCHEMA,
    "enums": ENUMS_SCHEMA,
    "unions": UNIONS_SCHEMA,
    "refs": REFS_SCHEMA,
    "bounds": BOUNDS_SCHEMA,
    "open": OPEN_SCHEMA,
    "none": NONE_SCHEMA,
}
VALIDATORS: Final = {name: Validator(schema) for name, schema in SCHEMAS.items()}
