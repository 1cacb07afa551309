"""`handrail trust`: accept what the configuration of a workspace says, as it is now."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from handrail.cli._app import Command, Workspace, new_app, or_exit
from handrail.contract.errors import HandrailError
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.cli import _config, _settings
    from handrail.policy import approval as _approval
else:
    _config = Lazy("handrail.cli._config")
    _settings = Lazy("handrail.cli._settings")
    _approval = Lazy("handrail.policy.approval")


app = new_app()


@app.command(cls=Command)
def trust(
    workspace: Workspace = ".", yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    """Accept the handrail.toml of a workspace, and [tool.handrail] of its pyproject.toml, as they are now.

    Commands can write them, so what they say is not believed before you have seen it. When one changes, it counts
    again only after another `handrail trust`; what you accepted is kept outside of the workspace.
    """
    or_exit(lambda: accept_files(workspace, yes))


def accept_files(workspace: str, yes: bool) -> None:
    """Show each file, and remember exactly what was shown."""
    found = list(_settings.to_accept(workspace))
    if not found:
        raise HandrailError(f"{workspace} has no {_config.FILE}, and no [tool.handrail] in its pyproject.toml")
    for path, part, text in found:
        if _config.is_accepted(path, part):
            print(f"{path} is accepted already")
            continue
        print(_approval.visible(f"{path}:\n{text}"), flush=True)
        if not yes and not _agrees():
            raise HandrailError(f"{path} was not accepted")
        _config.accept(path, part)
        print(f"{path} is accepted as it is now")


def _agrees() -> bool:
    if not sys.stdin.isatty():
        raise HandrailError("nobody can be asked here: look at the file, and give --yes")
    return input("Let this count in this workspace? [y/N] ").strip().lower() in ("y", "yes")
