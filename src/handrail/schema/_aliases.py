"""Respell aliases: other names of a property, which its schema declares and which are accepted without a warning."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from handrail.schema.describe import show
from handrail.schema.navigate import Spec, Steps, located, spec_at


def single(spec: Spec, value: Mapping[str, Any]) -> dict[str, str]:
    """Each alias in an object and the property it stands for, where nothing else in the object stands for it."""
    if not spec.aliases:
        return {}
    used = {name: spec.aliases[name] for name in value if name in spec.aliases}
    times = Counter(used.values())
    return {alias: name for alias, name in used.items() if times[name] == 1 and name not in value}


def clashing(spec: Spec, value: Mapping[str, Any]) -> dict[str, str]:
    """Each alias in an object whose property is there too, by its own name or by another alias."""
    if not spec.aliases:
        return {}
    alone = single(spec, value)
    return {name: spec.aliases[name] for name in value if name in spec.aliases and name not in alone}


def by_own_names(spec: Spec, value: dict[str, Any]) -> dict[str, Any]:
    """The object with each alias replaced by its property; the same object if there is none."""
    names = single(spec, value)
    return {names.get(name, name): item for name, item in value.items()} if names else value


def wrong_aliases(root: Mapping[str, Any]) -> Iterator[tuple[Steps, str]]:
    """Locations of aliases that cannot be told apart from other names, with the reason."""
    for steps, schema in located(root):
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            continue
        declared, meanings = _declared(root, schema), dict[str, str]()
        for name, inner in properties.items():
            for more, listed in alias_lists(inner):
                for why in _wrong(name, listed, declared, meanings):
                    yield (*steps, "properties", name, *more, "aliases"), why


def alias_lists(schema: Any) -> Iterator[tuple[Steps, Any]]:
    """Location and aliases of each property that declares aliases."""
    branches = schema.get("anyOf") if isinstance(schema, Mapping) else None
    inner = enumerate(branches) if isinstance(branches, list) else ()
    for steps, each in (((), schema), *((("anyOf", at), branch) for at, branch in inner)):
        if isinstance(each, Mapping) and "aliases" in each:
            yield steps, each["aliases"]


def _wrong(name: str, listed: Any, declared: set[str], meanings: dict[str, str]) -> Iterator[str]:
    """Why one property's aliases are wrong. `meanings` has the aliases of earlier properties; this one's are added."""
    if not isinstance(listed, list) or not all(isinstance(alias, str) and alias for alias in listed):
        yield f"the aliases of {name!r} are {show(listed)}; write a list of names"
        return
    for alias in listed:
        if alias in declared:
            yield f"the alias {alias!r} of {name!r} is the name of a property"
        elif meanings.setdefault(alias, name) != name:
            yield f"the alias {alias!r} of {name!r} is an alias of {meanings[alias]!r} too"


def _declared(root: Mapping[str, Any], schema: Mapping[str, Any]) -> set[str]:
    """The names of an object's properties, those of its branches included."""
    inside = {"$defs": root.get("$defs"), "definitions": root.get("definitions"), **schema}
    spec = spec_at(inside, ("#",))
    branches = [spec_at(inside, (pointer,)) for _, group in spec.branches for pointer in group]
    return {name for each in (spec, *branches) for name in each.properties}
