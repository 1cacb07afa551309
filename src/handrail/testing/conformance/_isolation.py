"""Checks of isolation: files, processes, networks and variables of this machine are out of reach.

Each attempt is made inside by a static program, and outside too where it must succeed there: what fails everywhere
proves nothing.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio

from handrail.contract.driver import Feature, Mount
from handrail.drivers.attempts import (
    ATTEMPTS,
    Attempt,
    NotAttempted,
    arguments,
    read_tried,
    targets_outside,
    try_outside,
)
from handrail.drivers.scratch import make_scratch, remove_scratch
from handrail.testing.conformance.check import Group, NotTried, Seen
from handrail.testing.conformance.fixture import Fixture, Open, until_says
from handrail.threads import Work, in_thread

FILE_WALL: Final = Group("file_isolation", needs=())
PROCESS_WALL: Final = Group("process_isolation")
NETWORK_WALL: Final = Group("network_isolation")
PRIVILEGES: Final = Group("no_privileges")
ENV_WALL: Final = Group("env_isolation")
WALLS: Final[Mapping[Feature, Group]] = {
    group.feature: group for group in (FILE_WALL, PROCESS_WALL, NETWORK_WALL, PRIVILEGES)
}
USUAL: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TERM", "TMPDIR", "PWD",
    "OLDPWD", "SHLVL", "_", "HOSTNAME", "PYTHONUNBUFFERED", "TZ",
})  # fmt: skip
"""Names of variables that every machine has, and that a sandbox may set itself."""
SECRET: Final = b"secret of this machine"


async def attempted(fixture: Fixture, attempt: Attempt, values: Mapping[str, str]) -> str:
    """Return `refused` or `reached`. Raises NotAttempted if the attempt was not made."""
    ran = await fixture.run([await fixture.probe(), *arguments([attempt], values)])
    return "reached" if read_tried(ran.stdout, [attempt]).reached[0] else "refused"


async def _attempt(open: Open, attempt: Attempt) -> Seen:
    fixture = await open()
    await fixture.probe()
    words = f"{attempt.name} {attempt.argument}"
    with targets_outside([os.path.realpath(fixture.directory)]) as values:
        beside = {**values, "inside": os.path.dirname(values["secret"])}
        if attempt.control:
            outside = await in_thread(try_outside, [attempt], beside)
            if not outside.reached[0]:
                raise NotTried("this fails outside the sandbox too, so it proves nothing here")
        try:
            got = await attempted(fixture, attempt, {**values, "inside": fixture.directory})
        except NotAttempted as reason:
            return Seen(words, False, "refused", str(reason))
    return Seen(words, True, "refused", got)


for _each in ATTEMPTS:
    if _each.feature in WALLS:
        WALLS[_each.feature].add_with_commands(f"a command cannot {_each.meaning}", _attempt, _each)


@PROCESS_WALL.check
async def one_command_does_not_see_the_processes_of_another(open: Open) -> Seen:
    fixture = await open()
    probe, mark = await fixture.probe(), os.urandom(8).hex()
    other = await fixture.start([probe, "--attempt", "stay", mark], input=True)
    see, stays = Attempt("process_isolation", "see", "{backwards}", "see another"), b""
    try:
        with anyio.move_on_after(fixture.patience * 5):
            stays = await until_says(other.output(), b"stays")
        itself = await fixture.run([probe, "--attempt", "see", mark[::-1], "stay", mark])
        got = await attempted(fixture, see, {"backwards": mark[::-1]})
    finally:
        await fixture.kill(other)
    started = b"stays" in stays and b"see\treached" in itself.stdout
    return Seen("look for a process of another command", started, "refused", got)


@PROCESS_WALL.check
async def a_command_cannot_signal_a_process_outside(open: Open) -> Seen:
    """Send two deadly signals; a process ends by the first one, however late."""
    fixture = await open()
    with subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, start_new_session=True) as bystander:
        try:
            ran = await fixture.run(f"echo STARTED; kill -TERM {bystander.pid} 2>&-; true")
        finally:
            bystander.kill()
        ended_by = await Work(bystander.wait).wait()
    return Seen("kill -TERM of a process outside", ran.stdout == b"STARTED\n", -signal.SIGKILL, ended_by)


@FILE_WALL.check
async def file_operations_read_nothing_outside(open: Open) -> Seen:
    fixture, outside = await open(), make_scratch()
    secret = Path(outside, "secret")
    try:
        secret.write_bytes(SECRET)
        got = await _read_or_refused(fixture, str(secret))
        there = secret.read_bytes() == SECRET
    finally:
        remove_scratch(outside)
    return Seen("read of a path outside", there, "refused", got)


@FILE_WALL.check
async def file_operations_change_nothing_outside(open: Open) -> Seen:
    fixture, outside = await open(), make_scratch()
    secret = Path(outside, "secret")
    try:
        secret.write_bytes(SECRET)
        there = secret.read_bytes() == SECRET
        for work in (fixture.driver.write(str(secret), b"mine"), fixture.driver.remove(outside)):
            try:
                await work
            except (OSError, ValueError):
                pass
        got = secret.read_bytes() if secret.exists() else b"removed"
    finally:
        remove_scratch(outside)
    return Seen("write and remove outside", there, SECRET, got)


async def _read_or_refused(fixture: Fixture, path: str) -> object:
    try:
        read = await fixture.driver.read(path)
    except (OSError, ValueError):
        return "refused"
    return read if read == SECRET else "refused"


async def _led(open: Open, link: str, path: str) -> Seen:
    """A link or a path that leads outside leads to nothing."""
    fixture, outside = await open(), make_scratch()
    try:
        Path(outside, "secret").write_bytes(SECRET)
        real = os.path.realpath(outside)
        ran = await fixture.run(f"ln -s {link.format(real=real)} link; echo STARTED")
        got = await _read_or_refused(fixture, path.format(real=real, here=fixture.directory))
    finally:
        remove_scratch(outside)
    return Seen(f"read {path} (link -> {link})", ran.stdout == b"STARTED\n", "refused", got)


for _name, _link, _path in (
    ("a link to a directory outside leads nowhere", "{real}", "{here}/link/secret"),
    ("a link to a file outside leads nowhere", "{real}/secret", "{here}/link"),
    ("a link to the root leads nowhere outside", "/", "{here}/link{real}/secret"),
    ("a path through proc leads nowhere outside", "/", "/proc/self/root{real}/secret"),
):
    FILE_WALL.add_with_commands(_name, _led, _link, _path)


async def _mounted(open: Open, writable: bool, line: str, expected: tuple[str, bytes]) -> Seen:
    outside = os.path.realpath(make_scratch())
    try:
        Path(outside, "file").write_bytes(b"mounted")
        fixture = await open(mounts=(Mount(outside, writable=writable),))
        ran = await fixture.run(line.format(path=f"{outside}/file"))
        got = ran.text.strip(), Path(outside, "file").read_bytes()
    finally:
        remove_scratch(outside)
    return Seen(line, ran.code == 0, expected, got)


_CHANGE: Final = "cat {path}; (echo changed > {path}) 2>&-; true"
for _name, _writable, _after in (
    ("a mount is readable and cannot be changed", False, b"mounted"),
    ("a writable mount can be changed", True, b"changed\n"),
):
    FILE_WALL.add_with_commands(_name, _mounted, _writable, _CHANGE, ("mounted", _after))


@ENV_WALL.check
async def no_variable_of_this_machine_arrives(open: Open) -> Seen:
    code = "import os, sys; sys.stdout.write(chr(0).join(f'{k}={v}' for k, v in os.environ.items()))"
    outside = await anyio.run_process([sys.executable, "-IS", "-c", code])
    own = {pair for pair in outside.stdout.split(b"\0") if pair.split(b"=")[0].decode() not in USUAL}
    if not own:
        raise NotTried("this process has no variable of its own; set one")
    fixture = await open(own=True)
    await fixture.needs("env")
    ran = await fixture.run("env -0 2>&- || env")
    seen = set(ran.stdout.replace(b"\n", b"\0").split(b"\0")) | set(ran.stdout.split(b"\0"))
    return Seen("env", b"PATH=" in ran.stdout, [], sorted(pair.split(b"=")[0] for pair in own & seen))


@ENV_WALL.check
async def a_variable_of_one_command_does_not_reach_the_next(open: Open) -> Seen:
    fixture = await open()
    first = await fixture.run('echo "$ONCE"', env={"ONCE": "given"})
    second = await fixture.run('echo "[$ONCE]"')
    return Seen('echo "[$ONCE]"', first.stdout == b"given\n", b"[]\n", second.stdout)


@ENV_WALL.check
async def a_variable_of_the_sandbox_reaches_every_command(open: Open) -> Seen:
    fixture = await open(env={"ALWAYS": "a b"})
    rans = [await fixture.run('echo "STARTED $ALWAYS"') for _ in range(2)]
    return Seen("env={'ALWAYS': …}", rans[0].stdout.startswith(b"STARTED"), [b"STARTED a b\n"] * 2,
                [ran.stdout for ran in rans])  # fmt: skip


@ENV_WALL.check
async def a_variable_of_a_command_beats_that_of_the_sandbox(open: Open) -> Seen:
    fixture = await open(env={"BOTH": "sandbox"})
    first = await fixture.run('echo "$BOTH"')
    second = await fixture.run('echo "$BOTH"', env={"BOTH": "command"})
    return Seen('echo "$BOTH"', first.stdout == b"sandbox\n", b"command\n", second.stdout)
