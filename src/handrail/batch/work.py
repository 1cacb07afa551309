"""Do one task: a fresh sandbox, one run of an agent, the check, and one Done, or Lost where there is no outcome."""

import json
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import PurePosixPath
from time import monotonic
from typing import Any, Final

import anyio

from handrail.agent import MAX_ROUNDS, Agent, Outcome
from handrail.batch.task import SANDBOX_ENDED, Done, Lost, Task
from handrail.contract.errors import BrokenDriver, Unavailable, WeakerThanAsked, describe_error
from handrail.contract.limits import Budget, Limits
from handrail.contract.model import Model
from handrail.drivers.open import open_sandbox
from handrail.models.open import open_model
from handrail.policy.policy import Policy
from handrail.sandbox.completed import Completed
from handrail.sandbox.sandbox import Sandbox
from handrail.session.session import Session
from handrail.store.store import Store
from handrail.threads import Work
from handrail.toolkit.toolbox import Tools
from handrail.tools.builtin import builtin_tools

SETUP_SECONDS: Final = 600.0
"""Seconds for a task's setup, and as many to unpack its archive."""
MAX_ARCHIVE_BYTES: Final = 1 << 30
"""Bytes of a task's archive."""
MAX_CHECK_OUTPUT_CHARS: Final = 8_000
"""Characters of the end of a check's output that a result keeps."""
MAX_TEXT_CHARS: Final = 100_000
"""Characters of the model's last answer that a result keeps; the session has all of it."""
STOPPING: Final = frozenset({"key", "no_such_model"})
"""Kinds of a model's failure that no other task escapes: the person has to do something."""
OWN_DOING: Final = frozenset({"context", None})
"""Kinds of a model's failure that the model can cause: it read too much, or answered with nothing."""


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How tasks are done, the same for every task of a batch."""

    tools: Tools = ()
    limits: Limits = Limits()
    rounds: int = MAX_ROUNDS
    budget: Budget = Budget()
    allow_weaker: bool = False
    policy: Policy = Policy()
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    """Further options of `open_sandbox`."""
    opening: Any = field(default_factory=nullcontext)
    """Held with `async with` while a sandbox is opened: many openings at once overload a machine."""


class SandboxGone(Exception):
    """The guard of the sandbox is gone while this process lives."""


async def do_task(
    task: Task, model: str | Model, *, store: Store, session_id: str | None = None, sample: int = 0,
    tools: Tools = (), limits: Limits = Limits(), rounds: int = MAX_ROUNDS, budget: Budget = Budget(),
    allow_weaker: bool = False,
) -> Done:  # fmt: skip
    """Do one task in a fresh sandbox, check it, and return its result; the session is in the store by then.

    Args:
        task: what to do, and how it is checked.
        model: a Model, or a name for `open_model`; a task's own model comes first.
        store: keeps the session.
        session_id: of the session; a new one unless it is given.
        sample: number of the try, where a task is done several times on purpose.
        tools: of the agent; without any, the built-in ones for coding.
        limits: what commands may use, the agent's and the check's.
        rounds: how often the model may be asked.
        budget: what the run may use.
        allow_weaker: take what this machine offers, even if it isolates less.

    Raises:
        Lost: there is no outcome, by neither the task's fault nor the model's; it may be tried again.
        HandrailError: a mistake in the options, which another try does not cure.
    """
    options = TaskOptions(tools or builtin_tools(), limits, rounds, budget, allow_weaker)
    return await work_on(task, model, options, store=store, session_id=session_id, sample=sample)


async def work_on(
    task: Task, model: str | Model, options: TaskOptions, *, store: Store, session_id: str | None, sample: int
) -> Done:
    """Do one task with these options. Raises as `do_task` does."""
    attempt = _Attempt(task, sample, options)
    named = task.model or model
    opened = open_model(named.replace("{id}", task.id)) if isinstance(named, str) else named
    try:
        async with AsyncExitStack() as stack:
            async with options.opening:
                sandbox = await _opened(options, stack)
            await _prepare(sandbox, task)
            await attempt.run(sandbox, opened, store, session_id)
    except (Unavailable, BrokenDriver) as error:  # the sandbox did not close properly; what was found stays true
        attempt.errors.append(f"the sandbox was not closed: {describe_error(error)}")
    return attempt.result()


class _Attempt:
    """One try of one sample of a task."""

    def __init__(self, task: Task, sample: int, options: TaskOptions) -> None:
        self.task, self.sample, self.options = task, sample, options
        self.began = monotonic()
        self.errors: list[str] = []
        self.reward: float | None = None
        self.check: dict[str, Any] | None = None
        self.outcome: Outcome | None = None
        self.calls = 0
        self.ended = False
        """Whether the sandbox ended before the task did."""

    async def run(self, sandbox: Sandbox, model: Model, store: Store, session_id: str | None) -> None:
        """Let the agent work, check what it did, and store all of it."""
        options = self.options
        session = Session(
            options.tools,
            sandbox=sandbox,
            store=store,
            id=session_id,
            budget=options.budget,
            policy=options.policy,
            door=True,  # another process can watch a running task and end its calls; nobody is asked for approval
        )
        async with session:
            agent = Agent(model, session=session, rounds=options.rounds, system=self.task.system)
            self.outcome = await agent.run(self.task.prompt)
            self.calls = sum(event.type == "call_started" for event in session.trace)
            _raise_if_lost(self.outcome)
            try:
                await self._score(sandbox)
            except SandboxGone:
                self.ended = True
            if self.check is not None and not self.ended:
                session.emit("scored", data=self._score_data())
        if session.store_error:
            raise Lost(f"the session was not stored: {session.store_error}", kind="machine")

    async def _score(self, sandbox: Sandbox) -> None:
        """Run the check, if there is one. Raises SandboxGone."""
        if self.task.check is None:
            await _alive(sandbox)
            return
        self.reward, self.check = 0.0, {"exit_code": None, "output": ""}
        try:
            await _end_jobs(sandbox)
            for path, text in self.task.check_files.items():
                await _replace(sandbox, path, text)
            ran = await sandbox.run(self.task.check, timeout=self.task.check_timeout)
        except (OSError, Unavailable) as error:  # the agent left no room for it, in files or in processes
            await _alive(sandbox, error)
            self.errors.append(f"the check did not start: {describe_error(error)}")
            return
        self.reward, problem = reward_of(ran)
        exit_code = ran.exit_code if ran.ended_by == "exit" else None
        self.check = {"exit_code": exit_code, "output": f"{ran.stdout}{ran.stderr}"[-MAX_CHECK_OUTPUT_CHARS:]}
        self.errors += [problem] if problem else []

    def _score_data(self) -> dict[str, Any]:
        task = {"task": self.task.id, "sample": self.sample, "meta": dict(self.task.meta)}
        return {**task, "reward": self.reward, **(self.check or {})}

    def result(self) -> Done:
        """Return the result. Raises Lost if the sandbox ended under the agent, with the result of a second time."""
        outcome = self.outcome
        if outcome is None:
            raise Lost("; ".join(self.errors) or "the task was not begun", kind="machine")
        checked = self.check if not self.ended else None
        reward = 0.0 if self.ended and self.task.check is not None else self.reward
        done = Done(
            self.task.id, self.sample, 1, SANDBOX_ENDED if self.ended else outcome.reason,
            outcome.text[:MAX_TEXT_CHARS], reward, checked, outcome.usage, self.calls,
            round(monotonic() - self.began, 3), outcome.session_id, os.uname().nodename, tuple(self.errors),
        )  # fmt: skip
        if self.ended:
            raise Lost("the sandbox ended while the agent worked in it", kind=SANDBOX_ENDED, done=done)
        return done


async def _opened(options: TaskOptions, stack: AsyncExitStack) -> Sandbox:
    """A fresh sandbox, closed with the stack. Raises Lost if it cannot be opened now."""
    opening = open_sandbox(limits=options.limits, allow_weaker=options.allow_weaker, **options.sandbox)
    try:
        return await stack.enter_async_context(opening)
    except WeakerThanAsked as error:
        cause = error.__cause__
        if not isinstance(cause, Unavailable) or not cause.retryable:
            raise
        raise Lost(f"no sandbox was opened: {error}", kind="machine") from error
    except (OSError, Unavailable) as error:
        raise Lost(f"no sandbox was opened: {describe_error(error)}", kind="machine") from error


async def _prepare(sandbox: Sandbox, task: Task) -> None:
    """Put the task's files into the workspace. Raises Lost."""
    try:
        if task.archive is not None:
            await _unpack(sandbox, task.archive)
        for path, text in task.files.items():
            await sandbox.write_text(path, text)
        if task.setup is not None:
            _expect_success("setup", await sandbox.run(task.setup, timeout=SETUP_SECONDS))
        await _alive(sandbox)
    except (OSError, Unavailable, SandboxGone) as error:
        raise Lost(f"the task was not prepared: {describe_error(error)}", kind="setup") from error


async def _unpack(sandbox: Sandbox, archive: str) -> None:
    """Unpack a tar inside the sandbox: what climbs out of it, or is too large, meets the sandbox's own limits."""
    size = (await anyio.Path(archive).stat()).st_size
    if size > MAX_ARCHIVE_BYTES:
        raise Lost(f"the archive {archive} has more than {MAX_ARCHIVE_BYTES >> 20} MiB", kind="setup")
    content = await Work(lambda: _read(archive)).wait()
    packed = {b"\x1f\x8b": "z", b"BZ": "j", b"\xfd7": "J"}.get(content[:2], "")
    line = ["tar", f"-x{packed}f", "-", "--no-same-owner", "-C", sandbox.workspace]
    _expect_success("unpacking of the archive", await sandbox.run(line, stdin=content, timeout=SETUP_SECONDS))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _expect_success(what: str, ran: Completed) -> None:
    if ran.exit_code != 0 or ran.ended_by != "exit":
        how = f"exited with {ran.exit_code}" if ran.ended_by == "exit" else f"was ended by {ran.ended_by}"
        said = f"{ran.stdout}{ran.stderr}".strip()[-500:]
        raise Lost(f"the {what} {how}{f': {said}' if said else ''}", kind="setup")


def _raise_if_lost(outcome: Outcome) -> None:
    """Raise Lost after a run that did not end by the model's own doing."""
    if outcome.store_error:
        raise Lost(f"the session was not stored: {outcome.store_error}", kind="machine")
    if outcome.reason != "model_error" or outcome.failed in OWN_DOING:
        return
    if outcome.failed in STOPPING:
        raise Lost(outcome.text, kind="configuration")
    raise Lost(outcome.text, kind="model", retry_after=outcome.retry_after)


async def _alive(sandbox: Sandbox, error: Exception | None = None) -> None:
    """Raise SandboxGone if the guard is gone. A sandbox that is only full answers, or may answer later."""
    gone = error
    if error is None:
        try:
            await sandbox.stat(".")
        except (OSError, Unavailable) as found:
            gone = found
    if isinstance(gone, Unavailable) and not gone.retryable:
        raise SandboxGone(str(gone)) from gone


async def _end_jobs(sandbox: Sandbox) -> None:
    """End what the agent left running, so that nothing changes under the check."""
    async with anyio.create_task_group() as group:
        for job in sandbox.jobs():
            if job.running:
                group.start_soon(partial(sandbox.terminate, job.id))


async def _replace(sandbox: Sandbox, path: str, text: str) -> None:
    """Write a file of the check, whatever the agent has put in its place or above it."""
    above = [str(each) for each in PurePosixPath(path).parents if str(each) != "."]
    for parent in reversed(above):
        with suppress(OSError):
            if (await sandbox.stat(parent)).type != "directory":
                await sandbox.remove(parent)
    with suppress(OSError):
        await sandbox.remove(path)  # it may be a directory, or a link to somewhere else
    await sandbox.write_text(path, text)


def reward_of(ran: Completed) -> tuple[float, str]:
    """The reward that a check gave, and what is wrong with it, if anything is."""
    if ran.ended_by != "exit" or ran.may_still_run:
        return 0.0, f"the check was ended by {ran.ended_by}"
    by_code = 1.0 if ran.exit_code == 0 else 0.0
    last = ran.stdout.rstrip().rpartition("\n")[2].strip()
    try:
        given = json.loads(last) if last.startswith("{") else None
    except (ValueError, RecursionError):
        return by_code, ""
    if not isinstance(given, dict) or "reward" not in given:
        return by_code, ""
    reward = given["reward"]
    try:
        if isinstance(reward, int | float) and isfinite(reward):
            return float(reward), ""
    except OverflowError:
        pass
    return 0.0, f"the check's reward is not a finite number: {last[:100]}"
