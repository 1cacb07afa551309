"""Show the first entries of a listing, of matches or of paths; all of them are kept."""

import json
from typing import Any, Final

from handrail.contract.result import to_wire
from handrail.gates.shape_caps import Caps
from handrail.gates.shape_keep import JSON, Keeper

LISTS: Final = {"listing": "entries", "matches": "matches", "paths": "paths"}
"""By the kind of a value: where its entries are, which is also the name of their cap."""
_SLACK: Final = 60
"""Characters by which a line may be longer: the note of whoever cut it."""


async def shape_list(value: dict[str, Any], size: int, caps: Caps, keeper: Keeper) -> dict[str, Any]:
    """As many entries as fit both the count and the characters; the very object, of that size, when all do."""
    key = LISTS[value["kind"]]
    entries = value.get(key)
    if not isinstance(entries, list):
        return value
    shown = entries[: getattr(caps, key)]
    if key == "matches":
        shown = [_short(entry, caps.match) for entry in shown]
    room = caps.other * 9 // 10
    if size > room:
        shown = shown[: _fitting(shown, room)]
    if len(shown) == len(entries) and all(new is old for new, old in zip(shown, entries, strict=True)):
        return value
    kept = await keeper.keep(json.dumps(to_wire(entries), ensure_ascii=False), f"{key}.json", JSON)
    where = f'; all of them: read_artifact(ref="{kept.ref}")' if kept else "; ask for a smaller part"
    keeper.notes.append(f"{len(shown):,} of {len(entries):,} {key} are shown{where}.")
    return {**value, key: shown, "truncated": True, **({"full": kept} if kept else {})}


def collapsed(value: Any) -> str | None:
    """What is left of an old listing when room is needed: its count and its path. None for anything else."""
    if not isinstance(value, dict) or value.get("kind") != "listing":
        return None
    entries = value.get("entries")
    count = value.get("entry_count", len(entries) if isinstance(entries, list) else 0)
    return f"{count} entries in {value.get('path', '.')}"


def _fitting(entries: list[Any], room: int) -> int:
    """How many of them can be written in so many characters."""
    for at, entry in enumerate(entries):
        room -= len(json.dumps(to_wire(entry), ensure_ascii=False)) + 2
        if room < 0:
            return at
    return len(entries)


def _short(entry: Any, cap: int) -> Any:
    """The same with every long line in it cut."""
    if isinstance(entry, str) and len(entry) > cap + _SLACK:
        return f"{entry[:cap]} [… {len(entry) - cap:,} more characters]"
    if isinstance(entry, dict):
        short = {name: _short(held, cap) for name, held in entry.items()}
        return short if any(short[name] is not held for name, held in entry.items()) else entry
    if isinstance(entry, list):
        lines = [_short(held, cap) for held in entry]
        return lines if any(new is not old for new, old in zip(lines, entry, strict=True)) else entry
    return entry
