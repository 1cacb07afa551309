"""Check the options of a tool; each error says what to write."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from types import NoneType
from typing import Any, Final, Literal, Protocol, get_args

from handrail.contract.approval import Risk
from handrail.contract.errors import HandrailError
from handrail.misuse import expect_number, refuse

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
Returns = Literal["value", "envelope"]
Blank = Literal["absent", "keep"]
LANE: Final = 'a name such as "database": calls that share it run one after the other; or leave it out'
"""Advice for a wrong lane: what to write instead."""
TYPES: Final[tuple[tuple[str, tuple[type, ...], str], ...]] = (
    ("parameters", (Mapping,), 'a JSON Schema such as {"type": "object", "properties": {"city": {"type": "string"}}}'),
    ("description", (str,), 'a text such as "Find a customer by name."'),
    ("output", (Mapping, NoneType), 'a JSON Schema such as {"type": "string"}, or leave it out'),
    ("risk", (str,), '"safe", "high" or "critical"'),
    ("lane", (str, NoneType), LANE),
    ("deferred", (bool,), "True or False"),
    ("isolate", (bool,), "True or False"),
    ("polls", (bool,), "True or False"),
)
"""The type of each option, and what to write when it has another one."""


def risk(given: Any) -> Any:
    """The risk that a member of an Enum stands for; anything else as it is, to be checked."""
    if not isinstance(given, Enum):
        return given
    words = [word.lower() for word in (given.value, given.name) if isinstance(word, str)]
    return next((word for word in words if word in get_args(Risk)), str(given))


def check_name(name: object) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise HandrailError(f"tool name {name!r} is not 1 to 64 of the characters A-Z, a-z, 0-9, _ and -")


class Options(Protocol):
    """The options of a Tool that are checked together, as its fields."""

    @property
    def name(self) -> str: ...
    @property
    def risk(self) -> str: ...
    @property
    def lane(self) -> str | None: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def output_cap(self) -> int | None: ...
    @property
    def returns(self) -> str: ...
    @property
    def blank(self) -> str | None: ...
    @property
    def isolate(self) -> bool: ...
    @property
    def function(self) -> Callable[..., Any] | None: ...
    @property
    def body(self) -> Callable[..., Any]: ...


def check_options(tool: Options) -> None:
    name = f"tool {tool.name}:"
    for option, kinds, write in TYPES:
        if not isinstance(value := getattr(tool, option), kinds):
            refuse(f"{name} {option}", value, write)
    _check_words(tool, name)
    seconds = "a number of seconds above 0, or None for a tool that keeps its own clock"
    expect_number(f"{name} timeout", tool.timeout, seconds, least=0, above=True, whole=False)
    characters = "a number of characters above 0, or leave it out"
    expect_number(f"{name} output_cap", tool.output_cap, characters, least=0, above=True, whole=True)
    if tool.isolate and tool.function is None:
        raise HandrailError(f"{name} isolate=True is for functions: make it with @tool(isolate=True)")
    for option in ("convert", "function"):
        if (given := getattr(tool, option)) is not None and not callable(given):
            refuse(f"{name} {option}", given, "a function")
    if tool.function is None and not _takes_two(tool.body):
        refuse(f"{name} body", tool.body, "a function of two values: `def body(context, arguments): …`")


def _check_words(tool: Options, name: str) -> None:
    if tool.risk not in get_args(Risk):
        raise HandrailError(f"{name} risk {tool.risk!r} is not one of {', '.join(get_args(Risk))}")
    if tool.returns not in get_args(Returns):
        refuse(f"{name} returns", tool.returns, '"envelope" for a body that returns {"ok": …}, or leave it out')
    if tool.blank not in (None, *get_args(Blank)):
        refuse(f"{name} blank", tool.blank, '"absent" or "keep", or leave it out')
    if tool.lane is not None and not tool.lane.strip():
        refuse(f"{name} lane", tool.lane, LANE)


def _takes_two(body: Callable[..., Any]) -> bool:
    try:
        inspect.signature(body).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a function of C that does not tell
        return callable(body)
    return True


def refuse_generator(name: str, body: Callable[..., Any]) -> None:
    if inspect.isasyncgenfunction(body) or inspect.isasyncgenfunction(getattr(body, "__call__", None)):  # noqa: B004
        raise HandrailError(
            f"tool {name}: its function is an async generator, and a call has one answer: return a list, "
            "and show what comes before it with context.show()"
        )


def names(tool: str, option: str, given: Collection[str], example: str) -> frozenset[str]:
    if not isinstance(given, str | Collection) or not all(isinstance(word, str) for word in given):
        refuse(f"tool {tool}: {option}", given, f"a list such as [{example!r}]")
    return frozenset({given} if isinstance(given, str) else given)


def subset(tool: str, option: str, given: Collection[str], allowed: Any) -> frozenset[str]:
    words = names(tool, option, given, get_args(allowed)[0])
    if unknown := words - set(get_args(allowed)):
        wrong, right = ", ".join(sorted(map(repr, unknown))), ", ".join(get_args(allowed))
        raise HandrailError(f"tool {tool}: {option} {wrong} is not one of {right}")
    return words
