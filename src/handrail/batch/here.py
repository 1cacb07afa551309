"""Here: a Crew that does tasks on this machine, in this process."""

import os
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import anyio

from handrail.agent import MAX_ROUNDS
from handrail.batch._ledger import SESSIONS
from handrail.batch.task import Done, Task
from handrail.batch.work import TaskOptions, work_on
from handrail.contract.errors import HandrailError
from handrail.contract.limits import Budget, Limits
from handrail.contract.model import Model
from handrail.misuse import expect_number, explains_misuse
from handrail.models.open import open_model
from handrail.policy.policy import Policy
from handrail.store.store import Store
from handrail.toolkit.tool import Tool
from handrail.toolkit.toolbox import Toolbox, Tools
from handrail.tools.builtin import builtin_tools

OPENINGS_PER_CORE: Final = 2
"""Sandboxes that are opened at the same time for each core; more of them overload a machine."""
SLOTS: Final = 300
"""Tasks that one process does at the same time."""
MIN_FREE_BYTES: Final = 256 << 20
"""Bytes of memory that must be available before another sandbox is opened."""
MEMORY_PAUSE_SECONDS: Final = 1.0
"""Seconds between two looks at the memory."""
ONE_CONVERSATION: Final = ("recorded:", "person")
"""Beginnings of the names of models that are opened anew for each task: each plays one conversation."""


@explains_misuse
class Here:
    """Does tasks on this machine. At most twice as many sandboxes as there are cores are opened at the same time.

    Args:
        model: a Model, or a name for `open_model`, in which `{id}` is the task's id.
        tools: of the agents; without any, the built-in ones for coding. One whose effects leave the sandbox needs
            may_repeat, because a task that is lost is done again.
        limits: what the commands of one task may use.
        rounds: how often the model may be asked.
        budget: what one task may use.
        allow_weaker: take what this machine offers, even if it isolates less.
        may_repeat: let tools act outside the sandbox, though a task may be begun several times.
        slots: tasks at the same time.
        sandbox: further options of `open_sandbox`.
    """

    def __init__(
        self, model: str | Model, *, tools: Tools = (), limits: Limits = Limits(), rounds: int = MAX_ROUNDS,
        budget: Budget = Budget(), allow_weaker: bool = False, may_repeat: bool = False, slots: int = SLOTS,
        sandbox: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        expect_number("Here.slots", slots, "a whole number above 0", least=0, above=True, whole=True)
        if model == "person":
            raise HandrailError("a batch asks nobody: give another model than person")
        self.slots = slots
        self._model = model
        self._models: dict[str, Model] = {}
        self._toolbox = Toolbox(tools or builtin_tools())
        outside = [each.name for each in self._toolbox.all() if _leaves_sandbox(each)]
        if outside and not may_repeat:
            raise HandrailError(
                f"{', '.join(outside)} can act outside the sandbox, and a task that is lost is done again: "
                "give may_repeat=True (--may-repeat) if that does no harm"
            )
        self._options = TaskOptions(
            self._toolbox, limits, rounds, budget, allow_weaker, Policy(allow=outside), dict(sandbox or {})
        )
        self._store: Store | None = None
        self._running = 0

    @property
    def about(self) -> dict[str, Any]:
        """The options that all results of one batch have in common, for batch.json."""
        model = self._model if isinstance(self._model, str) else getattr(self._model, "name", "") or type(self._model)
        named = model if isinstance(model, str) else model.__name__
        options = self._options
        return {
            "model": named, "tools": sorted(self._toolbox.names()), "limits": asdict(options.limits),
            "rounds": options.rounds, "budget": asdict(options.budget), "allow_weaker": options.allow_weaker,
        }  # fmt: skip

    async def start(self, out: Path) -> None:
        """Open the store of the batch, and refuse a model that cannot be opened before the first task begins."""
        self._store = Store(out / SESSIONS)
        limiter = anyio.CapacityLimiter(OPENINGS_PER_CORE * (os.cpu_count() or 1))
        self._options = replace(self._options, opening=_Openings(limiter))
        if isinstance(self._model, str) and not self._model.startswith(ONE_CONVERSATION):
            self._opened(self._model)

    async def do(self, task: Task, sample: int, session_id: str) -> tuple[Done, Iterable[str]]:
        """Do one task. The session is in the store of the batch already, so no lines of it are given back."""
        if self._store is None:
            raise HandrailError("this Here was not started; run_batch does that")
        while self._running and _memory_is_short():  # noqa: ASYNC110 - the kernel tells nobody
            await anyio.sleep(MEMORY_PAUSE_SECONDS)
        named = task.model or self._model
        model = named if not isinstance(named, str) or named.startswith(ONE_CONVERSATION) else self._opened(named)
        self._running += 1
        try:
            asked = task if isinstance(model, str) else replace(task, model=None)
            return await work_on(
                asked, model, self._options, store=self._store, session_id=session_id, sample=sample
            ), ()
        finally:
            self._running -= 1

    async def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _opened(self, name: str) -> Model:
        """The model of this name; one client serves every task, because making one takes long."""
        if name not in self._models:
            self._models[name] = open_model(name)
        return self._models[name]


class _Openings:
    """Slots for opening sandboxes: one object, entered by many tasks, each of which borrows for itself."""

    def __init__(self, limiter: anyio.CapacityLimiter) -> None:
        self._limiter = limiter

    async def __aenter__(self) -> None:
        await self._limiter.acquire()

    async def __aexit__(self, *ended: object) -> None:
        self._limiter.release()


def _leaves_sandbox(tool: Tool) -> bool:
    """Whether a call of the tool can change something that a fresh sandbox does not undo."""
    effects = frozenset(tool.effects) - {"reads"}
    if effects & {"reaches_out", "spends"}:
        return True
    return (bool(effects) and not tool.needs) or (tool.risk != "safe" and not tool.effects)


def _memory_is_short() -> bool:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = next((line for line in file if line.startswith("MemAvailable:")), "")
    except OSError:
        return False
    return bool(found) and int(found.split()[1]) << 10 < MIN_FREE_BYTES
