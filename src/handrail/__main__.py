"""`python -m handrail` is the command `handrail`, and like it imports nothing from the current directory."""

import sys
from typing import TYPE_CHECKING

from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail import cli as _cli
else:
    _cli = Lazy("handrail.cli")

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current directory is the workspace, where commands write
    _cli.main()
