"""A file that goes with its sandbox is not written without a word."""

from pathlib import Path

import pytest

from handrail import Mount, Session, builtin_tools, open_sandbox
from tests.cli.story import bash, recorded
from tests.cli.terminal import plain

pytestmark = pytest.mark.anyio


async def test_a_path_that_climbs_out_is_refused_and_another_place_is_warned_about(tmp_path: Path) -> None:
    work, data = tmp_path / "work", tmp_path / "data"
    for each in (work / "deep", data):
        each.mkdir(parents=True)
    (work / "link").symlink_to("/tmp")
    async with (
        open_sandbox(workspace=work, mounts=[Mount(str(data), writable=True)]) as sandbox,
        Session(builtin_tools(), sandbox=sandbox) as session,
    ):
        climbing = ("../notes", "deep/../../notes", f"{work}/../x", "link/../y", "link/../new/y", "../missing/notes")
        for path in (*climbing, "~/r"):
            result = await session.call("write", {"path": path, "content": "x"})
            assert (result.ok, result.kind, result.field) == (False, "invalid_args", "path"), path
            assert str(work) in result.message, path
        home = (await sandbox.run("echo $HOME")).stdout.strip()
        for path in ("/tmp/notes.md", f"{home}/r", "link/z"):
            result = await session.call("write", {"path": path, "content": "x"})
            assert result.ok, path
            assert any("goes with the sandbox" in warning for warning in result.warnings), path
            edited = await session.call("edit", {"path": path, "old": "x", "new": "y"})
            assert any("goes with the sandbox" in warning for warning in edited.warnings), path
        for path in ("notes", "deep/../kept", f"{data}/kept", f"{data}/../data/also", f"{work}/deep/b"):
            result = await session.call("write", {"path": path, "content": "x"})
            assert (result.ok, result.warnings) == (True, ()), (path, result)
    assert (data / "also").exists()
    assert not (tmp_path / "notes").exists()


@pytest.mark.parametrize("command", ["call", "run"])
def test_the_last_line_names_what_commands_left_where_nothing_is_kept(command: str, tmp_path: Path) -> None:
    line = "for n in 1 2 3 4; do echo x > /tmp/lost$n; done; echo x > ~/a; mkdir ~/b; touch ~/.hidden; echo x > kept"
    model = recorded(tmp_path.parent / f"{tmp_path.name}-r", ("Go", [bash(line), bash("echo x > kept"), "Done."]))
    words = ("call", "bash", line) if command == "call" else ("run", "Go", "--model", model)
    ran = plain(*words, cwd=tmp_path, env={"HOME": str(tmp_path.parent)})
    (told,) = [each for each in ran.stderr.splitlines() if "gone with the sandbox" in each]
    assert "/tmp/lost1, /tmp/lost2, /tmp/lost3, /tmp/lost4" in told
    assert "and 1 more are gone with the sandbox; only what is in" in told
    assert "hidden" not in told
    assert (tmp_path / "kept").exists()


def test_nothing_is_said_where_nothing_is_lost(tmp_path: Path) -> None:
    ran = plain("call", "bash", "echo x > kept", cwd=tmp_path, env={"HOME": str(tmp_path.parent)})
    assert "gone with" not in ran.stderr
