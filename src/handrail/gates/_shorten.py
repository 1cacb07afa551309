"""Make an answer smaller by its parts: streams, texts, entries of a list, and last whatever fields are large."""

import json
from collections.abc import Collection, Iterator
from typing import Any, Final

from handrail.contract.limits import Caps
from handrail.contract.result import ArtifactRef
from handrail.contract.truncated import Truncated, cut
from handrail.contract.wire import SCALARS, to_wire
from handrail.gates._overflow import OverflowStore

LISTS: Final = {"listing": "entries", "matches": "matches", "paths": "paths"}
"""Field with the entries of a value, by the value's kind; the field is also the name of the cap."""
TEXTS: Final = frozenset({"file", "artifact", "output"})
"""The kinds of a value whose `text` has the cap `file`."""
SMALL_FIELD: Final = 200
"""Characters of a field that is never cut, such as an exit code."""


async def shorten_object(value: dict[str, Any], size: int, caps: Caps, overflow: OverflowStore) -> Any:
    """An object of about `size` characters within its caps; the very object when it is already."""
    own = own_caps(value, caps)
    for name, cap in own.items():
        if not isinstance(value[name], Truncated) and len(value[name]) > cap:
            value = {**value, name: await shorten_text(value[name], name, cap, overflow)}
    listed = LISTS.get(kind) if isinstance(kind := value.get("kind"), str) else None
    if listed is not None and isinstance(value.get(listed), list):
        value = await _shorten_list(value, listed, size, caps, overflow)
    cap = caps.other if own or listed else caps.value
    if size <= cap:
        return value
    return await _shorten_fields(value, cap, overflow, apart=list(own))


async def shorten_text(text: str, name: str, cap: int, overflow: OverflowStore) -> str:
    """The text, or a Truncated of it whose whole is kept. A text that is a Truncated keeps to its cap already."""
    if isinstance(text, Truncated) or len(text) <= cap:
        return text
    kept = await overflow.keep(text, name or "answer.txt")
    overflow.cut_inside = overflow.cut_inside or bool(name)
    overflow.note_cut(name or "The answer", len(text), cap, kept)
    return cut(text, cap, kept)


def own_caps(value: dict[str, Any], caps: Caps) -> dict[str, int]:
    """The fields of this value that have a cap of their own, and that cap."""
    if "exit_code" in value and isinstance(value.get("stdout"), str) and isinstance(value.get("stderr"), str):
        own = {"stdout": caps.stdout, "stderr": caps.stderr, "text": caps.value, "error": caps.stderr}
        return {name: cap for name, cap in own.items() if isinstance(value.get(name), str)}
    if isinstance(value.get("text"), str) and isinstance(kind := value.get("kind"), str) and kind in TEXTS:
        return {"text": caps.file}
    if "bytes_written" in value and isinstance(value.get("diff"), str):
        return {"diff": caps.diff}
    return {}


async def settle_excerpts(value: Any, caps: Caps, overflow: OverflowStore) -> Any:
    """The same with every Truncated inside it within its cap, and its whole stored; the very object if it has none."""
    settled: dict[int, Truncated] = {}
    for name, part in excerpts_in(value, ""):
        if id(part) not in settled:  # one text may stand in two fields
            shorter = part.within(_cap_of(name, caps))
            kept = await overflow.whole(part, name)
            overflow.note_cut(name or "The answer", part.total, shorter.shown, kept)
            settled[id(part)] = shorter.of(kept)
    overflow.cut_inside = overflow.cut_inside or bool(settled)
    return _replaced(value, settled) if settled else value


def _cap_of(name: str, caps: Caps) -> int:
    own = {"": caps.value, "stderr": caps.stderr, "diff": caps.diff}
    return own.get(name, caps.stdout)


def excerpts_in(value: Any, name: str) -> Iterator[tuple[str, Truncated]]:
    """Every Truncated, and the name of the field in which it is."""
    if isinstance(value, Truncated):
        yield name, value
    elif isinstance(value, dict) and not SCALARS.issuperset(map(type, value.values())):
        for key, held in value.items():
            yield from excerpts_in(held, key)
    elif isinstance(value, list | tuple) and not SCALARS.issuperset(map(type, value)):
        for held in value:
            yield from excerpts_in(held, name)


def _replaced(value: Any, settled: dict[int, Truncated]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(held, settled) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(held, settled) for held in value]
    return settled.get(id(value), value)


async def _shorten_list(
    value: dict[str, Any], key: str, size: int, caps: Caps, overflow: OverflowStore
) -> dict[str, Any]:
    """Keep the entries that fit both the count and the characters; return the very object when all do."""
    entries, kept = value[key], value.get("full")
    shown = first_entries(entries, key, size, caps)
    if len(shown) == len(entries):
        return value
    if not isinstance(kept, ArtifactRef):  # otherwise somebody who had more of them has stored them all
        kept = await overflow.keep_json(json.dumps(to_wire(entries), ensure_ascii=False), f"{key}.json")
    note_entries(overflow, key, len(shown), len(entries), kept)
    return {**value, key: shown, "truncated": True, **({"full": kept} if kept else {})}


def first_entries(entries: list[Any], key: str, size: int, caps: Caps) -> list[Any]:
    """Take the first entries that an answer of `size` characters may show."""
    shown = entries[: getattr(caps, key)]
    room = caps.other * 9 // 10
    return shown[: _fitting(shown, room)] if size > room else shown


def note_entries(overflow: OverflowStore, key: str, shown: int, total: int, kept: ArtifactRef | None) -> None:
    """Tell the model that a list was cut, and where all of it is."""
    where = f'; all of them: read_artifact(ref="{kept.ref}")' if kept else "; ask for a smaller part"
    overflow.notes.append(f"{shown:,} of {total:,} {key} are shown{where}.")


def _fitting(entries: list[Any], room: int) -> int:
    """How many of them can be written in so many characters."""
    for at, entry in enumerate(entries):
        room -= len(json.dumps(to_wire(entry), ensure_ascii=False)) + 2
        if room < 0:
            return at
    return len(entries)


async def _shorten_fields(
    value: dict[str, Any], cap: int, overflow: OverflowStore, *, apart: Collection[str] = ()
) -> Any:
    """The object within `cap` characters, fields `apart` not counted; the very object when it is already.

    Small fields stay as they are, large ones show their beginning and end. One of very many small fields becomes text.
    """
    texts = {name: _text(held) for name, held in value.items() if name not in apart}
    sizes = {name: len(text) + len(name) + 6 for name, text in texts.items()}
    if sum(sizes.values()) <= cap:
        return value
    whole = json.dumps(to_wire(value), ensure_ascii=False)
    kept = await overflow.keep_json(whole, "answer.json")
    overflow.note_cut("The answer", len(whole), cap, kept)
    small = sum(size for size in sizes.values() if size <= SMALL_FIELD)
    if small > cap // 2 and not apart:
        return cut(whole, cap, kept)
    room = shares_of({name: size for name, size in sizes.items() if size > SMALL_FIELD}, max(cap // 2, cap - small))
    shaped = dict(value)
    for name, share in room.items():
        held = value[name]
        shorter = held.within(share) if isinstance(held, Truncated) else cut(texts[name], share, kept)
        shaped[name] = str(shorter)  # plain text: the artifact has all fields, not this one
    return shaped


def _text(held: Any) -> str:
    return held if isinstance(held, str) else json.dumps(to_wire(held), ensure_ascii=False)


def shares_of(sizes: dict[str, int], room: int) -> dict[str, int]:
    """How much of the room each large field gets, where it needs more than its equal share."""
    shares: dict[str, int] = {}
    waiting = sorted(sizes.items(), key=lambda item: item[1])
    for at, (name, size) in enumerate(waiting):
        share = max(1, room // (len(waiting) - at))
        if size > share:
            shares[name] = share
        room -= min(size, share)
    return shares
