"""Make derived schemas strict and short: closed objects, no titles, keys that the type really takes."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from handrail.schema.walk import Schema, rewrite


class Strict(GenerateJsonSchema):
    """Says of integer keys what they look like, which the plain generator leaves out; never warns."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        made = super().dict_schema(schema)
        keys = schema.get("keys_schema", {})
        if keys.get("type") == "int" and "propertyNames" not in made:
            made["propertyNames"] = {"pattern": "^-?(0|[1-9][0-9]{0,17})$"}
        return made


def tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """Close every object that lists its properties, unless its type allows more; drop the generated titles."""
    tidied = rewrite(schema, _tidy_one)
    return dict(tidied)


def _tidy_one(schema: Schema) -> Schema:
    if isinstance(schema.get("title"), str):
        del schema["title"]
    if "properties" in schema and schema.get("type") == "object":
        schema.setdefault("additionalProperties", False)
    return schema
