"""`handrail shell`: use tools by hand, one call per line, in one session that keeps jobs, artifacts and rules."""

from functools import partial
from typing import TYPE_CHECKING

from handrail.cli._app import NOT_RUN, Command, Options, new_app, run, with_options
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.cli import _shell_loop
else:
    _shell_loop = Lazy("handrail.cli._shell_loop")


app = new_app()


@app.command(cls=Command)
@with_options
def shell(*, options: Options) -> None:
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
    run(partial(_shell_loop.run_shell, options), mistake=NOT_RUN)
