"""The side of a Sandbox that Handrail's own rooms use: views for one call, and commands that end with their call.

These are functions, not methods, so that a Sandbox shows users only what users call.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy

from handrail.aio import in_background
from handrail.clock import CallClock
from handrail.contract.clock import Clock
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.limits import Caps
from handrail.sandbox._state import SandboxState
from handrail.sandbox.completed import Late
from handrail.sandbox.conversation import CommandConversation, FramedCommand
from handrail.sandbox.job import Job
from handrail.sandbox.sandbox import Sandbox


def bind(
    sandbox: Sandbox,
    *,
    clock: Clock | None = None,
    call_id: str | None = None,
    caps: Caps | None = None,
    on_job: Callable[[Job], object] | None = None,
    on_advice: Callable[[str], object] | None = None,
) -> Sandbox:
    """Make a view for one call: its limits run on the call's clock, and `terminate(call_id)` ends its commands.

    Output keeps to `caps`. `on_job` is called with every job that is started through the view, `on_advice` with
    changes to the sandbox that a person could make, if the lack of them made a command fail.
    """
    view = copy(sandbox)
    view._on_job = on_job if on_job is not None else sandbox._on_job
    view._on_advice = on_advice if on_advice is not None else sandbox._on_advice
    view._clock = clock if clock is not None else sandbox._clock
    view._call_id = call_id if call_id is not None else sandbox._call_id
    view._caps = caps if caps is not None else sandbox._caps
    view._ends_with_call = []
    return view


async def end_call(view: Sandbox) -> None:
    """End the conversations and the streams of a view's call."""
    for end in view._ends_with_call or ():
        await end()


def identity(sandbox: Sandbox) -> SandboxState:
    """Return the object that all views of one sandbox share; it can be the key of a weak dictionary."""
    return sandbox._state


def on_late(sandbox: Sandbox) -> list[Callable[[Late], object]]:
    """Return the callbacks for commands that end after their call was answered. Append to the list."""
    return sandbox._state.on_late


async def converse(
    sandbox: Sandbox,
    argv: Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    lasting: bool = False,
    first: bytes | None = None,
) -> CommandConversation:
    """Start a command and exchange frames with it over its input and output; its stderr is its log.

    The command belongs to the call that the view is bound to, has the call's clock and ends with the call. A `lasting`
    command ends when it is killed, or with the sandbox. `first` is the first frame that is sent; starting does not
    wait until the command has read it. Raises OSError, ValueError or Unavailable.
    """
    if isinstance(argv, str):
        raise ValueError("argv is a list of words, such as ['python3', 'serve.py'], not a line for the shell.")
    return await sandbox._state.own_loop.run(lambda: _converse(sandbox, argv, cwd, env, lasting, first))


async def _converse(
    sandbox: Sandbox,
    argv: Sequence[str],
    cwd: str | None,
    env: Mapping[str, str] | None,
    lasting: bool,
    first: bytes | None,
) -> CommandConversation:
    where, state = await sandbox._where(cwd), sandbox._state
    spec = sandbox._spec(argv, where, env, None, None, None, None, for_job=True)
    name = state.number("run") if lasting else sandbox._call_id or state.number("run")
    clock = CallClock.started() if lasting else sandbox._clock or CallClock.started()
    command = state.begin(FramedCommand(name, spec, state.driver, clock, sandbox._caps))
    waiting = in_background(_wait_quietly(state, command))
    waiting.add_done_callback(lambda _: command.settled.set())  # the task may be cancelled before it begins
    conversation = CommandConversation(command, state.own_loop)
    try:
        await sandbox._started(command)
        if first is not None:
            conversation.begin(first)
    except BaseException:
        await conversation.kill()
        raise
    if sandbox._ends_with_call is not None and not lasting:
        sandbox._ends_with_call.append(conversation.kill)
    return conversation


async def _wait_quietly(state: SandboxState, command: FramedCommand) -> None:
    with suppress(OSError, ValueError, Unavailable, HandrailError):  # the conversation tells its caller
        await state.wait_for(command, None, None)
