"""A program that is jailed alone sees the system's programs, and nothing else of the machine."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from handrail import Sandbox, Unavailable, open_sandbox
from handrail.drivers.open import jailed_alone
from handrail.testing import MemoryDriver
from tests.drivers.watching import eventually


def said(line: str, *, jailed: bool = True) -> str:
    program = jailed_alone("/bin/bash") if jailed else "/bin/bash"
    env = {"SECRET": "hunter2", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([program, "-c", line], capture_output=True, text=True, env=env, timeout=60, check=False)
    return done.stdout


def test_it_sees_neither_the_workspace_nor_the_environment(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    look = f"cat {tmp_path}/file; echo /etc/* /home/* /root/* /proc/* /tmp/*; echo $SECRET"
    assert said(look, jailed=False).startswith("content"), "the control"
    assert "hunter2" in said(look, jailed=False)
    assert said(look) == "/etc/* /home/* /root/* /proc/* /tmp/*\n\n"


def test_it_can_write_nothing_and_has_little_memory() -> None:
    write = "for d in / /tmp /run /usr /run/handrail; do (echo x > $d/made) 2>/dev/null && echo $d; done; ulimit -v"
    assert said(write) == f"{(2 << 30) >> 10}\n"


def test_it_has_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo connected"
        assert said(connect, jailed=False) == "connected\n", "the control"
        assert said(connect) == ""


def test_who_kills_it_ends_all_that_it_runs() -> None:
    mark = f"sleep 7{os.getpid()}"
    running = subprocess.Popen([jailed_alone("/bin/bash"), "-c", f"{mark} & echo on; wait"], stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == b"on\n"

    def is_there() -> bool:
        return any(mark.replace(" ", "\0").encode() in _read(path) for path in Path("/proc").glob("[0-9]*/cmdline"))

    assert eventually(is_there), "the control"
    running.kill()
    running.wait()
    running.stdout.close()
    assert eventually(lambda: not is_there())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_no_command_can_change_what_starts_it() -> None:
    path = jailed_alone("/bin/bash")
    with pytest.raises(OSError), open(path, "r+b") as file:  # noqa: PT012
        file.write(b"#!/bin/sh\necho changed\n")
        file.flush()
    assert said("echo the same") == "the same\n"


@pytest.mark.anyio
async def test_a_sandbox_that_open_sandbox_made_has_it_and_another_says_so(tmp_path: Path) -> None:
    async with open_sandbox("host", workspace=str(tmp_path), allow_weaker=True) as sandbox:
        assert sandbox.at("/").jailed_alone("/bin/bash") == jailed_alone("/bin/bash")
    async with Sandbox(MemoryDriver()) as other:
        with pytest.raises(Unavailable, match="open_sandbox"):
            other.jailed_alone("/bin/bash")


@pytest.mark.anyio
async def test_a_sandbox_calls_back_once_when_it_is_closed() -> None:
    called: list[str] = []
    async with Sandbox(MemoryDriver()) as sandbox:
        sandbox.on_close.append(lambda: called.append("closed"))
        assert not called
    await sandbox.close()
    assert called == ["closed"]
