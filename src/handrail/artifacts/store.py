"""The store of artifacts: named by content, checked when read, each session in its own scope."""

from types import TracebackType
from typing import Final

from handrail.artifacts.index import Index
from handrail.artifacts.scope import Scope

_OWNER: Final = ""


class Artifacts(Scope):
    """All artifacts of a directory, as its owner sees them; `scope` gives a session its own view.

    Without a directory they are kept in a private one, which is made when it is needed and removed by `close`.
    """

    def __init__(self, directory: str | None = None) -> None:
        super().__init__(Index(directory), _OWNER, sees_all=True)

    def scope(self, session_id: str, parent: str | None = None) -> Scope:
        """What this session may see: its own, its ancestors', its descendants', and what was shared with it."""
        if not session_id:
            raise ValueError("A session's id is not empty.")
        self._index.enter(session_id, parent)
        return Scope(self._index, session_id)

    def close(self) -> None:
        """Give a private directory back; a given one stays as it is. May be called twice."""
        self._index.close()

    def __enter__(self) -> "Artifacts":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
