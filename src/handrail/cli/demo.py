"""`handrail demo`: a scripted model uses live tools in a real sandbox, without a key or a network."""

from functools import partial
from typing import TYPE_CHECKING

from handrail.cli._app import AllowWeaker, Command, Driver, Yes, app, run
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.cli import _demo_stage
else:
    _demo_stage = Lazy("handrail.cli._demo_stage")


@app.command(cls=Command)
def demo(yes: Yes = False, driver: Driver = "auto", allow_weaker: AllowWeaker = False) -> None:
    """Watch a scripted model use live tools in a real sandbox. Needs no key and no network."""
    run(partial(_demo_stage.run_demo, yes, driver, allow_weaker))
