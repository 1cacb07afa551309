"""The tools that come with Handrail, in three selections."""

from typing import Final, Literal, get_args

from handrail.contract.errors import HandrailError
from handrail.toolkit.tool import Tool
from handrail.tools.ask_user import ask_user
from handrail.tools.bash import bash
from handrail.tools.complete import complete
from handrail.tools.edit import edit
from handrail.tools.glob import glob
from handrail.tools.grep import grep
from handrail.tools.process import process
from handrail.tools.read import read
from handrail.tools.read_artifact import read_artifact
from handrail.tools.run_code import run_code
from handrail.tools.script import script
from handrail.tools.search_tools import search_tools
from handrail.tools.share_artifact import share_artifact
from handrail.tools.task import task
from handrail.tools.todo import todo
from handrail.tools.write import write

Profile = Literal["coding", "read_only", "all"]
READ_ONLY: Final = (glob, grep, read, read_artifact)
CODING: Final = (*READ_ONLY, bash, edit, process, run_code, share_artifact, todo, write)
ALL: Final = (*CODING, ask_user, complete, script, search_tools, task)


def builtin_tools(profile: Profile = "coding") -> list[Tool]:
    """A selection of the built-in tools: `read_only` changes nothing; `coding` also writes and runs commands.

    `all` also asks the user, finds deferred tools, starts tasks, runs scripts that call tools, and ends work.

    Example:
        ```python
        print([each.name for each in builtin_tools("read_only")])
        #> ['glob', 'grep', 'read', 'read_artifact']
        ```
    """
    chosen = {"coding": CODING, "read_only": READ_ONLY, "all": ALL}.get(profile)
    if chosen is None:
        raise HandrailError(f"there is no profile {profile!r}; there are {', '.join(get_args(Profile))}")
    return list(chosen)
