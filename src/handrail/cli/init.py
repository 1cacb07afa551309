"""`handrail init`: write a commented handrail.toml."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from handrail.cli._app import Command, Workspace, new_app, or_exit
from handrail.contract.errors import HandrailError
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.cli import _config, _settings
else:
    _config = Lazy("handrail.cli._config")
    _settings = Lazy("handrail.cli._settings")


app = new_app()


@app.command(cls=Command)
def init(
    workspace: Workspace = ".",
    own: Annotated[bool, typer.Option("--own", help="Write your own file, for every workspace.")] = False,
) -> None:
    """Write a commented handrail.toml into the workspace, or your own; one that exists stays as it is."""
    or_exit(lambda: write_file(workspace, own))


def write_file(workspace: str, own: bool) -> None:
    """Raises HandrailError if there is one."""
    path = _config.own_file() if own else os.path.join(workspace, _config.FILE)
    if own:
        _config.own_file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise HandrailError(f"{path} exists already; change it, or remove it first") from None
    except FileNotFoundError:
        raise HandrailError(
            f"--workspace {workspace}: there is no such directory; type: mkdir -p {workspace}"
        ) from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_settings.TEMPLATE)
    print(f"wrote {path}")
