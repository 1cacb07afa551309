"""Run commands as plain processes of this machine: a worked example of a driver."""

from collections.abc import Mapping

from handrail import Command, Feature
from handrail_plain.commands import Commands, PlainProcess
from handrail_plain.files import Files

__all__ = ["PlainDriver", "open_plain"]
PATH = "/usr/local/bin:/usr/bin:/bin"


class PlainDriver(Files, Commands):
    """Claims what `handrail conform plain` finds kept, and nothing else."""

    name = "plain"
    features: frozenset[Feature] = frozenset(
        {"files", "atomic_write", "range_read", "exec", "stdin", "live_output", "env_isolation"}
    )

    def __init__(self, workspace: str, env: Mapping[str, str]) -> None:
        super().__init__()
        self.workspace = workspace
        self.env = {"PATH": PATH, "HOME": workspace, "LANG": "C.UTF-8", **env}

    async def start(self, command: Command) -> PlainProcess:
        self.check_open()
        return self.started(command, cwd=command.cwd or self.workspace, env={**self.env, **command.env})

    async def close(self) -> None:
        self.closed = True
        self.kill_all()


async def open_plain(*, workspace: str, env: Mapping[str, str] | None = None) -> PlainDriver:
    """What the entry point names. It takes the options of `open_sandbox` that it can honour, by name."""
    return PlainDriver(workspace, env or {})
