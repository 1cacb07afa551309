"""A rule on paths cannot be walked around by dots, links or slashes, nor does it allow what a link leads to."""

import json
import os
from pathlib import Path

import pytest

from handrail import Policy, Rule, Session, Tool
from handrail.drivers.open import open_sandbox
from handrail.policy._match import PathRoot, matches
from tests.policy.judging import verdicts

pytestmark = pytest.mark.anyio


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace, reached through a link, with secrets, ways around to them, and one way out."""
    real = tmp_path / "real"
    for name in ("secrets", "src", "out"):
        (real / name).mkdir(parents=True)
    (real / "secrets" / "key").write_text("k")
    (real / "src" / "a").write_text("a")
    (real / "alias").symlink_to("secrets/key")
    (real / "door").symlink_to("secrets")
    (real / "deep").symlink_to("door")
    (real / "unborn").symlink_to("secrets/new")
    (real / "loop").symlink_to("loop")
    (real / "src" / "escape").symlink_to("/etc")
    (real / "src" / "inner").symlink_to(real / "out")
    (tmp_path / "work").symlink_to(real)
    return tmp_path / "work"


def around(work: Path) -> list[str]:
    real = work.resolve()
    return [
        "secrets/key", "./secrets/key", "secrets//key", "secrets/./key", "src/../secrets/key",
        "src/../../work/secrets/key",
        "x/y/../../secrets/key", f"{work}/secrets/key", f"{real}/secrets/key", f"/{real}/secrets/key",
        f"{work}//secrets/key",
        f"{real}/src/../secrets/key", "alias", "door/key", "deep/key", "door/new", "deep/new/deeper",
        "./door/../door/key",
        "secrets", "secrets/", "door", "secrets/new",
    ]  # fmt: skip


UNTOLD = ["unborn", "unborn/x", "loop", "loop/x", "alias/x", "n" * 300, "x/" * 3_000, "a\0b"]
OPEN = ["src/a", "src/new", "secret", "secrets2/key", "src/secrets/key", "door/../src/a"]


async def test_a_rule_on_paths_cannot_be_walked_around_by_dots_links_or_slashes(work: Path) -> None:
    async with open_sandbox("host", workspace=str(work), allow_weaker=True) as sandbox:
        for rule in ("read(./secrets/**)", "read(secrets/)", f"read({work.resolve()}/secrets/**)", "read(door/**)"):
            policy = Policy(deny=[rule], mode="open")
            found = await verdicts(policy, "read", around(work), field="path", sandbox=sandbox)
            for path, verdict in found.items():  # through the link to itself the workspace cannot be seen from inside
                assert verdict == "denied" or (verdict == "asks" and "work/" in path), (rule, path)
            untold = await verdicts(policy, "read", UNTOLD, field="path", sandbox=sandbox)
            assert set(untold.values()) == {"asks"}, (rule, untold)
            control = await verdicts(policy, "read", OPEN, field="path", sandbox=sandbox)
            assert set(control.values()) == {"runs"}, (rule, control)


async def test_a_rule_on_what_cannot_be_seen_from_inside_leaves_the_rest_alone(work: Path) -> None:
    async with open_sandbox("host", workspace=str(work), allow_weaker=True) as sandbox:
        policy = Policy(deny=["read(/etc/**)", "read(/no/such/place/**)", "read(./unborn/**)"], mode="open")
        values = {
            "src/a": "runs",
            "src/new": "runs",
            "/etc/passwd": "denied",
            "../" * 20 + "etc/passwd": "denied",
        }
        found = await verdicts(policy, "read", list(values), field="path", sandbox=sandbox)
    assert list(found.values()) == list(values.values())


async def test_a_link_leads_out_of_what_a_rule_allows(work: Path) -> None:
    async with open_sandbox("host", workspace=str(work), allow_weaker=True) as sandbox:
        policy = Policy(allow=["write(./src/**)"], mode="ask")
        values = {
            "src/a": "runs", "src/new": "runs", "src/new/x": "runs", f"{work}/src/a": "asks", "src//a": "runs",
            f"{work.resolve()}/src/a": "runs", "src/../src/a": "runs", "src/../secrets/key": "asks",
            "src/escape": "asks",
            "src/escape/passwd": "asks", "src/inner/x": "asks", "out/x": "asks", "src/" + "n" * 300: "asks",
        }  # fmt: skip
        found = await verdicts(policy, "write", list(values), field="path", sandbox=sandbox, effects=["writes"])
    assert {json.loads(path): verdict for path, verdict in found.items()} == values


async def test_a_workspace_may_itself_be_reached_through_a_link(work: Path) -> None:
    """As on systems where the temporary directory is one."""

    async def real_path(path: str) -> str:
        return str(Path(path).resolve(strict=True))

    root = PathRoot(str(work), real_path)
    made = Tool("read", {"type": "object", "properties": {"path": {}}}, lambda context, arguments: 1)
    every = {"alias", "door/key", f"{work.resolve()}/secrets/key", "secrets/key"}
    for forbids, wanted in ((True, every), (False, {"secrets/key"})):
        found = {
            path
            for path in (*every, "src/a")
            if await matches(Rule("read(./secrets/**)"), made, {"path": path}, [root], forbids=forbids)
        }
        assert found == wanted


async def test_a_path_is_known_by_its_name_its_format_or_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "way").symlink_to("secrets")
    for field in ("path", "file_path", "filePath", "sources", "outputDir", "where"):
        policy = Policy(deny=[f"take({field}=./secrets/**)"], mode="open")
        values = ["secrets/key", "secrets//key", "way/key", ["src/a", "way/key"], str(tmp_path / "secrets")]
        found = await verdicts(policy, "take", values, field=field)
        assert set(found.values()) == {"denied"}, field
        assert set((await verdicts(policy, "take", ["src/a", ["a", "b"]], field=field)).values()) == {"runs"}


async def test_a_host_tool_beside_a_sandbox_is_held_to_rules_in_both_places(work: Path) -> None:
    ran: list[str] = []

    async def read(path: str) -> None:
        ran.append(path)

    async with open_sandbox("host", workspace=str(work), allow_weaker=True) as sandbox:
        policy = Policy(deny=["read(./secrets/**)"], mode="open")
        async with Session([read], policy=policy, sandbox=sandbox) as session:
            for path in ("alias", f"{os.getcwd()}/secrets/x", f"{work.resolve()}/secrets/key"):
                assert "forbids it" in getattr(await session.call("read", {"path": path}), "message", "")
            assert (await session.call("read", {"path": "src/a"})).ok
    assert ran == ["src/a"]


async def test_a_default_counts_when_the_property_is_left_out() -> None:
    ran: list[str] = []

    async def deploy(version: str, target: str = "production") -> None:
        ran.append(target)

    async with Session([deploy], policy=Policy(deny=["deploy(target=production)"])) as session:
        assert not (await session.call("deploy", {"version": "1"})).ok
        assert (await session.call("deploy", {"version": "1", "target": "test"})).ok
    assert ran == ["test"]


async def test_numbers_lists_and_objects_are_matched_as_json_each_item_by_itself() -> None:
    policy = Policy(deny=["take(n=1*)"], mode="open")
    assert await verdicts(policy, "take", [5, 15, True, [2, 15], {"a": 1}], field="n") == {
        "5": "runs", "15": "denied", "true": "runs", "[2, 15]": "denied", '{"a": 1}': "runs",
    }  # fmt: skip
    policy = Policy(allow=["take(n=a*)"], mode="ask")
    found = await verdicts(policy, "take", ["ab", ["ab", "a"], ["ab", "b"], []], field="n", risk="high")
    assert list(found.values()) == ["runs", "runs", "asks", "asks"]


async def test_a_reference_in_a_ruled_field_is_asked_about() -> None:
    for policy in (Policy(deny=["take(x)"], mode="open"), Policy(allow=["take(*)"], mode="ask")):
        made = Tool(
            "take", {"type": "object", "properties": {"n": {"type": "string"}}}, lambda c, a: 1, effects=["writes"]
        )
        async with Session([made], policy=policy) as session:
            held = await session.artifacts.put(b"x")
            result = await session.call("take", {"n": {"$artifact": getattr(held, "ref", held)}})
        assert not result.ok
        assert "needs approval" in result.message
