"""Where the machine's mounts are shared, as on every machine with systemd, a jail gets none that is made later."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broken._guards import careless_guard
from tests.drivers import liars

ROOT = Path(__file__).resolve().parents[2]
ESSENTIAL = ("test_jail.py", "test_jail_isolation.py")
"""What is shown, what is hidden, and what can be written."""
LEAVE_OUT = "not storm and not twenty_jails and not two_walls and not far_away"
"""What does not depend on mounts, and takes long."""
USER = [] if os.geteuid() == 0 else ["--map-root-user"]
SHARED = ["unshare", *USER, "--mount", "--propagation", "shared", "--"]
needs_unshare = pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is missing: nothing was shared")

LOOK = """
import asyncio, json, os, subprocess, sys
from handrail.contract.driver import Command, Mount
from handrail.drivers.jail import open_jail
from handrail.drivers.selftest import tested

async def said(driver, line):
    process = await driver.start(Command(line=line))
    text = b"".join([chunk.data async for chunk in process.output()]).decode()
    await process.wait()
    return text.split()

async def main(work, beside, bubblewrap):
    options = {"workspace": work, "mounts": [Mount(beside)], "bubblewrap": bubblewrap or None}
    before = await open_jail(**options)
    for place in (f"{work}/later", f"{beside}/later"):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
        open(f"{place}/planted", "w").close()
    writes = f"touch {beside}/later/mine 2>&- && echo wrote"
    seen = await said(before, f"ls {work}/later {beside}/later | grep planted; {writes}")
    linked = await said(before, "grep -oE 'shared:|master:|propagate_from:' /proc/self/mountinfo")
    await before.close()
    after = await tested("jail", open_jail, options)
    lost = [promise.feature for promise in after.lost]
    await after.close()
    outside = open("/proc/self/mountinfo").read()
    print(json.dumps({"shared": "shared:" in outside, "seen": seen, "linked": sorted(set(linked)), "lost": lost}))

asyncio.run(main(*sys.argv[1:]))
"""


def shared(*words: str) -> subprocess.CompletedProcess[str]:
    """Run this where every mount is shared; what it mounts is gone afterwards, and was never outside."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [*SHARED, *words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False
    )


def looked(tmp_path: Path, bubblewrap: str = "") -> str:
    for name in ("work/later", "beside/later"):
        (tmp_path / name).mkdir(parents=True)
    ran = shared(sys.executable, "-c", LOOK, str(tmp_path / "work"), str(tmp_path / "beside"), bubblewrap)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@needs_unshare
def test_a_mount_made_outside_after_the_jail_was_opened_does_not_appear_inside(tmp_path: Path) -> None:
    assert looked(tmp_path) == '{"shared": true, "seen": [], "linked": [], "lost": []}'


@needs_unshare
def test_control_a_guard_that_leaves_the_mounts_as_they_are_gets_it_and_is_found_out(tmp_path: Path) -> None:
    careless = careless_guard(("jail.c", "MS_REC | MS_PRIVATE", "MS_REC | MS_SLAVE"))
    bubblewrap = liars.with_guard(careless)
    assert looked(tmp_path, bubblewrap) == (
        '{"shared": true, "seen": ["planted", "planted", "wrote"], "linked": ["master:"], "lost": ["file_isolation"]}'
    )


@pytest.mark.timeout(3600)  # a suite of its own, in which each test has its own limit
@needs_unshare
@pytest.mark.skipif(os.geteuid() != 0, reason="who is mapped to root to share his mounts is no ordinary user any more")
def test_the_tests_of_the_jail_pass_where_mounts_are_shared() -> None:
    """Each of them; and in the same namespace, before them, the control that its mounts are really shared."""
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", LEAVE_OUT]
    tests = [f"tests/drivers/{name}" for name in ESSENTIAL]
    ran = shared("sh", "-c", 'grep -c " / .* shared:" /proc/self/mountinfo && exec "$@"', "sh", *words, *tests)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    count, _, rest = ran.stdout.partition("\n")
    assert int(count) > 0
    assert " passed" in rest
