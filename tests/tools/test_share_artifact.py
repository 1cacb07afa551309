"""share_artifact: every property does something, and every failure says what to do."""

import errno
import posixpath
from collections.abc import AsyncIterator
from typing import Any

import pytest

from handrail import Sandbox, Session
from handrail.contract.driver import FileStat
from handrail.testing import MemoryDriver, approve_all
from handrail.tools.share_artifact import MAX_FILE_BYTES, share_artifact
from tests.tools.world import World

pytestmark = pytest.mark.anyio
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


class FailingDriver(MemoryDriver):
    """A driver whose files turn out otherwise than their stat said."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.claims: dict[str, Any] = {}
        self.shrinks = False

    async def stat(self, path: str) -> FileStat:
        if self.claims.get("error"):
            raise self.claims["error"]
        found = await super().stat(path)
        size = self.claims.get("size", found.size)
        return FileStat(path, found.real_path, self.claims.get("type", found.type), size, found.mode, found.mtime)

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        if self.error is not None:
            raise self.error
        return b"" if self.shrinks else await super().read(path, start=start, length=length)


@pytest.fixture
def driver() -> FailingDriver:
    return FailingDriver()


@pytest.fixture
async def session(driver: FailingDriver) -> AsyncIterator[Session]:
    await driver.write("/workspace/report.txt", b"the report")
    await driver.write("/workspace/media/chart.png", PNG)
    await driver.write("/workspace/dir/file", b"x")
    async with Session([share_artifact], sandbox=Sandbox(driver), approver=approve_all) as session:
        yield session


async def shared(session: Session, **arguments: Any) -> Any:
    result = await session.call("share_artifact", arguments)
    assert result.ok, result
    return result


async def test_a_shared_file_is_copied_as_it_was(session: Session, driver: FailingDriver) -> None:
    result = await shared(session, path="report.txt")
    kept = result.value["artifact"]
    await driver.write("/workspace/report.txt", b"changed since")
    assert (kept.name, kept.size, kept.media_type) == ("report.txt", 10, "text/plain")
    assert await session.artifacts.read(kept) == b"the report"
    assert result.value["path"] == "/workspace/report.txt"
    assert session.artifacts.sweep() == 0, "it was shown, so it stays"


async def test_the_filename_is_what_the_user_sees(session: Session) -> None:
    kept = (await shared(session, path="report.txt", filename="Übersicht 2.html")).value["artifact"]
    assert (kept.name, kept.media_type) == ("Übersicht 2.html", "text/html")
    assert (await shared(session, path="media/chart.png")).value["artifact"].media_type == "image/png"


async def test_content_is_shared_without_a_file_and_nothing_is_written(session: Session, driver: FailingDriver) -> None:
    kept = (await shared(session, path="notes/new.md", content="# Grüße")).value["artifact"]
    assert (kept.name, await session.artifacts.read(kept)) == ("new.md", "# Grüße".encode())
    assert kept.media_type == "text/markdown"
    with pytest.raises(FileNotFoundError):
        await driver.stat("/workspace/notes/new.md")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/report.txt", "/workspace/report.txt"),
        ("/mnt/chart.png", "/workspace/media/chart.png"),
        ("result.csv", "/workspace/output/result.csv"),
        ("/tmp/result.csv", "/workspace/output/result.csv"),
        ("pkg/app.whl", "/workspace/dist/pkg/app.whl"),
        ("elsewhere/page.html", "/workspace/build/page.html"),
    ],
)
async def test_a_file_where_it_was_probably_meant_is_shared_and_that_is_said(
    session: Session, driver: FailingDriver, path: str, found: str
) -> None:
    for made in ("output/result.csv", "dist/pkg/app.whl", "build/page.html"):
        await driver.write(f"/workspace/{made}", b"made")
    result = await shared(session, path=path)
    assert result.value["path"] == found
    assert any(found in warning for warning in result.warnings)


async def test_a_missing_file_names_every_place_that_was_tried(session: Session) -> None:
    result = await session.call("share_artifact", {"path": "gone.pdf"})
    assert not result.ok
    folders = ("", "media/", "output/", "dist/", "build/")
    assert (result.kind, result.data["tried"]) == (
        "execution_error",
        [f"/workspace/{each}gone.pdf" for each in folders],
    )
    assert all(place in result.message for place in result.data["tried"])


@pytest.mark.parametrize(
    ("path", "claims"),
    [
        (" ", {}),
        ("a\0b", {}),
        ("dir", {}),
        (".", {}),
        ("report.txt", {"type": "other"}),
        ("report.txt", {"size": MAX_FILE_BYTES + 1}),
        ("report.txt", {"error": PermissionError(errno.EACCES, "Permission denied")}),
        ("report.txt", {"error": OSError(errno.ELOOP, "Too many levels of symbolic links")}),
    ],
)
async def test_a_path_that_is_refused_is_a_fault_of_the_path(
    session: Session, driver: FailingDriver, path: str, claims: dict[str, Any]
) -> None:
    driver.claims = claims
    result = await session.call("share_artifact", {"path": path, "filename": "fine.txt"})
    assert not result.ok
    assert (result.kind, result.field) == ("invalid_args", "path")


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret", "/nowhere/x", "/workspaces/x", "dir/../../secret"])
async def test_what_lies_outside_the_workspace_is_refused_and_told_where_to_look(
    session: Session, driver: FailingDriver, path: str
) -> None:
    for outside in ("/etc/passwd", "/secret", "/workspaces/x"):
        await driver.write(outside, b"not yours")
    result = await session.call("share_artifact", {"path": path})
    assert not result.ok
    assert (result.kind, result.field) == ("invalid_args", "path")
    assert "/workspace;" in result.message
    assert "glob" in result.message
    assert session.artifacts.sweep() == 0


async def test_a_link_that_leads_out_of_the_workspace_is_refused(real: World) -> None:
    (real.root.parent / "outside").write_text("not yours")
    (real.root / "link").symlink_to(real.root.parent / "outside")
    (real.root / "etc").symlink_to("/etc")
    (real.root / "inside").symlink_to("own")
    await real.put("own", "mine")
    for path in ("etc/passwd", "/etc/passwd"):
        failure = await real.failure("share_artifact", path=path)
        assert (failure.kind, failure.field) == ("invalid_args", "path"), failure
        assert str(real.sandbox.workspace) in failure.message
    assert not (await real.call("share_artifact", path="link")).ok
    assert (await real.value("share_artifact", path="inside"))["size"] == 4, "the control: a link that stays inside"
    shared_whole = await real.value("share_artifact", path=f"{real.sandbox.workspace}/own")
    assert shared_whole["size"] == 4


async def test_content_with_a_filename_needs_no_path(session: Session) -> None:
    result = await shared(session, content="# Hi", filename="notes.md")
    assert (result.value["name"], await session.artifacts.read(result.value["artifact"])) == ("notes.md", b"# Hi")
    assert "path" not in result.value
    empty = await shared(session, content="", filename="empty.txt")
    assert (empty.value["size"], "path" in empty.value) == (0, False)
    for arguments, field in (({}, "path"), ({"filename": "x.md"}, "path"), ({"content": "x"}, "filename")):
        refused = await session.call("share_artifact", arguments)
        assert not refused.ok
        assert (refused.kind, refused.field) == ("invalid_args", field)


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
async def test_blank_content_beside_a_path_is_absent(session: Session, blank: str) -> None:
    kept = (await shared(session, path="report.txt", content=blank, filename="")).value["artifact"]
    assert (kept.name, await session.artifacts.read(kept)) == ("report.txt", b"the report")
    named = (await shared(session, path="report.txt", content=blank, filename="other.txt")).value["artifact"]
    assert (named.name, named.ref) == ("other.txt", kept.ref)
    missing = await session.call("share_artifact", {"path": "nowhere.md", "content": blank})
    assert (missing.ok, missing.kind, missing.field) == (False, "execution_error", "path")
    control = (await shared(session, path="report.txt", content="x")).value["artifact"]
    assert await session.artifacts.read(control) == b"x"


@pytest.mark.parametrize("path", [".", "./", "/", "..", "dir", "dir/..", "/workspace"])
async def test_a_path_that_is_no_file_is_a_fault_of_the_path_without_a_filename_too(
    session: Session, path: str
) -> None:
    for more in ({}, {"content": "x"} if posixpath.basename(path.rstrip("/")) in ("", ".", "..") else {}):
        result = await session.call("share_artifact", {"path": path, **more})
        assert not result.ok
        assert (result.kind, result.field) == ("invalid_args", "path"), (result, more)


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", "a/b", "a\\b", "a\nb", "a\0b", "\x1b[31m", "\u202eexe", "x" * 300, "é" * 200]
)
async def test_a_bad_name_is_a_fault_of_the_filename(session: Session, name: str) -> None:
    result = await session.call("share_artifact", {"path": "report.txt", "filename": name})
    if not name.strip():  # a blank in optional text means that it was left out
        assert result.ok
        return
    assert not result.ok
    assert (result.kind, result.field) == ("invalid_args", "filename")


async def test_a_file_whose_own_name_is_bad_needs_another(session: Session, driver: FailingDriver) -> None:
    await driver.write("/workspace/a\nb", b"x")
    refused = await session.call("share_artifact", {"path": "a\nb"})
    assert not refused.ok
    assert refused.field == "filename"
    assert (await shared(session, path="a\nb", filename="ab")).value["artifact"].name == "ab"


@pytest.mark.parametrize("way", ["error", "shrinks"])
async def test_a_copy_that_fails_is_an_execution_error_and_leaves_nothing(
    session: Session, driver: FailingDriver, way: str
) -> None:
    driver.error = OSError(errno.EIO, "Input/output error") if way == "error" else None
    driver.shrinks = way == "shrinks"
    result = await session.call("share_artifact", {"path": "report.txt"})
    assert not result.ok
    assert (result.kind, result.field) == ("execution_error", None)
    assert "could not be copied" in result.message
    assert session.artifacts.sweep() == 0


def test_its_risk_effects_and_needs_are_what_a_policy_judges_by() -> None:
    assert (share_artifact.risk, share_artifact.effects, share_artifact.needs) == ("high", {"reads"}, {"files"})
