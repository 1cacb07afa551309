"""Elsewhere than Linux everything works on the driver host, and what does not hold there is said."""

import json
import os
import re
import shutil
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from tests.drivers.elsewhere import Elsewhere


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    return Elsewhere(tmp_path_factory.mktemp("elsewhere"))


def test_control_it_is_another_system_there(elsewhere: Elsewhere) -> None:
    program = """
import os, signal, sys, handrail
from handrail.drivers.guard.build import PROGRAM
print(sys.platform, hasattr(os, "O_PATH"), hasattr(os, "memfd_create"), hasattr(signal, "pidfd_send_signal"))
print(os.listdir("/proc"), PROGRAM.exists(), os.path.exists(handrail.__file__))
"""
    assert elsewhere.says(program).splitlines() == ["darwin False False False", "[] False True"]


MODULES = """
import handrail.adapters, handrail.cli, handrail.models, handrail.otel  # what needs extras is loaded if it was before
from handrail.lazy import load_all
load_all()
print("all")
"""
OPENS = """
import anyio
from handrail import open_sandbox

async def main():
    for name, allow in (("jail", True), ("jail", False), ("host", False), ("auto", False), ("auto", True)):
        try:
            async with open_sandbox(name, allow_weaker=allow) as sandbox:
                print(name, allow, "opened", sandbox.report.driver, sandbox.report.notes)
        except Exception as error:
            print(name, allow, type(error).__name__, error)

anyio.run(main)
"""


@pytest.fixture(scope="module")
def said(elsewhere: Elsewhere) -> dict[str, str]:
    """What each of these programs prints, run in one interpreter, because opening a sandbox loads everything."""
    programs = [MODULES, OPENS, REPORTS, SESSION]
    together = f"for program in {programs!r}:\n    exec(program, {{'__name__': '__main__'}})\n    print(end=chr(12))"
    return dict(zip(programs, elsewhere.says(together).split("\f"), strict=False))


def test_every_module_can_be_imported_there(said: dict[str, str]) -> None:
    assert said[MODULES] == "all\n"


def test_what_cannot_be_opened_there_says_what_can(said: dict[str, str]) -> None:
    jail, _, host, auto, weaker = said[OPENS].splitlines()
    assert (
        jail == "jail True HandrailError the driver 'jail' cannot be used here: it needs Linux; there are host, memory"
    )
    assert host.startswith("host False WeakerThanAsked")
    assert auto.startswith("auto False WeakerThanAsked no jail can be made here: it needs Linux.")
    assert "allow_weaker=True" in auto
    assert weaker.startswith("auto True opened host")
    assert "Used because no jail can be made here: it needs Linux" in weaker
    assert "swapped" in weaker


REPORTS = """
import anyio, json
from handrail import open_sandbox

async def main():
    async with open_sandbox("host", allow_weaker=True) as sandbox:
        print(json.dumps({it.feature: [it.standing, it.reason] for it in sandbox.report.guarantees}))

anyio.run(main)
"""
ENFORCED = {
    "files", "atomic_write", "range_read", "exec", "stdin", "live_output", "env_isolation", "limit_cpu",
    "limit_open_files", "limit_file_size",
}  # fmt: skip


def test_the_report_says_of_each_promise_whether_it_holds_and_why_not(said: dict[str, str]) -> None:
    guarantees = json.loads(said[REPORTS])
    assert {feature for feature, (standing, _) in guarantees.items() if standing == "enforced"} == ENFORCED
    assert guarantees["tree_kill"][0] == "advisory"
    assert all(reason for standing, reason in guarantees.values() if standing != "enforced")


DOCTOR = """
import sys
from handrail.cli import main
for options in (["--json"], []):
    sys.argv = ["handrail", "doctor", *options]
    try:
        main()
    except SystemExit:
        print(end="" if not options else "\\f")
"""


def test_the_doctor_says_there_what_holds(elsewhere: Elsewhere) -> None:
    data, _, told = elsewhere.says(DOCTOR).partition("\f")
    found = json.loads(data)
    by_name = {it["name"]: it for it in found["drivers"]}
    assert found["auto"] is None
    assert (by_name["jail"]["works"], by_name["jail"]["problem"]) == (False, "it needs Linux")
    assert by_name["host"]["works"]
    assert "jail cannot run here" in told
    assert "setsid" in told
    assert "a link that is swapped meanwhile" in told


SESSION = """
import anyio, asyncio, json, os
from handrail import Session, builtin_tools, open_sandbox, Policy, run_sync

def show(name, result):
    print(json.dumps([name, result.ok, result.to_envelope(name)]))
    return result

async def main():
    async with open_sandbox("host", allow_weaker=True) as sandbox:
        async with Session(builtin_tools(), sandbox=sandbox, policy=Policy(mode="open")) as session:
            async def call(name, **arguments):
                return show(name, await session.call(name, arguments))
            await call("write", path="src/a.py", content="one\\ntwo\\n")
            await call("edit", path="src/a.py", edits=[{"old": "two", "new": "three"}])
            await call("read", path="src/a.py")
            await call("grep", pattern="thre+")
            await call("glob", pattern="**/*.py")
            await call("bash", command="cat src/a.py | wc -l; echo $TMPDIR; exit 3")
            await call("bash", command="echo before; sleep 1000 & sleep 1000", timeout=1)
            await call("run_code", code="print(6 * 7)", language="python")
            job = await call("bash", command="echo up; sleep 1000", background=True)
            await call("process", action="wait", job=job.value["job"], timeout=1)
            await call("process", action="kill", job=job.value["job"])
            shared = await call("share_artifact", path="src/a.py")
            await call("read_artifact", ref=shared.value["artifact"].ref)
            with anyio.move_on_after(0.3) as scope:
                await session.call("bash", {"command": "sleep 1000"})
            print(json.dumps(["cancelled", scope.cancelled_caught, session.trace[-1].data.get("kind")]))

anyio.run(main)
"""


def test_a_session_with_the_built_in_tools_works_there(elsewhere: Elsewhere, said: dict[str, str]) -> None:
    lines = [json.loads(line) for line in said[SESSION].splitlines()]
    assert [name for name, ok, _ in lines if not ok] == ["bash"], "only the one with a timeout"
    by_order = [envelope for _, _, envelope in lines]
    assert "three" in json.dumps(by_order[2])
    assert "src/a.py" in json.dumps(by_order[3])
    assert by_order[5]["result"]["exit_code"] == 3
    assert (by_order[6]["kind"], by_order[6]["data"]["exit_code"]) == ("timeout", 124)
    assert "before" in by_order[6]["data"]["stdout"]
    assert "42" in json.dumps(by_order[7])
    assert lines[-1] == ["cancelled", True, "cancelled"]
    assert [name for name in os.listdir(elsewhere.tmp) if name.startswith("handrail-")] == []


TOOLS = """
import os, subprocess, time
from handrail import tool

@tool(isolate=True)
def works(number: int) -> list[int]:
    "Work."
    return [number, os.getpid()]

@tool(isolate=True, timeout=3)
def hangs(note: str) -> str:
    "Hang."
    child = subprocess.Popen(["sleep", "1000"])
    with open(note, "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    time.sleep(1000)

@tool(isolate=True)
def forks_and_dies() -> str:
    "Leave a child that has the way of the answer open."
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(7)
"""
ISOLATED = """
import anyio, os, sys
from handrail import Session
import elsewhere_tools as tools

def lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

async def main(note):
    async with Session([tools.works, tools.hangs, tools.forks_and_dies]) as session:
        value = (await session.call("works", {"number": 5})).value
        print(value[0], value[1] != os.getpid())
        print((await session.call("hangs", {"note": note})).kind)
        died = await session.call("forks_and_dies", {})
        print(died.kind, "exit code 7" in died.message)
    pids = [int(word) for word in open(note).read().split()]
    with anyio.fail_after(60):
        while any(map(lives, pids)):
            await anyio.sleep(0.01)
    print("dead", len(pids))

anyio.run(main, sys.argv[1])
"""


def test_an_isolated_tool_runs_in_a_process_group_there(elsewhere: Elsewhere, tmp_path: Path) -> None:
    (tmp_path / "elsewhere_tools.py").write_text(TOOLS)
    (tmp_path / "program.py").write_text(ISOLATED)
    ran = elsewhere.run(str(tmp_path / "program.py"), str(tmp_path / "note"))
    assert ran.stdout.splitlines() == ["5 True", "timeout", "execution_error True", "dead 2"], ran.stderr


SWEEPS = """
import os, sys
from handrail.drivers.scratch import make_scratch, remove_scratch, sweep_scratch
if sys.argv[1:] == ["dies"]:
    path = make_scratch()
    os.mkdir(path + "/locked")
    open(path + "/locked/file", "w").close()
    os.chmod(path + "/locked", 0)
    print(path, flush=True)
    os.kill(os.getpid(), 9)
mine = make_scratch()
print(os.path.isdir(mine), [name for name in os.listdir(os.environ["TMPDIR"]) if name != os.path.basename(mine)])
sweep_scratch()
print(os.path.isdir(mine))
remove_scratch(mine)
print(os.path.exists(mine))
"""


def test_what_a_dead_process_left_is_swept_there_and_what_a_living_one_has_stays(elsewhere: Elsewhere) -> None:
    left = elsewhere.run("-c", SWEEPS, "dies").stdout.strip()
    assert os.path.isdir(left), "the control: it was left"
    assert elsewhere.says(SWEEPS).splitlines() == ["True []", "True", "False"]
    assert not os.path.exists(left)


def test_a_wheel_is_built_there_without_a_compiler_and_carries_no_program(elsewhere: Elsewhere, tmp_path: Path) -> None:
    project = Path(__file__).parents[2]
    for name in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py"):
        shutil.copy(project / name, tmp_path)
    guard_is_absent = shutil.ignore_patterns("__pycache__", "guard")
    shutil.copytree(project / "src", tmp_path / "src", ignore=guard_is_absent)
    shutil.copytree(
        project / "src/handrail/drivers/guard", tmp_path / "src/handrail/drivers/guard", ignore=guard_is_absent
    )
    ran = elsewhere.run("-m", "hatchling", "build", "-t", "wheel", "-d", "out", cwd=str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (wheel,) = (tmp_path / "out").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "handrail/drivers/posix/_starter.py" in names
    assert "handrail/drivers/guard/guard" not in names
    hook = "from hatch_build import GuardBuildHook; print(GuardBuildHook.dependencies(None))"
    assert elsewhere.run("-c", hook, cwd=str(tmp_path)).stdout == "[]\n"


KIT = """
import anyio, json
from handrail.drivers.posix import open_posix
from handrail.testing.conformance import CHECKS, conform
from tests.testing.test_conformance import SLOW

async def main():
    names = [it.name for it in CHECKS if it.name not in SLOW and it.feature != "tree_kill"]
    verdict = await conform(open_posix, only=names)
    found = verdict.guarantees.items()
    rows = [(f, p.standing, it.check.name, it.kept, it.problem) for f, p in found for it in p.checks]
    print(json.dumps(rows))

anyio.run(main)
"""


def test_the_driver_keeps_there_every_promise_that_it_claims(elsewhere: Elsewhere) -> None:
    """The kit, on a machine without what only Linux has."""
    rows = json.loads(elsewhere.says(KIT))
    assert {name: problem for _, standing, name, kept, problem in rows if standing == "broken" and not kept} == {}
    kept = Counter(feature for feature, standing, _, kept, _ in rows if standing == "kept" and kept)
    assert set(kept) == ENFORCED - {"limit_cpu"}
    assert kept.total() > 140, "the control: they were made"


def test_the_driver_passes_there_what_the_kit_does_not_try(elsewhere: Elsewhere) -> None:
    here = Path(__file__).parent
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={here.parents[1]}"]
    unseen = "descriptor or flood or hundred_thousand or 256"  # these look into /proc, or take long
    files = [str(here / name) for name in ("test_files.py", "test_commands.py")]
    ran = elsewhere.run(*words, *files, "-k", f"posix and not ({unseen})", cwd=str(here.parents[1]), first="trio")
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    passed = re.search(r"(\d+) passed|^(\.+)", ran.stdout, re.MULTILINE)
    assert passed, "the control: they were run"
    assert int(passed[1] or len(passed[2])) > 30
