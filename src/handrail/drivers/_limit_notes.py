"""Tell what a limit did to a command: to the model what to do next, to the person what could be changed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from handrail.contract.limits import Limits
from handrail.drivers._explain import Explanation
from handrail.drivers.limit_table import machine_memory, size_text

UNLIMITED: Final = Limits(None, None, None, None, None, None, None)
WATCH: Final = "the guard's watch"
_NO_MEMORY: Final = re.compile(
    rb"(?i)\bMemoryError\b|cannot allocate memory|out of memory|std::bad_alloc|\bENOMEM\b|memory exhausted|"
    rb"can't start new thread"
)
_NO_SPACE: Final = re.compile(rb"(?i)no space left on device|\bENOSPC\b")
_NO_MEMFD: Final = re.compile(rb"(?i)memfd")


@dataclass(frozen=True, slots=True)
class LimitNotes:
    """The limits of one sandbox, and what keeps them."""

    limits: Limits = UNLIMITED
    memory_by: str = WATCH
    """The mechanism that keeps the limit on memory: the guard's watch, or a cgroup."""
    sized_workspace: bool = False
    """Whether the workspace is of the sandbox's own, with a size."""

    def facts(self) -> Iterator[str]:
        """How the limits are kept here, for the report."""
        if self.limits.memory is None:
            return
        most = size_text(self.limits.memory)
        if self.memory_by != WATCH:
            yield f"The limit on memory (here {most}) is kept by {self.memory_by}; files in /tmp and HOME count too."
            return
        yield (
            f"The limit on memory (here {most}) is kept by {WATCH}, within one tick of 10 to 100 ms: a command may "
            "use more for as long, and is then killed. Files in /tmp, /dev/shm and HOME count for limits.tmp instead. "
            "No process may reserve more at once; memfd_create is refused, because the watch does not see its memory."
        )

    def warnings(self) -> Iterator[str]:
        """Yield, for the report, which limits that were set are not kept here."""
        if self.limits.workspace is not None and not self.sized_workspace:
            yield (
                f"limits.workspace ({size_text(self.limits.workspace)}) is not kept: the workspace is an ordinary "
                "directory of this machine."
            )
        if self.limits.memory is not None and self.limits.memory > (machine := machine_memory()):
            yield (
                f"limits.memory ({size_text(self.limits.memory)}) is more than this machine has "
                f"({size_text(machine)}): its memory runs out first."
            )

    def killed_for_memory(self) -> Explanation:
        """A command was killed, or something that it started."""
        most = size_text(self.limits.memory or 0)
        if self.memory_by == WATCH:
            what = f"The command was killed because it used more than {most}"
        else:
            what = f"Something was killed while this command ran because the sandbox used more than {most}"
        return Explanation(
            f"{what} (limits.memory, kept by {self.memory_by}): work in smaller parts.",
            f"A command used more than limits.memory ({most}, kept by {self.memory_by}). If commands need more, open "
            "the sandbox with a higher one (on the command line: --memory).",
        )

    def explanations(self, exit_code: int, stderr: bytes) -> Iterator[Explanation]:
        """Explain a command that failed with this at the end of its standard error."""
        if exit_code == 0:
            return
        memory = self.limits.memory
        if memory is not None and self.memory_by == WATCH and _NO_MEMFD.search(stderr):
            yield Explanation(
                "memfd_create is refused in this sandbox, which limits memory: use a file in /tmp or /dev/shm.", ""
            )
        elif memory is not None and _NO_MEMORY.search(stderr):
            most = size_text(memory)
            yield Explanation(
                f"The sandbox limits memory to {most} (limits.memory, kept by {self.memory_by}): work in smaller "
                "parts, or with fewer threads.",
                f"A command was refused memory by limits.memory ({most}). If commands need more, open the sandbox "
                "with a higher one (on the command line: --memory).",
            )
        if _NO_SPACE.search(stderr):
            yield from self._on_space()

    def _on_space(self) -> Iterator[Explanation]:
        sizes = []
        if self.limits.tmp is not None:
            sizes.append(f"/tmp, /dev/shm and HOME {size_text(self.limits.tmp)} each (limits.tmp)")
        if self.sized_workspace and self.limits.workspace is not None:
            sizes.append(f"the workspace {size_text(self.limits.workspace)} (limits.workspace)")
        if sizes:
            yield Explanation(
                f"Files have no more room: {' and '.join(sizes)}, kept by tmpfs, with as many files as pages. Remove "
                "what is no longer needed, or write less.",
                f"A command had no more room for files: {' and '.join(sizes)}. If commands need more, open the "
                "sandbox with higher limits.",
            )


NO_LIMITS: Final = LimitNotes()
