"""The store of artifacts: named by content, checked when read, each session in its own scope."""

from types import TracebackType
from typing import Final

from handrail.artifacts.index import Index
from handrail.artifacts.scope import Scope
from handrail.contract.errors import HandrailError

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


def scope_for(session: str, given: "Artifacts | Scope | None") -> "tuple[Scope, Artifacts | None]":
    """What a session sees: the given scope, the given store's scope of it, or that of a new store, which comes too."""
    if isinstance(given, Scope) and not isinstance(given, Artifacts):
        return given, None
    if given is None:
        own = Artifacts()
        return own.scope(session), own
    if not isinstance(given, Artifacts):
        raise HandrailError(f"artifacts is an Artifacts or one of its scopes, not {type(given).__name__}")
    return given.scope(session), None
