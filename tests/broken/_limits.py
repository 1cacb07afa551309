"""Drivers that forget a limit; and one that keeps two limits which the jail does not have, to break them."""

import shlex
from dataclasses import replace
from typing import Any, Final

from handrail.contract.driver import Command, Driver, Process
from handrail.contract.limits import Limits
from handrail.testing.conformance.fixture import Opener
from tests.broken._guards import with_bubblewrap
from tests.broken.altered import Altered, Broken, Catalogue

LIMITS: Final[list[Broken]] = []
FORGETS_SIZES: Final = """
while "--size" in words:
    at = words.index("--size")
    del words[at:at+2]
"""
INSIDE: Final = "/tmp/work"


def _without(field: str) -> Any:
    def change(options: dict[str, Any]) -> dict[str, Any]:
        return {**options, "limits": replace(options.get("limits") or Limits(), **{field: None})}

    return change


for _field in ("processes", "cpu", "open_files", "file_size", "memory", "workspace"):
    _catalogue = Catalogue(f"limit_{_field}", base="bounded" if _field in ("memory", "workspace") else "jail")  # type: ignore[arg-type]
    _catalogue.opening(f"forgets the limit on {_field}", _without(_field))
    LIMITS.extend(_catalogue)
_tmp: Final = Catalogue("limit_tmp")
_tmp.opening("forgets the size of private directories", with_bubblewrap(FORGETS_SIZES))
LIMITS.extend(_tmp)


class _Bounded(Altered):
    """The jail with its workspace in /tmp, whose size is limited, and a limit on the address space of each process."""

    def __init__(self, driver: Driver, options: dict[str, Any]) -> None:
        super().__init__(driver, options)
        self.features = driver.features | {"limit_memory", "limit_workspace"}
        self.workspace = INSIDE
        limits: Limits | None = options.get("limits")
        self.memory = None if limits is None else limits.memory

    async def start(self, command: Command) -> Process:
        if self.memory is not None:
            line = command.line if command.line is not None else f"exec {shlex.join(command.argv or ())}"
            command = replace(command, argv=None, line=f"ulimit -v {self.memory >> 10}; {line}")
        return await super().start(replace(command, cwd=command.cwd or INSIDE))


def bounded(opener: Opener) -> Opener:
    """Open a jail that also keeps limits on memory and on the workspace."""

    async def opened(**options: Any) -> Driver:
        limits = options.get("limits") or Limits()
        given = {**options, "limits": replace(limits, tmp=limits.workspace or limits.tmp, memory=None, workspace=None)}
        driver = _Bounded(await opener(**given), options)
        await driver.make_dir(INSIDE)
        return driver

    return opened
