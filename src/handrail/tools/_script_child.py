"""The program inside the sandbox: it reads one script from its input, runs it, and passes on its calls.

It is given to the sandbox's Python as text, after `_script_syntax.py` and `_script_channel.py`, and works with Python
3.8 and later.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import io
import linecache
import os
import sys
import traceback
from functools import partial
from types import ModuleType

from handrail.tools._script_channel import PIECE, Channel, ToolError, plain_signal
from handrail.tools._script_syntax import NAME, TYPE_CHECKING, read

if TYPE_CHECKING:
    from typing import Any

DEEPEST = 200
WINDOW = 32  # calls of one gather that are made at once
MAX_NUMBER_BITS = 13_000  # bits
MAX_ERROR_CHARS = 8000  # characters
LARGE = 1 << 63
MEDIA = "media"
DEEPEST_MEDIA = 3
MAX_MEDIA_COUNT = 50  # files that are named
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
"""What to write instead of a value that has no JSON form."""


class Ref:
    """A value that is too large to be sent here. Pass it on as an argument, or read of it what is needed."""

    def __init__(self, channel: Channel, wire: dict[str, Any]) -> None:
        self._channel, self._ref = channel, wire["ref"]
        self.preview, self.size, self.kind = wire["preview"], wire["size"], wire["kind"]
        self.incomplete = wire["incomplete"]

    def __repr__(self) -> str:
        lacks = ", incomplete" if self.incomplete else ""
        return f"<Ref to {self.size:,} bytes of {self.kind}{lacks}: {self.preview[:60]!r}…>"

    def read(self, start: int = 0, end: int | None = None) -> Any:
        """The bytes from `start` to `end`, as text; what holds bytes is given as bytes."""
        last = self.size if end is None else min(end, self.size)
        pieces, at = [], start
        while at < last:
            pieces.append(self._piece(at, min(at + PIECE, last)))
            at += PIECE
        return (b"" if self.kind == "bytes" else "").join(pieces)

    def _piece(self, start: int, end: int) -> Any:
        text = self._channel.call({"read": self._ref, "start": start, "end": end})
        return bytes.fromhex(text) if self.kind == "bytes" else text

    def lines(self) -> Any:
        """Its lines, one after the other, without their ends."""
        rest, newline = (b"", b"\n") if self.kind == "bytes" else ("", "\n")
        for at in range(0, self.size, PIECE):
            *whole, rest = (rest + self._piece(at, min(at + PIECE, self.size))).split(newline)
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
        """Of a list or an object, its items; of anything else, its bytes."""
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
        """A part of a text, a key of an object, an item of a list."""
        if self.kind == "json":
            return any(key == each for each in self)
        rest = b"" if self.kind == "bytes" else ""
        for at in range(0, self.size, PIECE):
            rest += self._piece(at, min(at + PIECE, self.size))
            if key in rest:
                return True
            rest = rest[max(0, len(rest) - len(key)) :]
        return False

    def __eq__(self, other: object) -> Any:
        return self._ref == other._ref if isinstance(other, Ref) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._ref)


def given(channel: Channel, value: Any) -> Any:
    """A value as the script gets it: references are Refs."""
    if isinstance(value, dict):
        if value.keys() == {"$ref"}:
            return Ref(channel, value["$ref"])
        if value.keys() == {"$plain"}:  # an object that only looks like one of these
            return {key: given(channel, held) for key, held in value["$plain"]}
        return {key: given(channel, held) for key, held in value.items()}
    return [given(channel, held) for held in value] if isinstance(value, list) else value


def plain(value: Any, path: str, depth: int = 0) -> Any:
    """A value as JSON. Raises TypeError, naming where it is not JSON."""
    if type(value) is str or (type(value) is int and -LARGE < value < LARGE):
        return value
    if depth > DEEPEST:
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
        """Make calls together; their values in order. The first ToolError is raised when all have ended."""
        for each in calls:
            if not isinstance(each, Planned):
                raise ToolError(
                    "invalid_args", "tools.gather takes call('NAME', argument=value), ...: calls not made yet"
                )
        begun: list[Any] = []
        values: list[Any] = []
        for each in calls:
            if len(begun) - len(values) == WINDOW:
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


def trouble(error: BaseException) -> dict[str, Any]:
    """What went wrong, with the lines of the script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    line = trace.tb_lineno if trace is not None else getattr(error, "lineno", None)
    at = trace
    while at is not None:
        if at.tb_frame.f_code.co_filename == NAME:
            line = at.tb_lineno
        at = at.tb_next
    try:
        kept = [
            part for part in traceback.extract_tb(trace) if part.filename == NAME or "<string>" not in part.filename
        ]
        told = "".join(traceback.format_list(kept)) + "".join(traceback.format_exception_only(type(error), error))
    except Exception:  # noqa: BLE001 - a __str__ of the script's own
        told = type(error).__name__
    told = told if len(told) <= MAX_ERROR_CHARS else f"{told[: MAX_ERROR_CHARS // 2]}…{told[-MAX_ERROR_CHARS // 2 :]}"
    said = {"type": type(error).__name__, "message": told, "line": line}
    if isinstance(error, ToolError):
        said.update(kind=error.kind, retryable=bool(error.retryable))
    return said


def ran(parts: Any, cwd: str, channel: Channel) -> Any:
    """Run the script; its value."""
    names = {"tools": Tools(channel), "call": call, "ToolError": ToolError, "Ref": Ref}
    module = sys.modules["__main__"] = ModuleType("__main__")  # where its classes and functions are looked up
    scope = vars(module)
    scope.update(names, __builtins__=builtins)
    os.chdir(cwd)
    sys.path.append(cwd)  # last: a file in the workspace does not take the place of a module of Python's own
    if isinstance(parts, BaseException):
        raise parts
    exec(parts[0], scope)
    return None if parts[1] is None else eval(parts[1], scope)


def outcome(parts: Any, cwd: str, channel: Channel) -> dict[str, Any]:
    """Run the script; its value, or its error."""
    try:
        value = ran(parts, cwd, channel)
        hold()
        silence()
        return {"value": plain(value, "the result")}
    except BaseException as error:  # noqa: BLE001 - a script may raise anything
        hold()
        silence()
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return {"value": None}
        return {"error": trouble(error)}


def media(top: str, depth: int = 0) -> dict[str, Any]:
    """The files in this directory and below, with their size and time."""
    found: dict[str, Any] = {}
    try:
        entries = list(os.scandir(top))
    except OSError:
        return found
    for entry in entries:
        try:
            if entry.is_file(follow_symlinks=False):
                stat = entry.stat(follow_symlinks=False)
                found[entry.path] = stat.st_size, stat.st_mtime_ns
            elif depth < DEEPEST_MEDIA and entry.is_dir(follow_symlinks=False):
                found.update(media(entry.path, depth + 1))
        except OSError:
            pass
    return found


def changed(workspace: str, before: dict[str, Any]) -> dict[str, Any]:
    """The files under media/ that were made or changed, and how many more there are."""
    try:
        after = media(os.path.join(workspace, MEDIA))
        paths = sorted(path for path in after if before.get(path) != after[path])
        named = [os.path.relpath(path, workspace) for path in paths[:MAX_MEDIA_COUNT]]
        return {"media": named, "media_left_out": max(0, len(paths) - MAX_MEDIA_COUNT)}
    except Exception:  # noqa: BLE001 - the script may have replaced any function
        return {"media": []}


def tell(ended: dict[str, Any], channel: Channel) -> bool:
    """Say how it ended; whether that was sent."""
    try:
        return channel.end(ended)
    except ValueError as error:
        said = {"type": "ValueError", "message": f"the result cannot be sent: {error}", "line": None}
    except BaseException as error:  # noqa: BLE001 - a value may be anything
        said = trouble(error)
    return channel.end({**ended, "value": None, "error": said})


hold = partial(plain_signal.pthread_sigmask, plain_signal.SIG_BLOCK, plain_signal.valid_signals())
"""Hold signals back. A handler may run, and raise, wherever a function of Python begins. This one is of C: as the first
thing in an `except` it takes effect, even if a timer fires every 10 µs."""


def silence() -> None:
    """The script is over: its handlers of signals are not called any more."""
    try:
        for number in range(1, plain_signal.NSIG):
            if callable(plain_signal.getsignal(number)):
                plain_signal.signal(number, plain_signal.SIG_IGN)
        plain_signal.pthread_sigmask(
            plain_signal.SIG_SETMASK, plain_signal.sigpending()
        )  # what waits may end the process
    except BaseException:  # noqa: BLE001 - one of them raised meanwhile
        silence()


def finish() -> None:
    """What Python does at its end: call what was registered for it, and write out and close the files left open."""
    try:
        atexit._run_exitfuncs()
        vars(sys.modules.pop("__main__")).clear()
        gc.collect()
    except BaseException:  # noqa: BLE001 - they are the script's own
        traceback.print_exc()


def rehearse(channel: Channel) -> None:
    """Do once what a script does, while there is none: an interpreter that waits is ready then."""
    read("for n in range(1): tools.rehearsal(a=n)\n1")
    channel.rehearse(partial(Tools(channel)["rehearsal"], a=1, b="text"))


def main() -> None:
    channel = Channel()
    rehearse(channel)
    gc.freeze()  # so that to look for the script's own files at its end is quick
    channel.watch_handlers()
    begun, parts, before = {}, None, {}
    while "go" not in (order := channel.order() or sys.exit()):
        begun, parts, code = order, read(order["code"]), order["code"]
        linecache.cache[NAME] = (len(code), None, io.StringIO(code, newline=None).readlines(), NAME)
        before = media(os.path.join(begun["workspace"], MEDIA))
    sys.argv = ["script"]
    try:
        ended = outcome(parts, begun["cwd"], channel)
    except BaseException as error:  # noqa: BLE001 - a handler of a signal raised, when the script itself had ended
        hold()
        silence()
        ended = {"error": trouble(error)}
    finish()
    ended.update(changed(begun["workspace"], before))
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001 - the script may have closed or replaced it
            pass
    os._exit(0 if tell(ended, channel) else 1)
