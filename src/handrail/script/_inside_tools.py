"""The names that a script is given inside the sandbox: `tools`, `call`, `Ref`; and how values become JSON and back.

It works with Python 3.8 and later: its text is part of the program in the sandbox.
"""

from __future__ import annotations

from handrail.script._inside_channel import Channel, ToolError
from handrail.script._inside_syntax import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

MAX_DEPTH = 200  # levels of a value
MAX_GATHERED_COUNT = 32  # calls of one gather that are made at once
MAX_NUMBER_BITS = 13_000
SAFE_INTEGER = 1 << 63  # integers below it need no further check
PIECE_BYTES = 1 << 19  # bytes of a Ref that are read at once
ADVICE = {
    "set": "use sorted(…)",
    "frozenset": "use sorted(…)",
    "bytes": "use .decode() or .hex()",
    "bytearray": "use .decode() or .hex()",
    "datetime": "use .isoformat()",
    "date": "use .isoformat()",
    "Decimal": "use float(…) or str(…)",
    "generator": "use list(…)",
    "map": "use list(…)",
}
"""Advice for a value that has no JSON form, by the name of its type."""


class Ref:
    """A value that is too large to be sent here. Pass the Ref on as an argument, or read the parts that are needed."""

    def __init__(self, channel: Channel, wire: dict[str, Any]) -> None:
        self._channel, self._ref = channel, wire["ref"]
        self.preview, self.size, self.kind = wire["preview"], wire["size"], wire["kind"]
        self.incomplete = wire["incomplete"]

    def __repr__(self) -> str:
        lacks = ", incomplete" if self.incomplete else ""
        return f"<Ref to {self.size:,} bytes of {self.kind}{lacks}: {self.preview[:60]!r}…>"

    def read(self, start: int = 0, end: int | None = None) -> Any:
        """The bytes from `start` to `end`: as text, or as bytes where the value is bytes."""
        last = self.size if end is None else min(end, self.size)
        pieces, at = [], start
        while at < last:
            pieces.append(self._piece(at, min(at + PIECE_BYTES, last)))
            at += PIECE_BYTES
        return (b"" if self.kind == "bytes" else "").join(pieces)

    def _piece(self, start: int, end: int) -> Any:
        text = self._channel.call({"read": self._ref, "start": start, "end": end})
        return bytes.fromhex(text) if self.kind == "bytes" else text

    def lines(self) -> Any:
        """The lines of the value, one after the other, without their ends."""
        rest, newline = (b"", b"\n") if self.kind == "bytes" else ("", "\n")
        for at in range(0, self.size, PIECE_BYTES):
            *whole, rest = (rest + self._piece(at, min(at + PIECE_BYTES, self.size))).split(newline)
            yield from whole
        if rest:
            yield rest

    def __getitem__(self, key: Any) -> Any:
        """A part of an object or a list; a large part is a Ref again."""
        if isinstance(key, slice):
            return [self[at] for at in range(*key.indices(len(self)))]
        try:
            return given(self._channel, self._channel.call({"part": self._ref, "key": plain(key, "the key")}))
        except ToolError as error:
            if error.kind == "not_found":
                raise (KeyError if isinstance(key, str) else IndexError)(key) from None
            raise

    def __len__(self) -> int:
        """The number of items in a list or an object; the number of bytes of anything else."""
        if self.kind != "json":
            return int(self.size)
        return int(self._channel.call({"part": self._ref, "count": True}))

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Any:
        if self.kind != "json":
            return self.lines()
        keys = self._channel.call({"part": self._ref, "keys": True})
        return iter(given(self._channel, keys)) if keys is not None else (self[at] for at in range(len(self)))

    def keys(self) -> list[str]:
        return list(given(self._channel, self._channel.call({"part": self._ref, "keys": True})) or ())

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except (KeyError, IndexError):
            return default

    def __contains__(self, key: Any) -> bool:
        """Whether the value has this part of a text, key of an object, or item of a list."""
        if self.kind == "json":
            return any(key == each for each in self)
        rest = b"" if self.kind == "bytes" else ""
        for at in range(0, self.size, PIECE_BYTES):
            rest += self._piece(at, min(at + PIECE_BYTES, self.size))
            if key in rest:
                return True
            rest = rest[max(0, len(rest) - len(key)) :]
        return False

    def __eq__(self, other: object) -> Any:
        return self._ref == other._ref if isinstance(other, Ref) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._ref)


def given(channel: Channel, value: Any) -> Any:
    """A received value in the form that the script gets: references become Refs."""
    if isinstance(value, dict):
        if value.keys() == {"$ref"}:
            return Ref(channel, value["$ref"])
        if value.keys() == {"$plain"}:  # an object of a tool's own that looks like a reference, or like this
            return {key: given(channel, held) for key, held in value["$plain"]}
        return {key: given(channel, held) for key, held in value.items()}
    return [given(channel, held) for held in value] if isinstance(value, list) else value


def plain(value: Any, path: str, depth: int = 0) -> Any:
    """The value in JSON types. Raises TypeError, which names the part that has no JSON form."""
    if type(value) is str or (type(value) is int and -SAFE_INTEGER < value < SAFE_INTEGER):
        return value
    if depth > MAX_DEPTH:
        raise TypeError(f"{path[:80]} contains itself, or is nested too deeply")
    if isinstance(value, Ref):
        return {"$artifact": value._ref}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise TypeError(f"{path} is {value}, which JSON does not have; use None")
    if isinstance(value, int) and value.bit_length() > MAX_NUMBER_BITS:
        raise TypeError(f"{path} is a number of more than 4,000 digits; use str(…) or float(…)")
    if value is None or isinstance(value, (bool, str, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(held, f"{path}[{at}]", depth + 1) for at, held in enumerate(value)]
    if isinstance(value, dict):
        return {named(key, path): plain(held, f"{path}[{key!r}]", depth + 1) for key, held in value.items()}
    advice = ADVICE.get(type(value).__name__, "use plain data: dict, list, str, int, float, bool or None")
    raise TypeError(f"{path} is a {type(value).__name__}, which has no JSON form; {advice}")


def named(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{path} has the key {key!r}, which is not a text; use str(key)")
    return key


class Planned:
    """A call that `tools.gather` makes."""

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        self.name, self.arguments = name, arguments


def call(tool: Any, /, **arguments: Any) -> Planned:
    """A call for `tools.gather`."""
    return Planned(str(getattr(tool, "__name__", tool)), arguments)


class Tools:
    """`tools.NAME(**arguments)`, or `tools["NAME"]`, calls a tool and returns its value, or raises ToolError."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        use = self.__dict__[name] = self[name]
        return use

    def __getitem__(self, name: str) -> Any:
        def use(*misplaced: Any, **arguments: Any) -> Any:
            if misplaced:
                raise ToolError("invalid_args", f"tools.{name} takes arguments by name: tools.{name}(name=value)")
            return given(self._channel, self._channel.call(request(name, arguments)))

        use.__name__ = name
        return use

    def gather(self, *calls: Any, return_exceptions: bool = False) -> list[Any]:
        """Make calls together; return their values in order. Raises the first ToolError when all have ended."""
        for each in calls:
            if not isinstance(each, Planned):
                raise ToolError(
                    "invalid_args", "tools.gather takes call('NAME', argument=value), ...: calls not made yet"
                )
        begun: list[Any] = []
        values: list[Any] = []
        for each in calls:
            if len(begun) - len(values) == MAX_GATHERED_COUNT:
                values.append(self._ended(begun[len(values)]))
            try:
                begun.append(self._channel.ask(request(each.name, each.arguments)))
            except ToolError as error:
                begun.append(error)
        values += [self._ended(number) for number in begun[len(values) :]]
        for value in values:
            if isinstance(value, ToolError) and not return_exceptions:
                raise value
        return values

    def _ended(self, number: Any) -> Any:
        try:
            return number if isinstance(number, ToolError) else given(self._channel, self._channel.answer(number))
        except ToolError as error:
            return error


def request(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The frame of a call. Raises ToolError for a value that has no JSON form."""
    try:
        return {"call": name, "arguments": {key: plain(value, key) for key, value in arguments.items()}}
    except (TypeError, RecursionError) as error:
        raise ToolError("invalid_args", f"tools.{name}: {error}") from None
