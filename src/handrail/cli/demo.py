"""`handrail demo`: a scripted model uses live tools in a real sandbox, without a key or a network."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from handrail.cli._app import AllowWeaker, Command, Driver, Full, Yes, new_app, run
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.cli import _demo_stage
else:
    _demo_stage = Lazy("handrail.cli._demo_stage")


All = Annotated[bool, typer.Option("--all", help="Also show a timeout, a cut answer, and delegation.")]
Picture = Annotated[str | None, typer.Option(metavar="FILE", help="Also write what is shown as an SVG picture.")]


app = new_app()


@app.command(cls=Command)
def demo(
    yes: Yes = False,
    everything: All = False,
    driver: Driver = "auto",
    allow_weaker: AllowWeaker = False,
    picture: Picture = None,
    full: Full = False,
) -> None:
    """Watch a scripted model use live tools in a real sandbox. Needs no key and no network.

    Where no jail can be had, it says so, and goes on without isolation.
    """
    run(partial(_demo_stage.run_demo, yes, everything, driver, allow_weaker, picture, full))
