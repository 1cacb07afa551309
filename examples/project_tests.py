"""A sandbox on a project: its tests run in the jail, a change makes them pass, and nothing outside can be touched."""

import tempfile
from pathlib import Path

from handrail import Session, builtin_tools, open_sandbox, run_sync

CODE = "def add(a, b):\n    return a - b\n"
TEST = """
import unittest, calc

class TestAdd(unittest.TestCase):
    def test_add(self):
        self.assertEqual(calc.add(2, 3), 5)
"""


async def main(project: str) -> None:
    async with open_sandbox(workspace=project) as sandbox, Session(builtin_tools(), sandbox=sandbox) as session:
        await test(session)
        found = await session.call("grep", {"pattern": "a - b"})
        match = found.value["matches"][0]
        print("found:", match["path"], "line", match["line"])
        change = {"path": match["path"], "edits": [{"old": "a - b", "new": "a + b"}]}
        print((await session.call("edit", change)).value["diff"].splitlines()[-1])
        await test(session)
        outside = await session.call("bash", {"command": "touch /etc/escaped"})
        print("outside:", outside.value["stderr"].strip())


async def test(session: Session) -> None:
    ran = await session.call("bash", {"command": "python3 -B -m unittest -q", "timeout": 60})
    print("tests:", "passed" if ran.value["exit_code"] == 0 else ran.value["stderr"].split("\n\n")[0].splitlines()[-1])


with tempfile.TemporaryDirectory() as directory:  # your own project's directory goes here
    Path(directory, "calc.py").write_text(CODE)
    Path(directory, "test_calc.py").write_text(TEST)
    run_sync(main(directory))
# > tests: AssertionError: -1 != 5
# > found: calc.py line 2
# > +    return a + b
# > tests: passed
# > outside: touch: cannot touch '/etc/escaped': Read-only file system
