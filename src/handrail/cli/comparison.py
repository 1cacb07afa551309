"""Run the same command with a timeout of one second, by subprocess.run and by Handrail, and say who lives on."""

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
from rich.console import Console
from rich.text import Text

from handrail.sandbox.sandbox import Sandbox

CHILD: Final = r'setsid sh -c "echo \$\$ > pid; while true; do echo beat >> beats; sleep 0.1; done" > /dev/null 2>&1'
BEATS: Final = f"{CHILD} & echo printed; sleep 99"
"""A child in a session of its own writes a line ten times a second, for ever; the command itself sleeps."""
PAUSE: Final = 0.6


async def compare_timeouts(console: Console, sandbox: Sandbox) -> bool:
    """Say what became of the child on both sides. Whether it survived in the sandbox."""
    console.print(Text("The same command, a timeout of 1 s, a child that called setsid:", style="bold cyan"))
    alive = await anyio.to_thread.run_sync(_under_subprocess)
    console.print(
        Text(f"  subprocess.run(timeout=1): the child is {'ALIVE (ended now, by this demo)' if alive else 'dead'}")
    )
    done = await sandbox.run(BEATS, timeout=1)
    survived = await _still_beats(sandbox)
    state = "ALIVE" if survived else "dead"
    console.print(
        Text(f"  handrail, timeout=1:       the child is {state}, ended_by {done.ended_by}, exit {done.exit_code}, ")
        + Text(f"output kept: {done.stdout.strip()!r}")
    )
    return survived or done.stdout.strip() != "printed"


def _under_subprocess() -> bool:
    """Whether the child lives on after its parent was killed; it is ended here in either case."""
    with tempfile.TemporaryDirectory() as directory:
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(["bash", "-c", BEATS], cwd=directory, capture_output=True, timeout=1, check=False)
        pid = int(Path(directory, "pid").read_text(encoding="utf-8"))
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


async def _still_beats(sandbox: Sandbox) -> bool:
    """Whether the file still grows; the control is that it grew at all."""
    before = (await sandbox.stat("beats")).size
    await anyio.sleep(PAUSE)
    after = (await sandbox.stat("beats")).size
    return before == 0 or after > before
