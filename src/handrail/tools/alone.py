"""One built-in tool by its name, made without the others: a program that makes one call pays for one tool."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.toolkit.tool import Tool
    from handrail.tools import ask_user as _ask_user
    from handrail.tools import bash as _bash
    from handrail.tools import complete as _complete
    from handrail.tools import edit as _edit
    from handrail.tools import glob as _glob
    from handrail.tools import grep as _grep
    from handrail.tools import process as _process
    from handrail.tools import read as _read
    from handrail.tools import read_artifact as _read_artifact
    from handrail.tools import run_code as _run_code
    from handrail.tools import share_artifact as _share_artifact
    from handrail.tools import todo as _todo
    from handrail.tools import write as _write
else:
    _ask_user = Lazy("handrail.tools.ask_user")
    _bash = Lazy("handrail.tools.bash")
    _complete = Lazy("handrail.tools.complete")
    _edit = Lazy("handrail.tools.edit")
    _glob = Lazy("handrail.tools.glob")
    _grep = Lazy("handrail.tools.grep")
    _process = Lazy("handrail.tools.process")
    _read = Lazy("handrail.tools.read")
    _read_artifact = Lazy("handrail.tools.read_artifact")
    _run_code = Lazy("handrail.tools.run_code")
    _share_artifact = Lazy("handrail.tools.share_artifact")
    _todo = Lazy("handrail.tools.todo")
    _write = Lazy("handrail.tools.write")

ALONE: Final[Mapping[str, Callable[[], "Tool"]]] = {
    "ask_user": lambda: _ask_user.ask_user,
    "bash": lambda: _bash.bash,
    "complete": lambda: _complete.complete,
    "edit": lambda: _edit.edit,
    "glob": lambda: _glob.glob,
    "grep": lambda: _grep.grep,
    "process": lambda: _process.process,
    "read": lambda: _read.read,
    "read_artifact": lambda: _read_artifact.read_artifact,
    "run_code": lambda: _run_code.run_code,
    "share_artifact": lambda: _share_artifact.share_artifact,
    "todo": lambda: _todo.todo,
    "write": lambda: _write.write,
}
"""The tools that never call or list another; `script`, `task` and `search_tools` need the rest."""


def tool_alone(name: str) -> "Tool | None":
    """The built-in tool of this name; None if there is none, or if it needs the others."""
    make = ALONE.get(name)
    return None if make is None else make()
