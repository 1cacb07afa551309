"""`handrail shell`: use tools by hand, one call per line, in one session that keeps jobs, artifacts and rules."""

from functools import partial
from typing import TYPE_CHECKING

from handrail.cli._app import (
    NOT_RUN,
    AllowWeaker,
    Command,
    Driver,
    Json,
    Mode,
    Network,
    Options,
    Workspace,
    Yes,
    app,
    or_exit,
    run,
)
from handrail.cli._inside import Env, Mounts, inside
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.cli import _lines
else:
    _lines = Lazy("handrail.cli._lines")


@app.command(cls=Command)
def shell(
    workspace: Workspace = ".",
    driver: Driver = "auto",
    allow_weaker: AllowWeaker = False,
    network: Network = "none",
    mode: Mode = "contained",
    yes: Yes = False,
    json: Json = False,
    mount: Mounts = None,
    env: Env = None,
) -> None:
    """Use tools by hand, one call per line, in one session.

    Background jobs, artifacts and rules that you let it remember stay until you leave. Tab completes tools, fields
    and values; Ctrl-C stops the running call, Ctrl-D leaves. Lines may also be piped in: each is one call, its
    envelope is one line on standard output, and the exit code is that of the last.

    \b
    bash echo hi
    read path=README.md limit=20
    bash {"command": "sleep 60", "background": true}
    jobs
    """
    added = or_exit(lambda: inside(workspace, mount, env), mistake=NOT_RUN)
    options = Options(workspace, driver, allow_weaker, network, mode, yes, json, added)
    run(partial(_lines.run_shell, options), mistake=NOT_RUN)
