"""A Sandbox: commands and files over any driver, with limits that hold even if the driver misbehaves."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from handrail.contract.limits import CODE_FILE_WAIT, DEFAULT_CAPS, JOB_START_WAIT
from handrail.misuse import AsyncWith, explains_misuse
from handrail.sandbox._execution import CommandSpec, Execution, OnOutput
from handrail.sandbox._payloads import Payloads
from handrail.sandbox._state import SandboxState
from handrail.sandbox.checks import as_bytes, as_command, called, count, resolve, seconds
from handrail.sandbox.code import language as known_language
from handrail.sandbox.completed import Completed
from handrail.sandbox.job import Job, Log
from handrail.sandbox.report import check_driver, report_of

WORKSPACE: Final = "/workspace"
"""Directory of commands in a sandbox whose driver names none."""


@explains_misuse
class Sandbox(Payloads, AsyncWith):
    """Commands and files over a driver. Views made by `at` share everything but their directory.

    Use `open_sandbox`, or give a driver of your own.

    Example:
        ```python
        async with open_sandbox() as sandbox:
            await sandbox.write_text("notes.txt", "hello")
            print((await sandbox.run("wc -c < notes.txt", timeout=10)).stdout)
        #> 5
        ```
    """

    def __init__(self, driver: Driver, *, workspace: str | None = None, report: Report | None = None) -> None:
        check_driver(driver)
        given = workspace if workspace is not None else getattr(driver, "workspace", WORKSPACE)
        self.workspace = resolve("/", given)
        self._report = report if report is not None else report_of(driver)
        self._state = SandboxState(driver)
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
        spec = self._spec(command, where, env, as_bytes(stdin, "stdin"), timeout, max_output, on_output)
        silence = seconds(idle_timeout, "idle_timeout")
        state = self._state
        name = id or self._call_id or state.number("run")
        execution = state.begin(Execution(name, spec, state.driver, self._clock or CallClock.started(), self._caps))
        return self._advised(await state.wait_for(execution, timeout, silence))

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
        spec = self._spec(command, await self._where(cwd), env, fed, timeout, max_output, show, for_job=True)
        silence = seconds(idle_timeout, "idle_timeout")
        state = self._state
        execution = state.begin(Execution(state.number("job"), spec, state.driver, CallClock.started(), self._caps))
        job = Job(execution, log, state.own_loop)
        in_background(self._wait_for(job, execution, timeout, silence))
        await self._started(execution)
        state.keep(job)
        if self._on_job is not None:
            self._on_job(job)
        return job

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
        """Start a command and return its Process: the caller sends input and reads output, and nothing is kept.

        The caller ends the command; closing the sandbox does too. Raises as the driver's `start`.
        """
        self._state.check_open()
        where = await self._where(cwd)
        directory = None if where == self.workspace else where
        return await self._state.driver.start(as_command(command, cwd=directory, env=env, timeout=None, input=True))

    def jobs(self) -> list[Job]:
        """Return all jobs, oldest first, including ended jobs that are still kept."""
        return list(self._state.jobs.values())

    def job(self, id: str) -> Job | None:
        """Return a job by its id."""
        return self._state.jobs.get(id)

    @on_own_loop
    async def terminate(self, id: str, *, by: Literal["user", "model"] = "user") -> bool:
        """End a job or a call: TERM, 3 s, KILL. Return whether any ran. `by` becomes the outcome's `ended_by`."""
        return await self._state.terminate(id, by)

    def at(self, path: str) -> "Sandbox":
        """Make a view whose relative paths and commands start at `path`: a default, not a boundary."""
        view = copy(self)
        view._cwd = resolve(self._cwd, path)
        return view

    @property
    def cwd(self) -> str:
        """The directory where relative paths and commands start."""
        return self._cwd

    @property
    def report(self) -> Report:
        """The guarantees of the sandbox, with notes on changes that commands needed and a person could make."""
        advice = tuple(self._state.advice)
        return replace(self._report, notes=(*self._report.notes, *advice)) if advice else self._report

    @property
    def features(self) -> frozenset[Feature]:
        """The features that the report lists as enforced."""
        return self._report.features

    @property
    def closed(self) -> bool:
        """Whether the sandbox is closed."""
        return self._state.closed

    async def close(self) -> None:
        """End every command and job, and close the driver, even if others still use it. May be called twice.

        A cancellation of the caller is raised when that is done. Without a running event loop, everything is killed
        at once.
        """
        if loop_here() is None:
            self._state.close_without_loop()
        else:
            await self.own_loop.run(self._state.close)

    async def __aenter__(self) -> Self:
        self._state.check_open()
        self._state.hold(1)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state.hold(-1) <= 0:
            await self.close()

    def _spec(
        self,
        command: str | Sequence[str],
        where: str,
        env: Mapping[str, str] | None,
        stdin: bytes | None,
        timeout: float | None,
        max_output: int | None,
        on_output: OnOutput | None,
        for_job: bool = False,
    ) -> CommandSpec:
        fed = stdin is not None or (for_job and "stdin" in self.features)
        limit = seconds(timeout, "timeout")
        asked = as_command(command, cwd=None if where == self.workspace else where, env=env, timeout=limit, input=fed)
        report, most = self._report, count(max_output, "max_output")
        return CommandSpec(
            asked, where, stdin, most, called(on_output, "on_output"), report.network == "none", not report.writable
        )

    def _advised(self, completed: Completed) -> Completed:
        """Pass advice on to the report, once, and to `on_advice`."""
        for text in completed.advice:
            self._state.advise(text)
            if self._on_advice is not None:
                self._on_advice(text)
        return completed

    async def _where(self, cwd: str | None) -> str:
        """Return a command's directory. Outside the reach of file operations, the system resolves `..`."""
        path = self._cwd if cwd is None else cwd
        try:
            return await self._target(path)
        except PermissionError:
            return resolve(self._cwd, path)

    async def _wait_for(self, job: Job, execution: Execution, timeout: float | None, silence: float | None) -> None:
        try:
            job.settle(self._advised(await self._state.wait_for(execution, timeout, silence)), None)
        except (OSError, ValueError, Unavailable, HandrailError) as error:
            job.settle(None, error)
        finally:
            if job.running:
                job.settle(None, Unavailable("The job was abandoned.", retryable=False))

    async def _started(self, execution: Execution) -> None:
        """Wait until the driver has started the command. A caller that is cancelled before that ends the job."""
        try:
            with anyio.move_on_after(JOB_START_WAIT):
                await execution.started.wait()
        except BaseException:
            execution.request_end("cancel")
            raise
        if execution.process is None:
            execution.request_end("cancel")
            raise execution.error or Unavailable(f"The sandbox did not start the command within {JOB_START_WAIT:g} s.")

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
