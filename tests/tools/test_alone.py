"""A tool that is made alone is the same as among all of them."""

import subprocess
import sys

from handrail import builtin_tools
from handrail.tools.alone import ALONE, tool_alone

NEED_OTHERS = {"script", "search_tools", "task"}


def test_every_built_in_tool_is_made_alone_but_those_that_need_others() -> None:
    every = {tool.name: tool for tool in builtin_tools("all")}
    assert set(ALONE) == set(every) - NEED_OTHERS
    assert all(tool_alone(name) is every[name] for name in ALONE)
    assert tool_alone("script") is None


def test_a_tool_that_is_made_alone_loads_no_other() -> None:
    code = "import sys; from handrail.tools.alone import tool_alone; tool_alone('bash'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    others = {f"handrail.tools.{name}" for name in (set(ALONE) | NEED_OTHERS) - {"bash"}}
    assert set(loaded) & others == set()
    assert "handrail.tools.bash" in loaded
