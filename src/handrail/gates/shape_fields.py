"""Cut an object field by field: small fields stay as they are, large ones show their beginning and end."""

import json
from collections.abc import Collection
from typing import Any, Final

from handrail.contract.result import to_wire
from handrail.gates.shape_cut import cut
from handrail.gates.shape_keep import JSON, Keeper

SMALL_FIELD: Final = 200
"""Characters of a field that is never cut, such as an exit code."""


async def shape_fields(value: dict[str, Any], cap: int, keeper: Keeper, *, apart: Collection[str] = ()) -> Any:
    """The object within `cap` characters, fields `apart` not counted; the very object when it is already.

    One of very many small fields becomes text.
    """
    texts = {name: _text(held) for name, held in value.items() if name not in apart}
    sizes = {name: len(text) + len(name) + 6 for name, text in texts.items()}
    total = sum(sizes.values())
    if total <= cap:
        return value
    whole = json.dumps(to_wire(value), ensure_ascii=False)
    kept = await keeper.keep(whole, "answer.json", JSON)
    keeper.note_cut("The answer", len(whole), cap, kept)
    small = sum(size for size in sizes.values() if size <= SMALL_FIELD)
    if small > cap // 2 and not apart:
        return cut(whole, cap, kept)
    room = _shares({name: size for name, size in sizes.items() if size > SMALL_FIELD}, max(cap // 2, cap - small))
    shaped = dict(value)
    for name, share in room.items():
        shaped[name] = str(cut(texts[name], share, kept))  # plain text: the artifact has all fields, not this one
    return shaped


def _text(held: Any) -> str:
    return held if isinstance(held, str) else json.dumps(to_wire(held), ensure_ascii=False)


def _shares(sizes: dict[str, int], room: int) -> dict[str, int]:
    """How much of the room each large field gets, where it needs more than its equal share."""
    shares: dict[str, int] = {}
    waiting = sorted(sizes.items(), key=lambda item: item[1])
    for at, (name, size) in enumerate(waiting):
        share = max(1, room // (len(waiting) - at))
        if size > share:
            shares[name] = share
        room -= min(size, share)
    return shares
