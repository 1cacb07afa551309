"""A script that lies in its own workspace loads no module that a command planted there."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from venv import EnvBuilder

import pytest

from handrail.drivers.guard.build import build, stale

SCRIPT = '''
import os
import sys
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import anyio
from pydantic import BaseModel, Field

import handrail
from handrail import *

HERE = os.path.dirname(os.path.abspath(__file__))
PLANT = """
import sys
for name in sys.stdin.read().split():
    open(name + ".py", "w").write("open(%r, 'a').write(__name__ + ' ')" % (sys.argv[1] + "/MARK"))
"""


class Colour(Enum):
    RED = "red"


class Item(BaseModel):
    name: str
    when: datetime | None = None
    count: Annotated[int, Field(ge=1)] = 1


async def use_everything(sandbox, driver):
    from_models = handrail.testing if hasattr(handrail, "testing") else sys.modules["handrail.testing"]

    @tool(risk="critical", effects=["writes"])
    def many(items: list[Item], colour: Colour, on: date, by: Decimal, id: UUID, at: Path, span: timedelta,
             word: Literal["a", "b"] = "a", more: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Take all kinds of things.

        Args:
            items: Things.
        """
        return {"n": len(items)}

    @tool
    def raises() -> None:
        raise RuntimeError("as told")

    @tool(timeout=0.2)
    async def slow() -> None:
        await anyio.sleep(60)

    seen = []
    model = from_models.ScriptedModel([
        from_models.Turn(calls=(Call("1", "bash", {"command": "true"}), Call("2", "nothing", "{}"))), "done",
    ])
    tools = [many, raises, slow, *builtin_tools("all")]
    policy = Policy(mode="ask", allow=["bash(echo *)"], deny=["read(./secret/**)"])
    async with Session(tools, sandbox=sandbox, policy=policy, approver=from_models.approve_all,
                       readers=[lambda event: seen.append(event)]) as session:
        for provider in ("openai", "openai-responses", "anthropic", "gemini", "mcp"):
            session.schemas(provider)
        good = {"items": [{"name": "x"}], "colour": "red", "on": "2024-01-02", "by": "1.5",
                "id": "12345678-1234-5678-1234-567812345678", "at": "x", "span": "PT1S"}
        calls = [
            ("many", good), ("many", {**good, "items": "[{'name': 'x', 'when': '2024-01-02T03:04:05Z'}]"}),
            ("many", '```json\\n{"items": [{"nam": 1}]}\\n```'), ("many", '{"items": [{"name"'), ("mny", "{}"),
            ("raises", "{}"), ("slow", "{}"),
            ("bash", {"command": "yes | head -c 3000000; ls /nowhere 2>/dev/null | cat"}),
            ("bash", {"command": "echo x; sleep 60", "timeout": 1}),
            ("bash", {"command": "sleep 60", "background": True}), ("process", {"action": "list"}),
            ("process", {"action": "kill", "job": "job-1"}), ("process", {"action": "output", "job": "job-1"}),
            ("run_code", {"code": "print(1)"}), ("run_code", {"code": "x", "language": "cobol"}),
            ("read", {"path": "script.py"}), ("read", {"path": "scrip.py"}), ("read", {"path": "secret/x"}),
            ("write", {"path": "new.txt", "content": "a\\nb\\n"}),
            ("edit", {"path": "new.txt", "edits": [{"old": "a", "new": "c"}]}),
            ("edit", {"path": "new.txt", "edits": [{"old": "nothing like it", "new": "c"}]}),
            ("glob", {"pattern": "**/*.{py,txt}"}), ("grep", {"pattern": "im[p]ort", "context": 1}),
            ("grep", {"pattern": "("}), ("share_artifact", {"path": "new.txt"}),
            ("share_artifact", {"path": "gone.png"}), ("read_artifact", {"ref": "a_0"}),
            ("todo", {"items": [{"content": "x", "status": "pending"}]}), ("ask_user", {"question": "Which?"}),
        ]
        for name, arguments in calls:
            result = await session.call(name, arguments)
            read_envelope(__import__("json").dumps(result.to_envelope(name)))
        kinds = {event.data["tool"]: event.data["kind"] for event in session.trace if event.type == "call_ended"}
        assert (kinds["raises"], kinds["glob"], kinds["bash"]) == ("execution_error", None, None), kinds
        agent = Agent(model, session=session)
        assert (await agent.run("Go")).reason == "done"
        with anyio.move_on_after(0.2):
            await session.call("bash", {"command": "sleep 60"})
    try:
        async with open_sandbox(driver, workspace=HERE, allow_weaker=True) as second:
            await second.run("true")
        await sandbox.run("true", cwd="gone")
    except FileNotFoundError:
        pass
    try:
        Session([lambda n: n])
    except HandrailError as error:
        import_me = repr(error)
    import warnings
    import traceback
    import logging
    logging.getLogger("mine").warning("to the error stream")


async def main(driver, loads):
    async with open_sandbox(driver, workspace=HERE, allow_weaker=True) as sandbox:
        before = set(sys.modules)
        others = {line.strip() for line in open(sys.argv[2]).read().split()}
        names = sorted((set(sys.stdlib_module_names) | others) - {name.split(".")[0] for name in sys.modules})
        done = await sandbox.run([sys.executable, "-I", "-c", PLANT, HERE], stdin="\\n".join(names))
        assert done.exit_code == 0, done.stderr
        assert len(names) > 50, "the control: there is much to plant"
        if loads:
            import antigravity, this  # what the program itself loads late
        else:
            await use_everything(sandbox, driver)
        print("NOTES", *sandbox.report.notes)
        print("LATE", *sorted(set(sys.modules) - before))


import warnings, traceback, logging
anyio.run(main, sys.argv[1], len(sys.argv) > 3)
'''


@pytest.fixture(scope="module", autouse=True)
def _guard() -> None:
    if stale():
        build()


def run(home: Path, driver: str, *more: str) -> dict[str, list[str]]:
    """What the script said: its report's notes, which modules were loaded late, and which of those were planted."""
    home.mkdir()
    (home / "script.py").write_text(SCRIPT)
    site = Path(sysconfig.get_paths()["purelib"])
    names = {path.name.partition(".")[0] for path in site.iterdir() if path.suffix in ("", ".py", ".so")}
    (home.parent / "names").write_text("\n".join(name for name in names if name.isidentifier()))
    command = [sys.executable, home / "script.py", driver, home.parent / "names", *more]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=home)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = {line.split()[0]: line.split()[1:] for line in ran.stdout.splitlines() if line.startswith(("NOTES", "LATE"))}
    mark = home / "MARK"
    return {**said, "PLANTED": mark.read_text().split() if mark.exists() else []}


@pytest.mark.parametrize("driver", ["jail", "host"])
def test_nothing_is_loaded_after_the_first_command_and_the_report_says_why(driver: str, tmp_path: Path) -> None:
    said = run(tmp_path / "work", driver)
    assert said["PLANTED"] == []
    assert said["LATE"] == []
    assert "All of Handrail was loaded before the first command" in " ".join(said["NOTES"])
    assert str((tmp_path / "work").resolve()) in " ".join(said["NOTES"])


def test_the_planted_modules_are_loaded_where_the_program_itself_comes_late(tmp_path: Path) -> None:
    assert run(tmp_path / "work", "jail", "late")["PLANTED"] == ["antigravity", "this"]


APART = """
import sys
import anyio
from handrail import open_sandbox

async def main():
    async with open_sandbox("jail", workspace=sys.argv[1]) as sandbox:
        print("handrail.tools.bash" in sys.modules, *sandbox.report.notes)

anyio.run(main)
"""


@pytest.mark.parametrize(
    ("script", "environment", "exposed"),
    [
        ("apart", None, False),
        ("work/inside", None, True),
        ("apart", "work/.venv", False),  # it is read-only inside, and nothing above it can be moved
        ("apart", "work/deep/.venv", True),
    ],
)
def test_only_what_commands_can_reach_is_loaded_before_it_is_needed(
    tmp_path: Path, script: str, environment: str | None, exposed: bool
) -> None:
    for place in ("apart", "work/inside"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / script / "script.py").write_text(APART)
    python = sys.executable
    if environment is not None:
        EnvBuilder(symlinks=True).create(tmp_path / environment)
        python = str(tmp_path / environment / "bin" / "python")
    packages = os.pathsep.join(path for path in sys.path if "packages" in path or "src" in path)
    ran = subprocess.run(
        [python, tmp_path / script / "script.py", tmp_path / "work"], capture_output=True, text=True, timeout=120,
        check=True, env={"PYTHONPATH": packages},
    )  # fmt: skip
    assert ran.stdout.startswith(str(exposed))
    assert ("All of Handrail was loaded" in ran.stdout) == exposed
