"""A temporary directory goes with its sandbox, and at the next start when its owner died."""

import os
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from handrail.drivers.scratch import make_scratch, remove_scratch, sweep_scratch
from tests.drivers.conftest import Open

DIES = """
import os, signal, sys
from handrail.drivers.scratch import make_scratch
path = make_scratch()
os.mkdir(f"{path}/locked")
open(f"{path}/locked/file", "w").close()
os.chmod(f"{path}/locked", 0)
print(path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_dead_process_left_goes_at_the_next_start_and_what_a_living_one_has_stays() -> None:
    mine = make_scratch()
    ran = subprocess.run(
        [sys.executable, "-c", DIES], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": tempfile.gettempdir()},
    )  # fmt: skip
    left = Path(ran.stdout.strip())
    assert left.is_dir(), "the control: it was left"
    sweep_scratch()
    assert not left.exists()
    assert Path(mine).is_dir()
    remove_scratch(mine)
    assert not Path(mine).exists()


def test_a_name_that_only_looks_like_one_of_ours_stays(tmp_path: Path) -> None:
    kept = ["handrail-x-1-a", "handrail", f"handrail-{os.getpid()}-a", "other-1-1-a"]
    for name in kept:
        (tmp_path / name).mkdir()
    (tmp_path / "handrail-1-0-file").touch()
    (tmp_path / "handrail-999999999-5-dead").mkdir()
    assert sweep_scratch(str(tmp_path)) == 1
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "handrail-1-0-file"])


@pytest.mark.anyio
async def test_a_host_sandbox_takes_its_directory_with_it(opened: Open) -> None:
    before = ours()
    driver = await opened("host")
    assert len(ours()) == len(before) + 1, "the control: it made one"
    await driver.close()
    assert ours() == before


def ours() -> set[str]:
    """The directories of this process."""
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith(f"handrail-{os.getpid()}-")}


def test_what_is_removed_never_leads_outside_also_when_a_link_is_swapped_in(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    for path in (outside, outside / "deep"):
        path.chmod(0o755)
    top = tmp_path / "handrail-999999999-5-x"
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for number in range(20):
                with suppress(OSError):
                    os.rename(top / f"link{number}", top / f"dir{number}")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(30):
            top.mkdir(exist_ok=True)
            for number in range(20):
                with suppress(OSError):
                    os.mkdir(top / f"dir{number}")
                with suppress(OSError):
                    os.symlink(outside, top / f"link{number}")
            remove_scratch(str(top))
    finally:
        stop.set()
        thread.join()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (outside, outside / "deep")] == [0o755, 0o755]
    remove_scratch(str(top))
    assert not top.exists(), "the control: it is removed"


def test_a_directory_of_a_process_that_cannot_be_seen_stays_while_it_lives() -> None:
    mine = make_scratch()
    code = "from handrail.drivers.scratch import *; remove_scratch(make_scratch()); print('swept')"
    words = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    env = {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": tempfile.gettempdir()}
    ran = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert ran.stdout == "swept\n", ran.stderr
    assert Path(mine).is_dir()
    remove_scratch(mine)


def test_a_tree_deeper_than_python_can_go_is_removed() -> None:
    path = make_scratch()
    code = "import os\nfor i in range(3000): os.mkdir('d'); os.chdir('d')"
    subprocess.run([sys.executable, "-c", code], cwd=path, check=True)
    remove_scratch(path)
    assert not Path(path).exists()
