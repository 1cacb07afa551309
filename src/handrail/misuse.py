"""Check what a program gives; each error names the option, says what it is now, and what to write instead."""

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import is_dataclass
from functools import lru_cache, wraps
from heapq import nlargest
from itertools import pairwise, takewhile
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

MAX_SHOWN_CHARS: Final = 60
"""Length of a value that a message repeats, in characters."""
MAX_JUDGED_NAMES_COUNT: Final = 6
"""Number of known names that are compared closely with an unknown one."""
MAX_ID_CHARS: Final = 200
"""Length of a session's id, in characters."""
C = TypeVar("C")


class HandrailError(Exception):
    """A mistake in the program that uses Handrail. Raised where it is made, never shown to a model.

    Example:
        ```python
        try:
            Policy(mode="careful")
        except HandrailError as error:
            print(error)
        #> policy mode 'careful' is not one of contained, ask, strict, open
        ```
    """


class BadEnvelope(HandrailError, ValueError):
    """A text that is not a result envelope.

    Example:
        ```python
        try:
            read_envelope("all went well")
        except BadEnvelope:
            print("not an envelope")
        #> not an envelope
        ```
    """


def expect(name: str, given: object, kind: type, write: str) -> None:
    """Raise HandrailError unless `given` is of this class. A mapping is answered with the object it describes."""
    if isinstance(given, kind):
        return
    if isinstance(given, Mapping) and is_dataclass(kind):
        write = f"{kind.__name__}({', '.join(f'{key}={shown(value)}' for key, value in given.items())})"
    refuse(name, given, write)


def expect_number(name: str, given: object, write: str, *, least: float, above: bool = False, whole: bool) -> None:
    """Raise HandrailError unless `given` is None or a finite number from `least` up, or above it."""
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, int if whole else int | float):
        refuse(name, given, write)
    if (isinstance(given, float) and not isfinite(given)) or not (given > least if above else given >= least):
        refuse(name, given, write)


def is_session_id(text: str) -> bool:
    """Whether a session may be called so: at most 200 characters that can be printed and encoded."""
    return 0 < len(text) <= MAX_ID_CHARS and text.isprintable()


def refuse(name: str, given: object, write: str) -> NoReturn:
    """Raise HandrailError: `name` is what was given; `write` is what to give instead."""
    raise HandrailError(f"{name} is {shown(given)}; write {write}")


def shown(given: object) -> str:
    """A value in a few words; what is inside a large one stays out of the message."""
    if given is None or isinstance(given, str | bytes | bool | int | float):
        text = repr(given)
        return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 1]}…"
    if isinstance(given, type):
        return f"the class {given.__name__}"
    if inspect.isroutine(given):
        return f"the function {getattr(given, '__name__', type(given).__name__)}"
    return kind_of(given)


def kind_of(given: object) -> str:
    """The class of a value, with its article."""
    kind = type(given).__name__
    return f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"


def close_names(given: str, known: Iterable[str], *, count: int = 1, cutoff: float = 0.6) -> list[str]:
    """The known names that are most like a given one, the best first, as difflib judges them.

    difflib takes 50 µs for a name. So only those with a fitting length, and with the most pairs of letters in common,
    are shown to it.
    """
    least, most = len(given) * cutoff / (2 - cutoff), len(given) * (2 - cutoff) / cutoff if cutoff else inf
    fitting = [name for name in known if least <= len(name) <= most]
    if len(fitting) > MAX_JUDGED_NAMES_COUNT:
        pairs = _pairs(given)
        shared = {name: len(pairs & own) / (len(pairs) + len(own) + 1) for name in fitting if (own := _pairs(name))}
        fitting = nlargest(MAX_JUDGED_NAMES_COUNT, shared, key=shared.__getitem__)
    return difflib.get_close_matches(given, fitting, n=count, cutoff=cutoff)


@lru_cache(maxsize=1024)
def _pairs(name: str) -> frozenset[tuple[str, str]]:
    """Each letter with the one after it."""
    return frozenset(pairwise(name))


def nearest(given: str, known: Collection[str]) -> str:
    """A sentence with the known name that is meant, or with all of them."""
    longer = [name for name in sorted(known) if given and name.startswith(given)]
    near = longer or close_names(given, sorted(known), cutoff=0.7)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known)) or 'none'}"


def misuse(function: Callable[..., Any], args: tuple[object, ...], named: Mapping[str, object]) -> str:
    """The mistake in the arguments of a call, and what to write; "" when they fit the function's signature."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        what = function.__qualname__.removesuffix(".__init__")
        known = [each for each in signature.parameters.values() if each.name != "self"]
        by_name = {each.name for each in known if each.kind is not each.VAR_KEYWORD}
        if unknown := [name for name in named if name not in by_name]:
            return f"{what}() has no option {unknown[0]!r}; {nearest(unknown[0], by_name)}"
        free = [each.name for each in known if each.kind is each.POSITIONAL_OR_KEYWORD]
        if len(args) - 1 > len(free):
            rest = ", ".join(f"{name}=…" for name in sorted(by_name - set(free))) or "there is no more"
            return f"{what}() takes {', '.join(free) or 'nothing'} by position; write the rest by name: {rest}"
        given = {**dict(zip(free, args[1:], strict=False)), **named}
        wanted = [each for each in known if each.default is each.empty or each.name in given]
        plain = list(takewhile(lambda each: each.name in free and each.name not in named, wanted))
        words = [each.name if each in plain else f"{each.name}=…" for each in wanted]
        return f"{what}() is {error}; write {what}({', '.join(words)})"
    return ""


def explains_misuse(cls: type[C]) -> type[C]:
    """Decorate a class: a misspelt, missing or surplus argument of it is answered with the right one."""
    init = cls.__init__

    @wraps(init)
    def checked(self: Any, *args: Any, **named: Any) -> None:
        try:
            init(self, *args, **named)
        except TypeError:
            if why := misuse(init, (self, *args), named):
                raise TypeError(why) from None
            raise

    cls.__init__ = checked  # type: ignore[method-assign]
    return cls


class AsyncWith:
    """Mixin for classes used with `async with`: a plain `with` is told so."""

    if not TYPE_CHECKING:  # a type checker refuses a plain `with` by itself

        def __enter__(self) -> NoReturn:
            raise HandrailError(f"{self!r}: write `async with`, not `with`")

        __exit__ = None  # so that nobody takes it for a plain context manager
