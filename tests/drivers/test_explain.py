"""A command that fails because of its sandbox is explained, and no command learns so what exists outside."""

from pathlib import Path

import pytest

from handrail.drivers._explain import NO_MORE_PROCESSES, Explanation, explanations, missing_programs, no_explanation
from tests.drivers import liars
from tests.drivers.conftest import Open
from tests.drivers.watching import run

pytestmark = pytest.mark.anyio


async def test_a_command_cannot_ask_which_paths_exist_outside(opened: Open, tmp_path: Path) -> None:
    jail = await opened("jail")
    secret = liars.program(tmp_path / "secret", "#!/bin/sh\n")
    ran = await run(jail, f"echo 'sh: {secret}: not found' >&2; echo '{secret}: command not found' >&2; {secret}")
    assert ran.code == 127
    assert secret.encode() in ran.stderr
    assert ran.notes == ()


def repeat(name: str) -> Explanation:
    return Explanation(name, "")


@pytest.mark.parametrize("name", ["/usr/bin/tool", "../tool", "./tool", "dir/tool"])
async def test_only_a_name_without_a_slash_is_explained(name: str) -> None:
    said = f"sh: 1: {name}: not found\n{name}: command not found\nenv: {name}: No such file or directory\n".encode()
    assert list(explanations(127, said, repeat)) == []
    found = list(explanations(127, said.replace(name.encode(), b"tool"), repeat))
    assert found == [Explanation("tool", "")], "the control"
    assert missing_programs(b"sh: 1: tool: not found\n" + said) == ["tool"]


FULL = b"""  File "subprocess.py", line 1, in _execute_child
    self.pid = _fork_exec(
               ^^^^^^^^^^^
BlockingIOError: [Errno 11] Resource temporarily unavailable
"""


def test_a_program_that_could_start_nothing_more_is_explained_also_for_python() -> None:
    assert [each.note for each in explanations(1, FULL, no_explanation)] == [NO_MORE_PROCESSES]
    assert list(explanations(1, FULL.replace(b"Resource temporarily unavailable", b"x"), no_explanation)) == []
