"""The run of LangChain that a call is part of: shows what the call prints, and ends it, however it is cancelled.

LangGraph runs tools in tasks of its own, and cancels them in a task that it starts when the run ends. A cancel scope of
anyio, such as that of a web server whose client has gone, cancels that task too before it has begun, so nobody cancels
the tools. Callbacks are told of the end of the run in every case.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook
from langgraph.config import get_stream_writer

from handrail.adapters._live_output import Show
from handrail.aio import Task, this_task

_runs: ContextVar[tuple[UUID, ...]] = ContextVar("handrail_runs", default=())
"""LangChain runs around the current task, the outermost first."""
_calls: Final[dict[UUID, set[Task]]] = {}
"""Tasks of the calls in progress, by LangChain run."""


class _Ends(BaseCallbackHandler):
    """Callback for the end of every LangChain run in this program."""

    run_inline = True  # in the task of the run, whose context the tools inherit

    def on_chain_start(self, *given: Any, run_id: UUID, parent_run_id: UUID | None = None, **more: Any) -> None:
        outer = _runs.get()
        inside = outer[: outer.index(parent_run_id) + 1] if parent_run_id in outer else ()
        _runs.set((*inside, run_id))

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        if not isinstance(error, Exception):
            for task in tuple(_calls.get(run_id, ())):
                task.cancel()


_ENDS: Final = _Ends()
# LangChain adds the default of this variable to the callbacks of every run: no user has to pass it.
register_configure_hook(ContextVar("handrail_ends", default=_ENDS), inheritable=True)


@contextmanager
def ends_with_its_run() -> Iterator[None]:
    """Cancel this task if one of the LangChain runs around the task is cancelled meanwhile."""
    task, runs = this_task(), _runs.get()
    for run in runs:
        _calls.setdefault(run, set()).add(task)
    try:
        yield
    finally:
        for run in runs:
            _calls[run].discard(task)
            if not _calls[run]:
                del _calls[run]


def shown_in_its_run(name: str, id: str | None) -> Show | None:
    """Function that writes a call's output to the stream of its graph; None outside a graph."""
    try:
        write = get_stream_writer()
    except (RuntimeError, KeyError):  # outside of a run, or in one that is not a graph's
        return None

    async def show(stream: str, text: str) -> None:
        write({"tool": name, "call": id, "stream": stream, "text": text})

    return show
