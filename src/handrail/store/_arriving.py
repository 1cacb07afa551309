"""The artifacts of an export, while it is loaded."""

from collections.abc import Mapping
from typing import Any

from handrail.artifacts.store import Artifacts, Incoming
from handrail.contract.errors import HandrailError


class ArrivingArtifacts:
    """The artifacts of an export: each comes as a description, then its bytes in pieces."""

    def __init__(self, artifacts: Artifacts, session: str) -> None:
        self._artifacts, self._session = artifacts, session
        self._last: Incoming | None = None

    def read(self, part: str | bytes | Mapping[str, Any]) -> None:
        if isinstance(part, Mapping):
            self.finish()
            self._last = self._artifacts.incoming(self._session, **part)
        elif self._last is None:
            raise HandrailError("the export has bytes that belong to no artifact")
        elif isinstance(part, bytes):
            self._last.add(part)

    def finish(self) -> None:
        if self._last is not None:
            self._last.finish()

    def abandon(self) -> None:
        if self._last is not None:
            self._last.abandon()
