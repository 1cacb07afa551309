"""Let a valid call pass quickly: what is true of a whole schema is found out once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from handrail.schema._aliases import alias_lists
from handrail.schema.navigate import children, resolve

EXACT: Final = 2**53
"""Largest magnitude at which a float represents every integer."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of a whole schema that tell whether a valid call may still need to be normalized."""

    declared: frozenset[str]
    """The names of all declared parameters."""
    open: bool
    """Whether unknown parameters are accepted."""
    nested: frozenset[str]
    """Parameters whose values must be searched for blanks and whole floats."""
    unusual: bool
    """Whether the fast path never applies: the root has branches, or an inner object is open."""
    loose: frozenset[str]
    """Parameters that accept any object, and so would accept their own schema."""
    blanks: bool
    """Whether the schema says of any text that a blank one means absent."""
    own_blanks: bool
    """Whether the schema, if derived, says so: in derived schemas an empty default says so too."""
    wide: frozenset[str]
    """Parameters in which a number may become a float, which cannot represent every integer."""
    decimals: bool
    """Whether a number may become a Decimal, which holds more digits than a float."""
    aliases: bool
    """Whether a property has other names."""


_NONE: Final[frozenset[str]] = frozenset()
_UNKNOWN: Final = Traits(
    _NONE, open=False, nested=_NONE, unusual=True, loose=_NONE, blanks=True, own_blanks=True, wide=_NONE, decimals=True,
    aliases=True,
)  # fmt: skip
"""Traits of a schema whose root is not an object: nothing is known of it."""


def traits_of(schema: Mapping[str, Any]) -> Traits:
    """Read the traits of a schema. Never fails."""
    root = resolve(schema, schema)
    if not isinstance(root, Mapping):
        return _UNKNOWN
    properties = root.get("properties")
    declared = properties if isinstance(properties, Mapping) else {}
    is_open = root.get("additionalProperties", True) is True and "patternProperties" not in root and bool(declared)
    unusual = any(keyword in root for keyword in ("anyOf", "oneOf", "allOf", "if", "patternProperties"))
    unusual = unusual or isinstance(root.get("additionalProperties"), Mapping)
    everything = list(_all(schema))
    unusual = unusual or any(_is_open(inner) for inner in everything if inner is not root)
    named = [inner for inner in everything if _names_aliases(inner)]
    # an object that is closed refuses the alias, so that a call with one is not valid
    unusual = unusual or any(inner.get("additionalProperties") is not False for inner in named)
    loose = {name for name, inner in declared.items() if _is_loose(resolve(schema, inner))}
    blanks = any(inner.get("blank") == "absent" for inner in everything)
    empty = any("default" in inner and inner["default"] in (None, "") for inner in everything)
    wide = {name for name, inner in declared.items() if _holds_number(schema, inner, left=6)}
    nested = {name for name, inner in declared.items() if _nests(schema, inner, nested=False, left=6)}
    return Traits(
        frozenset(declared),
        is_open,
        frozenset(nested),
        unusual,
        frozenset(loose),
        blanks,
        blanks or empty,
        frozenset(wide),
        any(inner.get("format") == "decimal" for inner in everything),
        bool(named),
    )


def _all(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    waiting = [schema]
    while waiting:
        here = waiting.pop()
        yield here
        waiting.extend(children(here))


def _is_open(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("properties")) and schema.get("additionalProperties", True) is True


def _names_aliases(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    inner = properties.values() if isinstance(properties, Mapping) else ()
    return any(True for each in inner for _ in alias_lists(each))


def _is_loose(schema: Any) -> bool:
    return (
        isinstance(schema, Mapping)
        and not schema.get("properties")
        and (_has_type(schema, "object") or "type" not in schema)
    )


def _nests(root: Mapping[str, Any], schema: Any, *, nested: bool, left: int) -> bool:
    schema = resolve(root, schema)
    if not isinstance(schema, Mapping):
        return False
    if left == 0 or _has_optional_text(root, schema) or (nested and _has_type(schema, "integer")):
        return True
    nested = nested or any(
        keyword in schema for keyword in ("items", "prefixItems", "properties", "additionalProperties")
    )
    return any(_nests(root, inner, nested=nested, left=left - 1) for inner in children(schema))


def _has_optional_text(root: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Whether a blank may stand for an absent optional text."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping):
        return False
    needed = required if isinstance(required, list) else []
    return any(name not in needed and _text(resolve(root, inner)) for name, inner in properties.items())


def _text(schema: Any) -> bool:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return kind in ("string", None) or (isinstance(kind, list) and "string" in kind)


def _holds_number(root: Mapping[str, Any], schema: Any, *, left: int) -> bool:
    schema = resolve(root, schema)
    if not isinstance(schema, Mapping):
        return False
    if left == 0 or _has_type(schema, "number"):
        return True
    return any(_holds_number(root, inner, left=left - 1) for inner in children(schema))


def _has_type(schema: Mapping[str, Any], name: str) -> bool:
    kind = schema.get("type")
    return kind == name or (isinstance(kind, list) and name in kind)


class Checked(Protocol):
    """The part of a Validator that is asked about valid arguments."""

    @property
    def traits(self) -> Traits: ...
    @property
    def typed(self) -> bool: ...


def passes(value: dict[str, Any], validator: Checked, *, own: bool) -> bool:
    """Whether valid arguments plainly need no normalizing."""
    traits = validator.traits
    if traits.unusual or (traits.open and not traits.declared.issuperset(value)):
        return False
    blanks, nested = traits.own_blanks if own else traits.blanks, traits.nested
    for name, item in value.items():
        kind = type(item)
        if kind is str:
            if blanks and (not item or item.isspace()):
                return False
        elif kind is dict or kind is list:
            if name in nested and _holds_suspect(item, blanks):
                return False
            if kind is dict and name in traits.loose and "type" in item:
                return False
        elif kind is float and item.is_integer():
            return False
    return not (traits.wide and validator.typed and _is_large(value, traits))


def _is_large(value: Mapping[str, Any], traits: Traits) -> bool:
    return any(_holds_large(value[name], floats=traits.decimals) for name in traits.wide & value.keys())


def _holds_suspect(value: Any, blanks: bool) -> bool:
    """Whether a value contains a blank or a whole float."""
    level = [value]
    while level:
        inner: list[Any] = []
        for item in level:
            inner.extend(item.values() if type(item) is dict else item)
        level = []
        for item in inner:
            kind = type(item)
            if kind is str:
                if blanks and (not item or item.isspace()):
                    return True
            elif kind is dict or kind is list:
                level.append(item)
            elif kind is float and item.is_integer():
                return True
    return False


def _holds_large(value: Any, *, floats: bool) -> bool:
    """Whether a value contains an integer that a float may not represent or, if asked, a float."""
    level = [value]
    while level:
        if any(type(item) is int and not -EXACT <= item <= EXACT for item in level):
            return True
        if floats and any(type(item) is float for item in level):
            return True
        inner = [item.values() if type(item) is dict else item for item in level if type(item) in (dict, list)]
        level = [item for items in inner for item in items]
    return False
