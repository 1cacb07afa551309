"""A check: one sentence about a driver, its promise, and the evidence for or against it."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from handrail.contract.driver import Feature
from handrail.testing.conformance.fixture import NotTried as NotTried
from handrail.testing.conformance.fixture import Open

Run = Callable[[Open], Awaitable["Seen"]]


@dataclass(frozen=True, slots=True)
class Seen:
    """The evidence of a check: an expected and an observed value."""

    command: str
    """The command that was run, or the request that was made."""
    started: bool
    """The control: whether the command really ran, so that a check cannot pass because nothing happened."""
    expected: object
    got: object

    @property
    def kept(self) -> bool:
        return self.started and self.expected == self.got


@dataclass(frozen=True, slots=True)
class Check:
    """A check. `run` opens a driver and tries the sentence on it, or raises NotTried."""

    name: str
    """The sentence that the check proves."""
    feature: Feature
    run: Run = field(repr=False)
    """The coroutine function that makes the check."""
    # Not in the repr: its arguments may be megabytes, and asyncio makes a text of a task's result in debug mode.
    needs: frozenset[Feature] = frozenset({"exec"})
    """Other features that the driver must claim, else the check is not made."""


class Group(list[Check]):
    """The checks of one promise, in the order in which they are written."""

    def __init__(self, feature: Feature, *, needs: Iterable[Feature] = ("exec",)) -> None:
        super().__init__()
        self.feature = feature
        self.needs = frozenset(needs) - {feature}

    def check(self, run: Run) -> Run:
        """Add a check. The function's name becomes the sentence."""
        self.append(Check(_sentence(run), self.feature, run, self.needs))
        return run

    def with_commands(self, run: Run) -> Run:
        """Add a check that runs commands to a group whose other checks need none."""
        self.append(Check(_sentence(run), self.feature, run, self.needs | {"exec"}))
        return run

    def add(self, name: str, run: Callable[..., Awaitable[Seen]], *args: object, **options: object) -> None:
        """Add one of many checks that differ in their arguments alone."""
        self.append(Check(name, self.feature, partial(_applied, run, args, options), self.needs))

    def add_with_commands(self, name: str, run: Callable[..., Awaitable[Seen]], *args: object) -> None:
        """The same for a check that runs commands, in a group that can do without."""
        self.append(Check(name, self.feature, partial(_applied, run, args, {}), self.needs | {"exec"}))


def _sentence(run: Run) -> str:
    return str(getattr(run, "__name__", "")).replace("_", " ")


def _applied(
    run: Callable[..., Awaitable[Seen]], args: tuple[object, ...], options: dict[str, object], open: Open
) -> Awaitable[Seen]:
    return run(open, *args, **options)
