"""Read the tools that a server lists: names made safe, schemas compiled leniently, definitions hashed."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from handrail.contract.approval import Effect, Risk
from handrail.contract.errors import BadSchema
from handrail.contract.truncated import cut
from handrail.misuse import kind_of, shown
from handrail.schema.navigate import Schema, rewrite
from handrail.schema.validate import Validator

MAX_NAME_CHARS: Final = 64
"""Length of a tool's name with its server's, in characters."""
MAX_ORIGINAL_CHARS: Final = 1_000
"""Length of a name that a server may give, in characters."""
MAX_DESCRIPTION_CHARS: Final = 10_000
MAX_RAW_DESCRIPTION_CHARS: Final = 40_000
"""Length of a description that is read, in characters; more than is shown, because hidden ones are removed."""
MAX_SCHEMA_CHARS: Final = 256 << 10
"""Size of a schema as JSON, in characters: more would fill the model's context with one tool."""
RAW: Final = "handrail/raw"
"""The key of `_meta` under which a definition travels as the server wrote it."""
EVERYTHING: Final[frozenset[Effect]] = frozenset({"reads", "writes", "executes", "reaches_out", "spends"})
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool of a server."""

    name: str
    """The model's name for the tool: `server__tool`."""
    original: str
    """The server's name for the tool."""
    description: str
    checks: Validator
    output: Mapping[str, Any] | None
    hash: str
    """Hash of the definition that the server wrote: description, schemas and annotations."""
    definition: Mapping[str, Any]
    """The part of the server's definition that is hashed."""
    risk: Risk
    effects: frozenset[Effect]


def wire_form(raw: Any) -> dict[str, Any] | None:
    """A tool that passes any check of the protocol's form, and carries the server's text; None without a name.

    One tool with a mistake must not cost the others: the protocol's own library refuses the whole list.
    """
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str) or not raw["name"]:
        return None
    schema = raw.get("inputSchema")
    plain = isinstance(schema, dict) and schema.get("type") == "object" and _has_plain_fields(schema)
    return {
        "name": raw["name"],
        "inputSchema": schema if plain else {"type": "object"},
        "_meta": {RAW: raw},
    }


def _has_plain_fields(schema: dict[str, Any]) -> bool:
    properties, required, draft = schema.get("properties", {}), schema.get("required", []), schema.get("$schema", "")
    return (
        isinstance(properties, dict)
        and all(isinstance(value, dict | bool) for value in properties.values())
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
        and isinstance(draft, str)
    )


def definition_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a listed tool that the model or the policy relies on."""
    return {key: raw.get(key) for key in ("title", "description", "inputSchema", "outputSchema", "annotations")}


def hash_of(definition: Mapping[str, Any]) -> str:
    return "sha256:" + sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()


def safe_names(server: str, originals: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The model's name for each tool, by original name. Every change that could confuse is a warning.

    Of names that would become one, those that were changed get a part of their hash; an unchanged one stays.
    """
    plain = {original: f"{server}__{_UNSAFE.sub('_', original)}" for original in originals}
    taken = Counter(name[:MAX_NAME_CHARS] for name in plain.values())
    names, warnings = dict[str, str](), list[str]()
    for original, name in plain.items():
        names[original] = name
        if name == f"{server}__{original}" and len(name) <= MAX_NAME_CHARS:
            continue
        if len(name) > MAX_NAME_CHARS or taken[name] > 1:
            digest = sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:6]
            names[original] = f"{name[: MAX_NAME_CHARS - 7]}_{digest}"
        clash = ", because its name clashes with another one" if taken[name[:MAX_NAME_CHARS]] > 1 else ""
        warnings.append(f"the tool {shown(original)} is offered as {names[original]}{clash}")
    return names, warnings


def make_offer(name: str, raw: Mapping[str, Any], *, trust: bool) -> tuple[Offer, list[str]]:
    """The tool, and the unenforced parts of its definition. Raises BadSchema, with the reason, if unusable."""
    warnings: list[str] = []
    definition = definition_of(raw)
    parameters = _checked_size("inputSchema", raw.get("inputSchema") if "inputSchema" in raw else {"type": "object"})
    checks, loosened = Validator.lenient(rewrite(parameters, _clean_texts))
    warnings += [f"{name}: {warning}" for warning in loosened]
    output = None
    if (given := raw.get("outputSchema")) is not None:
        output, more = _output(given)
        warnings += [f"{name}: outputSchema: {warning}" for warning in more]
    written = _description(raw)
    description, hidden = without_hidden(written[:MAX_RAW_DESCRIPTION_CHARS])
    if hidden:
        warnings.append(f"{name}: {hidden} hidden characters were removed from its description")
    if len(description) > MAX_DESCRIPTION_CHARS or len(written) > MAX_RAW_DESCRIPTION_CHARS:
        warnings.append(f"{name}: its description has {len(written):,} characters and was cut")
        description = str(cut(description, MAX_DESCRIPTION_CHARS))
    risk, effects = _risk(raw.get("annotations")) if trust else ("high", EVERYTHING)
    offer = Offer(
        name, raw["name"], description, checks, output, hash_of(definition), definition, risk, effects
    )  # fmt: skip
    return offer, warnings


def _description(raw: Mapping[str, Any]) -> str:
    texts = (raw.get("description"), raw.get("title"))
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


def _checked_size(what: str, schema: Any) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping):
        raise BadSchema(f"its {what} is {kind_of(schema)}, not an object")
    size = len(json.dumps(schema))
    if size > MAX_SCHEMA_CHARS:
        raise BadSchema(f"its {what} has {size:,} characters, and the most is {MAX_SCHEMA_CHARS:,}")
    return schema


def _output(given: Any) -> tuple[Mapping[str, Any] | None, Iterable[str]]:
    """The schema of its answers; one that cannot be compiled is left out, because the answers are still of use."""
    try:
        validator, warnings = Validator.lenient(_checked_size("outputSchema", given), of="result")
    except BadSchema as error:
        return None, [f"is not enforced: {error}"]
    return validator.schema, warnings


def _clean_texts(schema: Schema) -> Schema:
    for keyword in ("description", "title"):
        if isinstance(text := schema.get(keyword), str):
            schema[keyword] = without_hidden(text)[0]
    return schema


def without_hidden(text: str) -> tuple[str, int]:
    """The text without characters that a model would read and a person would not see, and how many were removed."""
    if text.isascii() and text.isprintable():
        return text, 0
    kept = "".join(letter for letter in text if letter in "\n\t" or not _is_hidden(letter))
    return kept, len(text) - len(kept)


def _is_hidden(letter: str) -> bool:
    return unicodedata.category(letter) in _HIDDEN or 0xE0100 <= ord(letter) <= 0xE01EF


def _risk(annotations: Any) -> tuple[Risk, frozenset[Effect]]:
    """Risk by the annotations of a trusted server; a missing one has the protocol's own, careful default."""
    given = annotations if isinstance(annotations, Mapping) else {}
    hints = {key: given[key] for key in _HINTS if isinstance(given.get(key), bool)}
    world: frozenset[Effect] = frozenset({"reaches_out"}) if hints.get("openWorldHint", True) else frozenset()
    if hints.get("readOnlyHint", False):
        return "safe", world | {"reads"}
    return ("high" if hints.get("destructiveHint", True) else "safe"), world | {"reads", "writes"}
