"""`link/..` is the parent of where the link leads, in every tool, as it is to the kernel and to commands."""

import os
from typing import Any

import pytest

from handrail import Policy, Session
from tests.tools.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
async def linked(real: World) -> World:
    """`link` leads to a/b, so that `link/..` is a; by its words alone it would be the workspace."""
    (real.root / "a" / "b").mkdir(parents=True)
    (real.root / "link").symlink_to("a/b")
    await real.put("a/x", "kernel\n")
    await real.put("x", "words\n")
    assert (await real.value("bash", command="cat link/../x"))["stdout"] == "kernel\n"  # what commands see
    return real


async def test_a_file_is_read_where_the_kernel_finds_it(linked: World) -> None:
    assert (await linked.value("read", path="link/../x"))["text"] == "kernel\n"
    assert (await linked.value("read", path=f"{linked.root}/link/../x"))["text"] == "kernel\n"
    assert (await linked.value("read", path="link/../../x"))["text"] == "words\n"
    assert (await linked.value("read", path="./link/.././b/..//x"))["text"] == "kernel\n"


async def test_a_listing_names_files_that_the_next_call_finds(linked: World) -> None:
    entries = (await linked.value("read", path="link/.."))["entries"]
    assert [entry["name"] for entry in entries] == ["b", "x"]
    assert (await linked.value("read", path=entries[1]["path"]))["text"] == "kernel\n"


async def test_a_file_is_written_and_edited_where_the_kernel_finds_it(linked: World) -> None:
    await linked.value("write", path="link/../new", content="made\n")
    await linked.value("edit", path="link/../x", edits=[{"old": "kernel", "new": "changed"}])
    found = await linked.files()
    assert (found["a/new"], found["a/x"], found["x"], "new" in found) == (b"made\n", b"changed\n", b"words\n", False)


@pytest.mark.parametrize(
    ("tool", "arguments", "found"),
    [
        ("grep", {"pattern": ".", "path": "link/.."}, ["kernel"]),
        ("grep", {"pattern": ".", "path": "link/../x"}, ["kernel"]),
        ("glob", {"pattern": "x", "path": "link/.."}, ["a/x"]),
    ],
)
async def test_a_search_looks_where_the_kernel_would(
    linked: World, tool: str, arguments: dict[str, Any], found: list[str]
) -> None:
    value = await linked.value(tool, **arguments)
    assert [each["text"].strip() for each in value["matches"]] == found if tool == "grep" else value["paths"] == found


async def test_a_command_runs_where_the_kernel_would_go(linked: World) -> None:
    value = await linked.value("bash", command="cat x; pwd", cwd="link/..")
    assert value["stdout"] == f"kernel\n{os.path.realpath(linked.root)}/a\n"
    assert value["cwd"] == f"{linked.sandbox.workspace}/a"
    job = (await linked.value("bash", command="cat x", cwd="link/..", background=True))["job"]
    await linked.value("process", action="wait", job=job)
    assert (await linked.value("process", action="tail", job=job))["text"] == "kernel\n"


async def test_a_file_is_shared_from_where_the_kernel_finds_it(linked: World) -> None:
    shared = (await linked.value("share_artifact", path="link/../x"))["artifact"]
    assert await linked.session.artifacts.read(shared.ref) == b"kernel\n"


async def test_a_view_that_begins_at_a_link_goes_up_from_where_it_leads(linked: World) -> None:
    sandbox = linked.sandbox
    assert await sandbox.at("link").read_text("../x") == "kernel\n"
    assert await sandbox.at("link/..").read_text("x") == "kernel\n"
    assert (await sandbox.at("link/..").run("cat x")).stdout == "kernel\n"
    assert (await sandbox.at("link/..").run_code("print(open('x').read())")).stdout == "kernel\n\n"


async def test_a_rule_means_the_file_that_the_kernel_finds(linked: World) -> None:
    policy = Policy(mode="open", deny=["read(./a/**)"])
    async with Session(linked.session.toolbox, sandbox=linked.sandbox, policy=policy) as session:
        assert (await session.call("read", {"path": "link/../x"})).kind == "rejected"
        assert (await session.call("read", {"path": "link/../../x"})).ok, "the control"


@pytest.mark.parametrize(("path", "kind"), [("nope/../x", "not_found"), ("x/../x", "invalid_args")])
@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("read", {}), ("write", {"content": "new"}), ("edit", {"edits": [{"old": "words", "new": "y"}]}),
        ("grep", {"pattern": "."}),
    ],
)  # fmt: skip
async def test_what_is_no_directory_has_no_parent(
    linked: World, path: str, kind: str, tool: str, more: dict[str, Any]
) -> None:
    before = await linked.files()
    failure = await linked.failure(tool, path=path, **more)
    assert (failure.kind, failure.field) == (kind, "path")
    assert path in failure.message
    assert await linked.files() == before


async def test_what_is_missing_there_is_looked_for_there(linked: World) -> None:
    failure = await linked.failure("read", path="link/../xx")
    assert failure.data == {"directory": "link/..", "entries": ["x"]}
    assert "Did you mean link/../x?" in failure.message
    assert (await linked.value("read", path="link/../x"))["text"] == "kernel\n"


async def test_a_path_outside_is_refused_as_before(linked: World) -> None:
    outside = await linked.failure("read", path="../../../../../../../root/../etc/shadow")
    assert outside.kind in ("rejected", "not_found")


@pytest.mark.parametrize(("tool", "field"), [("glob", "pattern"), ("grep", "glob")])
async def test_a_glob_with_two_dots_is_refused_and_names_the_way(real: World, tool: str, field: str) -> None:
    failure = await real.failure(tool, **{"pattern": "x", field: "link/../*.txt"})
    assert (failure.kind, failure.field) == ("invalid_args", field)
    assert "`path`" in failure.message
