"""`handrail conform` says promise by promise what a driver keeps, and fails for broken claims alone."""

import json
import subprocess
from pathlib import Path

import pytest

from handrail.testing.conformance import CHECKS
from tests.cli.terminal import plain, terminal

BROKEN = (
    f"""
import sys
sys.path.append({str(Path(__file__).parents[2])!r})  # the broken drivers are in tests/, which is not installed
"""
    """
import time
import anyio.to_thread
from handrail import HandrailError, Unavailable
from handrail.drivers.memory import MemoryDriver, open_memory
from tests.broken import BROKEN
by_name = {it.name: it for it in BROKEN}
open_broken = by_name["writes lines as on Unix"].over(open_memory)
answer = 42

async def open_modest(**options):
    driver = await open_memory(**options)
    driver.features = driver.features - {"range_read"}
    return driver

async def open_modest_and_broken(**options):
    driver = await open_broken(**options)
    driver.features = driver.features - {"files"}
    return driver

async def open_and_raise(*, workspace):
    raise LookupError("MY_TOKEN is not set")

def open_plainly(*, workspace):
    return MemoryDriver(workspace=workspace)

async def open_none(*, workspace):
    pass

async def open_text(*, workspace):
    return workspace

async def open_anywhere():
    return MemoryDriver()

async def open_unsocketed(*, workspace):
    raise FileNotFoundError(2, "No such file or directory", "/run/service.sock")

async def open_refusing(*, workspace):
    raise HandrailError("set MY_TOKEN first")

async def open_nothing(**options):
    raise Unavailable("the service does not answer")

class Hungry(MemoryDriver):
    async def read(self, path, *, start=0, length=None):
        bytearray(3 << 30)  # which the kernel gives only when it is used
        return await super().read(path, start=start, length=length)

async def open_hungry(*, workspace):
    return Hungry(workspace=workspace)

class Waits(MemoryDriver):
    async def read(self, path, *, start=0, length=None):
        return await anyio.to_thread.run_sync(time.sleep, 1000)

async def open_waiting(*, workspace):
    return Waits(workspace=workspace)

class Blocks(MemoryDriver):
    async def read(self, path, *, start=0, length=None):
        time.sleep(1000)

async def open_blocking(*, workspace):
    return Blocks(workspace=workspace)
"""
)


def conform(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return plain("conform", *words, cwd=cwd)


def test_a_driver_that_keeps_what_it_claims_is_told_so(tmp_path: Path) -> None:
    ran = conform("memory", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "files              claimed and kept" in ran.stdout
    assert "exec               not claimed" in ran.stdout
    assert "no claimed promise is broken; " in ran.stdout
    assert f"{len(CHECKS) // 10 * 10} of {len(CHECKS)} checks, 0 break a claim" in ran.stderr, "progress"


def test_a_broken_claim_is_named_with_its_check_and_what_was_seen(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    ran = conform("mine:open_broken", "--only", "files", cwd=tmp_path)
    assert ran.returncode == 1
    assert "files              claimed and BROKEN" in ran.stdout
    assert "    what is written is read byte by byte\n        write, then read, all byte values: expected" in ran.stdout
    assert "1 claimed promises are broken" in ran.stdout


def test_a_promise_that_is_kept_without_being_claimed_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    ran = conform("mine:open_modest", "--only", "range_read", cwd=tmp_path)
    assert ran.returncode == 0
    assert "not claimed, but kept" in ran.stdout
    assert "it may claim it" in ran.stdout


def test_json_has_every_check_with_its_outcome(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    ran = conform("mine:open_broken", "--json", "--only", "files", cwd=tmp_path)
    assert ran.returncode == 1
    data = json.loads(ran.stdout)
    files = data["promises"]["files"]
    assert files["standing"] == "broken"
    outcomes = {check["name"]: check["outcome"] for check in files["checks"]}
    assert outcomes["what is written is read byte by byte"] == "broken"
    assert outcomes["an empty file is read as empty"] == "kept"
    assert "not_tried" in outcomes.values()
    assert data["seconds"] > 0


def test_mistakes_are_one_line_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    (tmp_path / "wrong.py").write_text("def open_it(:")
    for words, said in (
        (["jial"], "there is no driver 'jial'; did you mean 'jail'"),
        (["nowhere:open_it"], "nowhere:open_it cannot be loaded"),
        (["wrong:open_it"], "wrong:open_it cannot be loaded: SyntaxError: "),
        (["mine:"], "'mine:' is not module:opener"),
        (["mine:open_gone"], "mine:open_gone cannot be loaded: AttributeError: "),
        (["mine:answer"], "mine:answer is not an async function"),
        (["mine:open_plainly"], "mine:open_plainly cannot be tried here: The opener is not an async function"),
        (["mine:open_none"], "mine:open_none cannot be tried here: The opener returned None"),
        (["mine:open_text"], "mine:open_text cannot be tried here: str is not a Driver: missing start, "),
        (["mine:open_anywhere"], "mine:open_anywhere cannot be tried here: The opener does not take workspace by name"),
        (["mine:open_and_raise"], "mine:open_and_raise cannot be tried here: LookupError: MY_TOKEN is not set (/"),
        (["mine:open_refusing"], "mine:open_refusing cannot be tried here: it cannot be opened with workspace: set "),
        (["mine:open_unsocketed"], "cannot be tried here: [Errno 2] No such file or directory: '/run/service.sock'"),
        (["memory", "--only", "tree_kil"], "no promise and no check called 'tree_kil'"),
    ):
        ran = conform(*words, cwd=tmp_path)
        assert ran.returncode == 2, words
        assert said.split("; did")[0] in ran.stderr
        assert ran.stderr.count("\n") == 1, ran.stderr


def test_a_terminal_sees_one_line_of_progress(tmp_path: Path) -> None:
    with terminal("conform", "memory", "--only", "range_read", cwd=tmp_path) as person:
        assert person.end() == 0
        assert "claimed and kept" in person.shown
        assert person.shown.count("11 of 11 checks, 0 break a claim") == 1
        assert "10 of 11 checks" not in person.shown
        assert "10 of 11 checks" in person.seen


def test_a_promise_that_was_asked_for_names_what_it_lacks_though_it_is_not_claimed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    ran = conform("mine:open_modest_and_broken", "--only", "files", cwd=tmp_path)
    assert ran.returncode == 0
    assert "files              not claimed" in ran.stdout
    assert "    what is written is read byte by byte\n        write, then read, all byte values: expected" in ran.stdout


def test_a_driver_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    ran = conform("mine:open_nothing", cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr == "handrail: mine:open_nothing cannot be tried here: the service does not answer\n"


def test_a_driver_that_reads_without_end_fails_its_check_and_does_not_fill_the_machine(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    checks = ("an empty file is read as empty", "a list is sorted and complete")
    ran = conform("mine:open_hungry", *(word for name in checks for word in ("--only", name)), cwd=tmp_path)
    assert ran.returncode == 1, ran.stderr
    assert "1 of 2 checks" in ran.stdout
    assert "    an empty file is read as empty\n        MemoryError: " in ran.stdout


@pytest.mark.long
def test_a_driver_that_waits_for_ever_in_a_thread_fails_its_check_and_the_kit_ends(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    checks = ("an empty file is read as empty", "a list is sorted and complete")
    ran = conform("mine:open_waiting", *(word for name in checks for word in ("--only", name)), cwd=tmp_path)
    assert ran.returncode == 1, ran.stderr
    assert "1 of 2 checks" in ran.stdout
    assert "    an empty file is read as empty\n        TimeoutError: no answer within 30 s" in ran.stdout


def test_a_driver_that_blocks_the_event_loop_is_told_so_and_the_kit_goes_on(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    checks = ("an empty file is read as empty", "a list is sorted and complete")
    ran = conform("mine:open_blocking", *(word for name in checks for word in ("--only", name)), cwd=tmp_path)
    assert ran.returncode == 1
    assert "1 of 2 checks" in ran.stdout
    assert "the driver blocked the event loop for 5 s; run what waits in a thread" in ran.stdout
