"""Run a batch for a person: its options read, its screen, Ctrl-C once and twice, and the code to exit with."""

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import anyio

from handrail.aio import in_background
from handrail.batch import Here, Task, run_batch
from handrail.batch.task import read_tasks
from handrail.cli._app import INTERRUPTED, MISTAKE
from handrail.cli._batch_screen import BatchScreen, JsonLines, Lines
from handrail.cli._signals import interrupts
from handrail.cli._which_model import model_name
from handrail.contract.errors import HandrailError, describe_error
from handrail.contract.limits import Budget, Limits


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The options of `handrail batch`, as typed."""

    tasks: Path
    out: Path
    model: str | None
    jobs: int
    samples: int
    tries: int
    rounds: int
    calls: int
    seconds: float | None
    system: str
    tools: str | None
    allow_weaker: bool
    limit: int | None
    only: Sequence[str]
    retry_lost: bool
    may_repeat: bool
    json: bool


async def run(options: BatchOptions) -> int:
    """Returns the code to exit with."""
    tasks = [_with_system(each, options.system) for each in read_tasks(options.tasks)]
    named = options.model if all(each.model for each in tasks) and options.model is None else model_name(options.model)
    crew = Here(
        named or "recorded:none", tools=_tools(options.tools), limits=limits(), rounds=options.rounds,
        budget=Budget(calls=options.calls, seconds=options.seconds), allow_weaker=options.allow_weaker,
        may_repeat=options.may_repeat, slots=options.jobs,
    )  # fmt: skip
    screen = JsonLines() if options.json else BatchScreen() if sys.stderr.isatty() else Lines()
    stop, totals = anyio.Event(), None
    work = partial(
        run_batch, tasks, crew, options.out, jobs=options.jobs, tries=options.tries, samples=options.samples,
        only=options.only, limit=options.limit, retry_lost=options.retry_lost, show=screen.see, stop=stop,
    )  # fmt: skip
    ready, scope = anyio.Event(), anyio.CancelScope()
    watching = in_background(_heed_signals(stop, scope, screen, ready))
    await ready.wait()
    try:
        with scope, screen:
            totals = await work()
    finally:
        watching.cancel()
    if totals is None:
        screen.say("the running tasks were ended; the same command goes on with them")
        return INTERRUPTED
    screen.finish(totals, _again(options))
    return MISTAKE if totals.stopped else INTERRUPTED if totals.interrupted else 1 if totals.lost else 0


def limits() -> Limits:
    """The limits of each sandbox: the place for --memory, --processes, --workspace-size and --cpu."""
    return Limits()


async def _heed_signals(stop: anyio.Event, scope: anyio.CancelScope, screen: Lines, ready: anyio.Event) -> None:
    with anyio.open_signal_receiver(*interrupts(), signal.SIGTERM) as signals:
        ready.set()
        async for _ in signals:
            if stop.is_set():
                scope.cancel()
            else:
                stop.set()
                screen.say("no new task is begun, and those that run finish; Ctrl-C again ends them")


def _with_system(task: Task, system: str) -> Task:
    return replace(task, system=system) if system and not task.system else task


def _tools(named: str | None) -> Any:
    """The tools that `module:function` returns. Raises HandrailError, saying what to type."""
    if named is None:
        return ()
    module, _, function = named.partition(":")
    if not module or not function:
        raise HandrailError(f"--tools {named!r}: write MODULE:FUNCTION")
    sys.path.insert(0, os.getcwd())
    try:
        return resolve_name(named)()
    except Exception as error:
        raise HandrailError(f"--tools {named}: {describe_error(error)}") from error


def _again(options: BatchOptions) -> str:
    """The command that does again what was lost."""
    words = ["handrail", "batch", str(options.tasks), "--out", str(options.out)]
    words += ["--model", options.model] if options.model else []
    words += ["--samples", str(options.samples)] if options.samples > 1 else []
    return f"{shlex.join(words)} --retry lost"
