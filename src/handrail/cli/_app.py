"""Options that commands share, how a command runs, and one line on stderr for a person's mistake.

Everything that takes long to import is loaded by the command that uses it: `handrail --help` needs typer alone.
"""

import codecs
import io
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeVar

import typer
from typer.core import TyperCommand

from handrail.cli._installed import EXTRA, install_command
from handrail.cli._limit_options import OPTIONS, Cpu, Memory, Processes, WorkspaceSize, memory_for_model, read_limits
from handrail.cli._sandbox_options import Env, Mounts, inside
from handrail.cli._signals import run_loop
from handrail.contract.errors import HandrailError, MissingExtra, Unavailable, WeakerThanAsked
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.policy import approval as _approval
else:
    _approval = Lazy("handrail.policy.approval")

T = TypeVar("T")
KEYWORD: Final = Parameter.KEYWORD_ONLY
MISTAKE: Final = 2
NOT_RUN: Final = 125
INTERRUPTED: Final = 130
"""Exit codes, as shells and container tools use them."""
PLAIN_SIGNS: Final = {"✓": "ok", "✗": "x", "…": "...", "·": "-", "—": "-", "×": "x", "→": "->", "“": '"', "”": '"'}
"""ASCII texts for our own signs, for a terminal that can show nothing else."""
WIDEST_HELP: Final = 100
"""Columns of help on a wider screen; on a narrower one, help is as wide as the screen."""


class _Help(typer.Context.formatter_class):  # type: ignore[valid-type, misc]
    """Options in at most a third of the width, so that their texts fit into a narrow terminal too."""

    def write_dl(self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl(rows, min(col_max, self.width // 3), col_spacing)


class _Context(typer.Context):
    formatter_class = _Help


typed: ContextVar[frozenset[str]] = ContextVar("typed", default=frozenset())
"""The options that the person has typed; the others have their defaults."""


class Command(TyperCommand):
    """A command whose help fits the terminal, and that knows what was typed."""

    context_class = _Context

    def get_short_help_str(self, limit: int = 45) -> str:
        """Its first sentence, whole: the list of commands breaks it between words."""
        return super().get_short_help_str(max(limit, WIDEST_HELP))

    def invoke(self, ctx: Any) -> Any:
        sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
        typed.set(
            frozenset(name for name, source in sources.items() if source is not None and source.name != "DEFAULT")
        )
        return super().invoke(ctx)


class Advice(HandrailError):
    """A mistake whose answer has several lines, all of them our own."""


MODES: Final = (
    "What needs your approval: contained, whatever leaves the sandbox; ask, also writes and commands; strict, "
    "everything that is not safe; open, nothing."
)
Driver = Annotated[str, typer.Option(help="auto, jail, host, or the name of an installed driver.")]
AllowWeaker = Annotated[bool, typer.Option("--allow-weaker", help="Run without isolation where no jail can be made.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve every request, and never wait for input.")]
Workspace = Annotated[str, typer.Option(help="The directory the tools may work in.")]
Network = Annotated[str, typer.Option(help="none or full.")]
Mode = Annotated[str, typer.Option(help=MODES)]
Json = Annotated[bool, typer.Option("--json", help="Print result envelopes in a terminal too, not only to programs.")]
Full = Annotated[
    bool, typer.Option("--full", help="Show results whole, not only the first lines, or a command's last.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print every note about the sandbox, not only what is weaker here.")
]


def new_app(**settings: Any) -> typer.Typer:
    """An empty app, for the command or the group of one file."""
    # plain help starts three times as fast as rich's, and fits every terminal
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, **settings)


@dataclass(frozen=True, slots=True)
class Options:
    """The person's wishes for the sandbox and the session; each field is an option of the command line."""

    workspace: Workspace = "."
    driver: Driver = "auto"
    allow_weaker: AllowWeaker = False
    network: Network = "none"
    mode: Mode = "contained"
    yes: Yes = False
    json: Json = False
    verbose: Verbose = False
    mount: Mounts = None
    env: Env = None
    full: Full = False
    memory: Memory = None
    processes: Processes = None
    workspace_size: WorkspaceSize = None
    cpu: Cpu = None

    def for_sandbox(self) -> dict[str, Any]:
        """The arguments of `open_sandbox`. Raises HandrailError, saying what to type."""
        return {
            "driver": self.driver,
            "workspace": self.workspace,
            "network": self.network,
            "allow_weaker": self.allow_weaker,
            **inside(self.workspace, self.mount, self.env),
            **read_limits({name: getattr(self, name) for name in OPTIONS}),
        }

    def for_model(self) -> Self:
        """The same where a model works: its commands may not use all of this machine's memory."""
        return replace(self, memory=memory_for_model(self.memory, self.driver))


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command that has every option of `Options`, and is given them as its last argument, `options`."""
    own = [each for each in signature(command).parameters.values() if each.name != "options"]
    added = [Parameter(each.name, KEYWORD, default=each.default, annotation=each.type) for each in fields(Options)]

    @wraps(command)
    def parsed(**given: Any) -> None:
        options = Options(**{each.name: given.pop(each.name) for each in added})
        command(**given, options=options)

    vars(parsed)["__signature__"] = Signature([*own, *added])  # typer reads both
    parsed.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
    return parsed


def run(work: Callable[[], Awaitable[int]], *, mistake: int = MISTAKE) -> None:
    """Run an async command and exit with the code it returns."""
    raise typer.Exit(or_exit(lambda: run_loop(work), mistake=mistake))


def or_exit(work: Callable[[], T], *, mistake: int = MISTAKE) -> T:
    """Do the work. A person's mistake ends the program with one line on stderr, not with a traceback."""
    fit_streams()
    try:
        result = work()
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a reader that has gone is not a mistake
        return result
    except BrokenPipeError:  # the reader of our output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except (HandrailError, Unavailable, OSError) as error:
        said = _approval.visible(f"handrail: {_told(error)}", lines=isinstance(error, Advice))
        typer.echo(said, err=True)
        raise typer.Exit(mistake) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _told(error: Exception) -> str:
    """The message in the words of the command line; of an OSError, without the number that Python puts before it."""
    if isinstance(error, WeakerThanAsked):
        return error.told("--allow-weaker")
    if isinstance(error, MissingExtra) and error.extra:
        return f"{error.problem}: {install_command(f'{EXTRA},{error.extra}')}"
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    if error.filename is not None:
        return f"{error.strerror}: {error.filename!r}"
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the current directory was removed; go to another one"
    return error.strerror


def fit_streams() -> None:
    """Make every text printable: what the encoding lacks is written as a plain sign or as a code, never an error."""
    codecs.register_error("handrail", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="ascii" if _is_ascii_locale() else stream.encoding, errors="handrail")


def _is_ascii_locale() -> bool:
    """Whether the person's locale says ASCII; Python itself writes UTF-8 there."""
    named = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next(filter(None, named), "") in ("C", "POSIX")


def _replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(PLAIN_SIGNS.get(char) or ascii(char)[1:-1] for char in text), error.end
