"""Check what a Session is given, when it is made; each error says what to write."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from handrail.contract.approval import Decision
from handrail.contract.call import Call
from handrail.contract.errors import HandrailError
from handrail.contract.event import EVENT_FIELDS
from handrail.contract.limits import Budget, Caps
from handrail.lazy import Lazy
from handrail.misuse import MAX_ID_CHARS, expect, expect_number, is_session_id, nearest, refuse, shown
from handrail.policy.approvers import wait_of
from handrail.policy.policy import Policy, check_tool_names
from handrail.sandbox.sandbox import Sandbox
from handrail.session._secrets import PIECES
from handrail.session.standard import STANDARD
from handrail.toolkit.gate import Gate, SessionState
from handrail.toolkit.toolbox import RESERVED, Toolbox, check_name

if TYPE_CHECKING:
    from handrail.tools import builtin as _builtin
else:  # only a policy with rules needs the names of the built-in tools
    _builtin = Lazy("handrail.tools.builtin")

F = TypeVar("F")
HOST_METHODS: Final = ("ask", "spawn", "finish")
UNCHECKED: Final = frozenset({"call_started", "call_ended", "model_asked", "model_answered", *PIECES})
"""Types of events that every call or round writes: `check_event` would make each one dearer."""


def check_options(
    sandbox: object, policy: object, approver: object, budget: object, caps: object, host: object,
    call_timeout: object, id: object,
) -> None:  # fmt: skip
    """Raise HandrailError for an option of another type than the session needs."""
    mode = policy if isinstance(policy, str) else "ask"
    expect("Session.policy", policy, Policy, f"Policy(mode={mode!r}), or leave it out")
    expect("Session.budget", budget, Budget, "Budget(calls=100), or leave it out")
    expect("Session.caps", caps, Caps, "Caps(stdout=20_000), or leave it out")
    seconds = "a number of seconds above 0, or leave it out"
    expect_number("Session.call_timeout", call_timeout, seconds, least=0, above=True, whole=False)
    if id is not None:
        expect("Session.id", id, str, "a text, or leave it out")
        if not is_session_id(str(id)):
            refuse("Session.id", id, f"1 to {MAX_ID_CHARS} printable characters, or leave it out")
    if sandbox is not None:
        _check_sandbox(sandbox)
    if approver is not None:
        _check_approver(approver)
    if host is not None and not any(callable(getattr(host, name, None)) for name in HOST_METHODS):
        refuse("Session.host", host, "an object with the methods of handrail.Host, or leave it out")


def check_event(type: object, call_id: object, parent: object, data: object) -> None:
    """Raise HandrailError for an event that a store would take, and that nobody could read later."""
    if not isinstance(type, str) or type not in EVENT_FIELDS:
        known = nearest(type, EVENT_FIELDS) if isinstance(type, str) else "give one of contract/event.py"
        raise HandrailError(f"{shown(type)} is not a type of event; {known}")
    for id in (call_id, parent):
        if id is not None and not isinstance(id, str):
            refuse(f"the call_id or parent of the event {type}", id, "the id of a call, or leave it out")
    if not isinstance(data, Mapping):
        refuse(f"the data of the event {type}", data, "a mapping")
    for name, kind in EVENT_FIELDS[type].items():
        if name not in data or not isinstance(data[name], kind):
            refuse(f"{name!r} in the data of the event {type}", data.get(name), f"a {kind.__name__}")


def _check_sandbox(sandbox: object) -> None:
    if not isinstance(sandbox, Sandbox):
        asked = repr(sandbox) if isinstance(sandbox, str) else "…"
        write = f"`async with open_sandbox({asked}) as sandbox:` and give the session that sandbox"
        raise HandrailError(f"Session.sandbox is {shown(sandbox)}, which is not an open Sandbox; write {write}")
    if sandbox.closed:
        raise HandrailError(
            "Session.sandbox is closed; use the session inside the block of `async with open_sandbox(…) as sandbox:`"
        )


def _check_approver(approver: Any) -> None:
    write = "a function that returns a Decision: `async def approver(request): return Decision.approve()`"
    if not callable(approver) or isinstance(approver, type | Decision):
        refuse("Session.approver", approver, write)
    if not _accepts(approver, 1):
        refuse("Session.approver", approver, f"one that takes the request: {write.partition(': ')[2]}")
    wait_of(approver)


OPEN_ONE: Final = ": write `async with open_sandbox() as sandbox`, and give sandbox=sandbox"


def check_tools(toolbox: Toolbox, shared: SessionState) -> None:
    """Raise HandrailError for a tool that the sandbox cannot serve, and for a rule about an unknown tool."""
    for tool in toolbox:
        if lacks := shared.lacks(tool):
            none = "" if shared.sandbox is not None else OPEN_ONE
            raise HandrailError(f"tool {lacks}{none}")
    if (rules := shared.policy.rules) and not toolbox.sourced:  # a source may have the tool later
        check_tool_names(rules, {*toolbox.names(), *(tool.name for tool in _builtin.ALL), *RESERVED})


def functions(option: str, given: Iterable[F], takes: int, example: str) -> list[F]:
    """Return the given functions. Raises HandrailError unless each takes `takes` values."""
    if callable(given) or isinstance(given, str) or not isinstance(given, Iterable):
        refuse(f"Session.{option}", given, f"a list, even of one: {example}")
    found = list(given)
    for each in found:
        if not callable(each) or isinstance(each, type) or not _accepts(each, takes):
            refuse(f"one of Session.{option}", each, f"functions: {example}")
    return found


def check_calls(calls: object) -> None:
    """Raise HandrailError unless it is a list of Calls."""
    if isinstance(calls, Call | Mapping | str) or not isinstance(calls, Iterable):
        refuse("call_all's argument", calls, "a list of Calls: call_all([Call('1', 'bash', {'command': 'ls'})])")
    for call in calls:
        if not isinstance(call, Call):
            refuse("one of call_all's calls", call, "Call('1', 'bash', {'command': 'ls'}): an id, a name, arguments")
        check_call(call)


def check_call(call: Call) -> None:
    """Raise HandrailError for an id, a name or a parent that is not a text."""
    check_name(call.name)
    if not isinstance(call.id, str):
        refuse("the id of a call", call.id, "a text, or leave it out")
    if call.parent is not None and not isinstance(call.parent, str):
        refuse("parent", call.parent, "the id of the running call that makes this one, or leave it out")


def refuse_options(name: str, approved: object, misplaced: Mapping[str, object]) -> NoReturn:
    """Say what is wrong with the options of `Session.call`."""
    if misplaced:
        raise TypeError(f"a tool's arguments are one mapping; write session.call({name!r}, {misplaced!r})")
    refuse("approved", approved, "the hash of what was approved, result.data['approval']['arguments_hash']")


def checked_gates(given: Sequence[Gate] | None) -> Sequence[Gate]:
    """The given gates, or the standard ones. Raises HandrailError for anything else."""
    return STANDARD if given is None else functions("gates", given, 2, "[my_gate, *STANDARD]")


def _accepts(function: Callable[..., Any], takes: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * takes)
    except TypeError:
        return False
    except ValueError:  # a function of C that does not tell
        return True
    return True
