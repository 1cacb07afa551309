"""A Sandbox: commands and files over any driver, with limits that hold even if the driver misbehaves."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from os import urandom
from types import TracebackType
from typing import Final, Literal, Self

import anyio

from handrail.aio import finish, in_background, loop_here, on_own_loop
from handrail.clock import CallClock
from handrail.contract.clock import Clock
from handrail.contract.driver import Chunk, Driver, Feature, Process, Report
from handrail.contract.errors import HandrailError, Unavailable
from handrail.contract.limits import CODE_FILE_WAIT, DEFAULT_CAPS, JOB_START_WAIT, Caps
from handrail.misuse import AsyncWith, explains_misuse
from handrail.sandbox._payloads import Payloads
from handrail.sandbox._running import OnOutput, Order, Running
from handrail.sandbox._shared import SandboxState
from handrail.sandbox.checks import as_bytes, as_command, called, count, resolve, seconds
from handrail.sandbox.code import language as known_language
from handrail.sandbox.completed import Completed, Late
from handrail.sandbox.conversation import CommandConversation, FramedCommand
from handrail.sandbox.job import Job, Log
from handrail.sandbox.report import check_driver, report_of

WORKSPACE: Final = "/workspace"


@explains_misuse
class Sandbox(Payloads, AsyncWith):
    """Wraps a driver. Views made by `at` and `bind` share everything but their directory, clock and call."""

    def __init__(
        self, driver: Driver, *, workspace: str | None = None, report: Report | None = None,
        jailed_alone: Callable[[str], str] | None = None,
    ) -> None:  # fmt: skip
        check_driver(driver)
        given = workspace if workspace is not None else getattr(driver, "workspace", WORKSPACE)
        self.workspace = resolve("/", given)
        self._report = report if report is not None else report_of(driver)
        self._shared = SandboxState(driver)
        self._jailed_alone = jailed_alone
        self._cwd = self.workspace
        self._clock: Clock | None = None
        self._call_id: str | None = None
        self._caps = DEFAULT_CAPS
        self._ends_with_call: list[Callable[[], Awaitable[None]]] | None = None
        self._on_job: Callable[[Job], object] | None = None
        self._on_advice: Callable[[str], object] | None = None

    def __repr__(self) -> str:
        jobs = sum(job.running for job in self.jobs())
        running = f", {jobs} running job{'s' if jobs > 1 else ''}" if jobs else ""
        state = ", closed" if self.closed else running
        return f"<Sandbox {self.report.driver} at {self.cwd}, network {self.report.network}{state}>"

    @on_own_loop
    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        max_output: int | None = None,
        on_output: OnOutput | None = None,
        id: str | None = None,
    ) -> Completed:
        """Run a shell line (a string) or an argv (a sequence) to its end.

        `timeout` is wall-clock seconds, `idle_timeout` seconds without output, `max_output` bytes of both streams. A
        passed limit ends the whole tree and keeps the output. Raises ValueError for invalid arguments, OSError if
        the command cannot be started, Unavailable if the sandbox is gone. A cancellation first ends the tree.
        """
        where = await self._where(cwd)
        order = self._order(command, where, env, as_bytes(stdin, "stdin"), timeout, max_output, on_output)
        silence = seconds(idle_timeout, "idle_timeout")
        shared = self._shared
        name = id or self._call_id or shared.number("run")
        running = shared.begin(Running(name, order, shared.driver, self._clock or CallClock.started(), self._caps))
        return self._advised(await shared.see_through(running, timeout, silence))

    @on_own_loop
    async def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        max_output: int | None = None,
        on_output: OnOutput | None = None,
    ) -> Job:
        """Start a command that outlives this call. `stdin` is sent and closed; without it, use `Job.send`."""
        log = Log(self._caps.spool)
        show = log.add if on_output is None else _both(log, called(on_output, "on_output"))
        fed = as_bytes(stdin, "stdin")
        order = self._order(command, await self._where(cwd), env, fed, timeout, max_output, show, for_job=True)
        silence = seconds(idle_timeout, "idle_timeout")
        shared = self._shared
        running = shared.begin(Running(shared.number("job"), order, shared.driver, CallClock.started(), self._caps))
        job = Job(running, log, shared.own_loop)
        in_background(self._see_through(job, running, timeout, silence))
        await self._started(running)
        shared.keep(job)
        if self._on_job is not None:
            self._on_job(job)
        return job

    @on_own_loop
    async def converse(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        lasting: bool = False,
        first: bytes | None = None,
    ) -> CommandConversation:
        """Start a command to talk to: frames over its input and output; what it writes to stderr is its log.

        It belongs to the call that this view is bound to, has its clock and ends with it; a `lasting` one ends when it
        is killed, or with the sandbox. `first` is a frame that it gets before all others, even if it takes it late.
        Raises OSError, ValueError or Unavailable.
        """
        if isinstance(argv, str):
            raise ValueError("argv is a list of words, such as ['python3', 'serve.py'], not a line for the shell.")
        order = self._order(argv, await self._where(cwd), env, None, None, None, None, for_job=True)
        shared = self._shared
        name = shared.number("run") if lasting else self._call_id or shared.number("run")
        clock = CallClock.started() if lasting else self._clock or CallClock.started()
        command = shared.begin(FramedCommand(name, order, shared.driver, clock, self._caps))
        hearing = in_background(self._hear_out(command))
        hearing.add_done_callback(lambda _: command.settled.set())  # it may be cancelled before it begins
        conversation = CommandConversation(command, shared.own_loop)
        try:
            await self._started(command)
            if first is not None:
                conversation.begin(first)
        except BaseException:
            await conversation.kill()
            raise
        if self._ends_with_call is not None and not lasting:
            self._ends_with_call.append(conversation.kill)
        return conversation

    async def end_call(self) -> None:
        """End the commands that this view's call talks to, and its streams."""
        for end in self._ends_with_call or ():
            await end()

    @on_own_loop
    async def run_code(
        self, code: str, language: str = "python", timeout: float | None = None, *, on_output: OnOutput | None = None
    ) -> Completed:
        """Run a program given as text, from a temporary hidden file in the sandbox's directory."""
        tongue = known_language(language)
        if not isinstance(code, str):
            raise ValueError(f"code is text, not {type(code).__name__}.")
        seconds(timeout, "timeout")
        path = await self._target(f".handrail-code-{urandom(4).hex()}{tongue.ending}")
        await self.stat(".")  # raises if the directory is missing; writing would create it
        await self.write_text(path, code)
        try:
            return await self.run([*tongue.argv, path], timeout=timeout, on_output=on_output)
        except FileNotFoundError as error:
            raise Unavailable(f"{tongue.argv[0]} is not installed in this sandbox.", retryable=False) from error
        finally:
            await finish(partial(self._remove_quietly, path))

    @on_own_loop
    async def open_process(
        self, command: str | Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> Process:
        """Start a command whose input and output are the caller's own to send and to read; nothing of it is kept.

        The caller ends it; closing the sandbox does too. Raises what the driver's `start` does.
        """
        self._shared.check_open()
        where = await self._where(cwd)
        directory = None if where == self.workspace else where
        return await self._shared.driver.start(as_command(command, cwd=directory, env=env, timeout=None, input=True))

    def jobs(self) -> list[Job]:
        """All jobs, oldest first, with the ended ones that are still kept."""
        return list(self._shared.jobs.values())

    def job(self, id: str) -> Job | None:
        """One job by its id."""
        return self._shared.jobs.get(id)

    @on_own_loop
    async def terminate(self, id: str, *, by: Literal["user", "model"] = "user") -> bool:
        """End a job or a running call: TERM, 3 s, KILL. Returns whether it was running. `by` becomes its `ended_by`."""
        return await self._shared.terminate(id, by)

    def at(self, path: str) -> "Sandbox":
        """A view whose relative paths and commands start at `path`. This is a default, not a boundary."""
        view = copy(self)
        view._cwd = resolve(self._cwd, path)
        return view

    def bind(
        self,
        *,
        clock: Clock | None = None,
        call_id: str | None = None,
        caps: Caps | None = None,
        on_job: Callable[[Job], object] | None = None,
        on_advice: Callable[[str], object] | None = None,
    ) -> "Sandbox":
        """A view for one call: its limits run on the call's clock, and `terminate(call_id)` ends what it runs.

        Output keeps to `caps`. `on_job` is called with every job that is started through this view,
        `on_advice` with what a person could change about the sandbox, where that is why a command failed.
        """
        view = copy(self)
        view._on_job = on_job if on_job is not None else self._on_job
        view._on_advice = on_advice if on_advice is not None else self._on_advice
        view._clock = clock if clock is not None else self._clock
        view._call_id = call_id if call_id is not None else self._call_id
        view._caps = caps if caps is not None else self._caps
        view._ends_with_call = []
        return view

    @property
    def cwd(self) -> str:
        """The directory where relative paths and commands start."""
        return self._cwd

    @property
    def report(self) -> Report:
        """What the sandbox promises; its notes have what commands showed that a person could change."""
        advice = tuple(self._shared.advice)
        return replace(self._report, notes=(*self._report.notes, *advice)) if advice else self._report

    @report.setter
    def report(self, report: Report) -> None:
        self._report = report

    @property
    def features(self) -> frozenset[Feature]:
        """The features that the report lists as enforced."""
        return self._report.features

    @property
    def identity(self) -> object:
        """The same object for all views of one sandbox."""
        return self._shared

    @property
    def on_late(self) -> list[Callable[[Late], object]]:
        """Callbacks for commands that end after their call was answered. Append to it."""
        return self._shared.on_late

    @property
    def on_close(self) -> list[Callable[[], object]]:
        """Callbacks for its end, which may come in any thread; they must not raise. Append to it."""
        return self._shared.on_close

    def jailed_alone(self, program: str) -> str:
        """The path of a program that runs this one in a jail of its own, which shows nothing of this sandbox.

        Raises Unavailable.
        """
        if self._jailed_alone is None:
            raise Unavailable("This sandbox was not opened by open_sandbox: it cannot make another.", retryable=False)
        return self._jailed_alone(program)

    @property
    def closed(self) -> bool:
        return self._shared.closed

    def acquire(self) -> Self:
        """Keep the sandbox open; the last `release` closes it."""
        self._shared.check_open()
        self._shared.hold(1)
        return self

    async def release(self) -> None:
        """Undo one `acquire`; the last one closes the sandbox."""
        if self._shared.hold(-1) <= 0:
            await self.close()

    async def close(self) -> None:
        """End every command and job, and close the driver, even if others still use it. May be called twice.

        A cancellation of the caller is raised when that is done. Without a running event loop, everything is killed
        at once.
        """
        if loop_here() is None:
            self._shared.close_without_loop()
        else:
            await self.own_loop.run(self._shared.close)

    async def __aenter__(self) -> Self:
        return self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()

    def _order(
        self,
        command: str | Sequence[str],
        where: str,
        env: Mapping[str, str] | None,
        stdin: bytes | None,
        timeout: float | None,
        max_output: int | None,
        on_output: OnOutput | None,
        for_job: bool = False,
    ) -> Order:
        fed = stdin is not None or (for_job and "stdin" in self.features)
        limit = seconds(timeout, "timeout")
        asked = as_command(command, cwd=None if where == self.workspace else where, env=env, timeout=limit, input=fed)
        report, most = self._report, count(max_output, "max_output")
        return Order(
            asked, where, stdin, most, called(on_output, "on_output"), report.network == "none", not report.writable
        )

    def _advised(self, completed: Completed) -> Completed:
        """Tell the person what they could change: in the report, once, and whoever asked for it."""
        for text in completed.advice:
            self._shared.advise(text)
            if self._on_advice is not None:
                self._on_advice(text)
        return completed

    async def _where(self, cwd: str | None) -> str:
        """A command's directory. Commands may reach more than file operations do; there the system resolves `..`."""
        path = self._cwd if cwd is None else cwd
        try:
            return await self._target(path)
        except PermissionError:
            return resolve(self._cwd, path)

    async def _see_through(self, job: Job, running: Running, timeout: float | None, silence: float | None) -> None:
        try:
            job.settle(self._advised(await self._shared.see_through(running, timeout, silence)), None)
        except (OSError, ValueError, Unavailable, HandrailError) as error:
            job.settle(None, error)
        finally:
            if job.running:
                job.settle(None, Unavailable("The job was abandoned.", retryable=False))

    async def _hear_out(self, command: FramedCommand) -> None:
        with suppress(OSError, ValueError, Unavailable, HandrailError):  # the conversation tells who waits for it
            await self._shared.see_through(command, None, None)

    async def _started(self, running: Running) -> None:
        """Wait until the driver has started the command. A caller that is cancelled before that ends the job."""
        try:
            with anyio.move_on_after(JOB_START_WAIT):
                await running.started.wait()
        except BaseException:
            running.request_end("cancel")
            raise
        if running.process is None:
            running.request_end("cancel")
            raise running.error or Unavailable(f"The sandbox did not start the command within {JOB_START_WAIT:g} s.")

    async def _remove_quietly(self, path: str) -> None:
        with anyio.move_on_after(CODE_FILE_WAIT):
            try:
                await self.remove(path)
            except (OSError, Unavailable):
                pass  # the program removed it itself, or the sandbox is gone


def _both(log: Log, on_output: OnOutput) -> OnOutput:
    def show(chunk: Chunk) -> object:
        log.add(chunk)
        return on_output(chunk)

    return show
