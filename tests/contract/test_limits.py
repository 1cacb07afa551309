"""Every size is set in one place, and every tool follows it."""

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from handrail import Caps, Context, HandrailError, Policy, Session, builtin_tools, open_sandbox, tool
from handrail.contract.limits import DEFAULT_CAPS

pytestmark = pytest.mark.anyio
LINE = "0123456789\n"
Measure = Callable[[Session, Path], Awaitable[int]]


@tool
async def text(size: int) -> str:
    return "x" * size


@tool
async def rows(size: int) -> list[str]:
    return ["x" * size]


@tool
async def fields(size: int) -> dict[str, str]:
    return {"log": "x" * size}


@tool(needs=["exec"])
async def run(context: Context, command: str) -> Any:
    return await context.sandbox.run(command, timeout=300)


@tool(needs=["exec"])
async def answer_much(context: Context) -> Any:
    return {"exit_code": 0, "stdout": "", "stderr": "", "trace": "x" * 200_000}


async def value(session: Session, name: str, **arguments: Any) -> Any:
    session.begin_run()
    result = await session.call(name, arguments)
    assert result.ok, result
    return result.value


def characters(found: Any) -> int:
    """The x in a value, which are nowhere but in what was to be shown."""
    if isinstance(found, dict):
        return sum(map(characters, found.values()))
    if isinstance(found, list):
        return sum(map(characters, found))
    return found.count("x") if isinstance(found, str) else 0


def printing(stream: str) -> str:
    return f"head -c 300000 /dev/zero | tr '\\0' x {'>&2' if stream == 'stderr' else ''}"


def plain(name: str) -> Measure:
    async def measure(session: Session, root: Path) -> int:
        return characters(await value(session, name, size=300_000))

    return measure


def stream(name: str, which: str) -> Measure:
    async def measure(session: Session, root: Path) -> int:
        if name == "run_code":
            shown = await value(session, name, code=printing(which), language="bash")
        else:
            shown = await value(session, name, command=printing(which))
        assert shown["exit_code"] == 0
        return characters(shown[which])

    return measure


async def lines_of_a_file(session: Session, root: Path) -> int:
    (root / "lines").write_text("\n" * 10_000)
    return int((await value(session, "read", path="lines"))["text"].count("\n"))


async def bytes_of_a_file(session: Session, root: Path) -> int:
    (root / "file").write_text(("x" * 999 + "\n") * 300)
    return len((await value(session, "read", path="file"))["text"])


async def bytes_of_a_line(session: Session, root: Path) -> int:
    (root / "line").write_text("x" * 10_000)
    return characters((await value(session, "read", path="line"))["text"])


async def entries(session: Session, root: Path) -> int:
    return len((await value(session, "read", path="many"))["entries"])


async def paths(session: Session, root: Path) -> int:
    return len((await value(session, "glob", pattern="many/*"))["paths"])


async def matches(session: Session, root: Path) -> int:
    (root / "found").write_text("needle\n" * 2_000)
    return len((await value(session, "grep", pattern="needle", path="found"))["matches"])


async def characters_of_a_match(session: Session, root: Path) -> int:
    (root / "wide").write_text("y" + "x" * 9_000)
    return characters((await value(session, "grep", pattern="^y", path="wide"))["matches"])


async def bytes_of_an_artifact(session: Session, root: Path) -> int:
    kept = await session.artifacts.put("x" * 300_000)
    return characters((await value(session, "read_artifact", ref=kept.ref))["text"])


async def bytes_of_a_job(session: Session, root: Path) -> int:
    job = (await value(session, "bash", command=printing("stdout"), background=True))["job"]
    await value(session, "process", action="wait", job=job, timeout=600)
    return characters((await value(session, "process", action="output", job=job))["text"])


async def bytes_of_a_tail(session: Session, root: Path) -> int:
    command = "yes xxxxxxxxxxxxxxx | head -c 300000"
    job = (await value(session, "bash", command=command, background=True))["job"]
    await value(session, "process", action="wait", job=job, timeout=600)
    return len((await value(session, "process", action="tail", job=job, lines=5_000))["text"])


async def characters_of_a_diff(session: Session, root: Path) -> int:
    (root / "changed").unlink(missing_ok=True)
    return characters((await value(session, "write", path="changed", content="x" * 300_000))["diff"])


async def other_fields(session: Session, root: Path) -> int:
    return characters(await value(session, "answer_much"))


FOLLOW: list[tuple[str, Measure, int, int]] = [
    ("value", plain("text"), 1_000, 150_000),
    ("value", plain("rows"), 1_000, 150_000),
    ("value", plain("fields"), 1_000, 150_000),
    *(("stdout", stream(name, "stdout"), 1_000, 150_000) for name in ("bash", "run_code", "run")),
    *(("stderr", stream(name, "stderr"), 1_000, 150_000) for name in ("bash", "run_code", "run")),
    ("lines", lines_of_a_file, 20, 5_000),
    ("line", bytes_of_a_line, 50, 5_000),
    ("file", bytes_of_a_file, 5_000, 150_000),
    ("file", bytes_of_an_artifact, 1_000, 150_000),
    ("file", bytes_of_a_job, 1_000, 150_000),
    ("file", bytes_of_a_tail, 1_008, 60_000),
    ("entries", entries, 10, 1_050),
    ("paths", paths, 10, 1_050),
    ("matches", matches, 10, 300),
    ("match", characters_of_a_match, 50, 5_000),
    ("diff", characters_of_a_diff, 1_000, 150_000),
    ("other", other_fields, 1_000, 150_000),
]  # fmt: skip


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Any, Path]]:
    root = tmp_path_factory.mktemp("work")
    (root / "many").mkdir()
    for number in range(1_100):
        (root / "many" / f"f{number}").touch()
    async with open_sandbox(workspace=str(root), allow_weaker=True) as sandbox:
        yield sandbox, root


def named(case: Any) -> str:
    return case if isinstance(case, str) else getattr(case, "__qualname__", str(case)).replace(".<locals>.measure", "")


@pytest.mark.parametrize(("cap", "measure", "low", "high"), FOLLOW, ids=named)
async def test_every_tool_follows_a_cap_that_is_raised_or_lowered(
    world: tuple[Any, Path], cap: str, measure: Measure, low: int, high: int
) -> None:
    sandbox, root = world
    default, shown = getattr(DEFAULT_CAPS, cap), {}
    for size in (low, default, high):
        caps = Caps(**{cap: size})
        tools = [*builtin_tools(), text, rows, fields, run, answer_much]
        async with Session(tools, sandbox=sandbox, policy=Policy(mode="open"), caps=caps) as session:
            shown[size] = await measure(session, root)
    for size, count in shown.items():
        assert 0.9 * size - 64 <= count <= size, shown
    assert shown[low] < shown[default] < shown[high], "the control: the default is neither"


def test_every_cap_is_followed_by_some_tool() -> None:
    covered = {cap for cap, *_ in FOLLOW}
    assert {field.name for field in dataclasses.fields(Caps)} - covered == {"spool"}


async def test_what_is_kept_follows_its_cap_too(world: tuple[Any, Path]) -> None:
    sandbox, _ = world
    for spool, whole in ((256 << 10, False), (64 << 20, True)):
        async with Session(builtin_tools(), sandbox=sandbox, caps=Caps(spool=spool)) as session:
            result = await session.call("bash", {"command": printing("stdout").replace("300000", "900000")})
            kept = session.artifacts.info(result.value["stdout"].whole.ref)
            assert kept is not None
            assert (kept.size == 900_000) == whole
            assert whole or kept.size < spool + (100 << 10)


async def test_a_tool_sees_the_caps_of_its_call() -> None:
    seen = []

    @tool(output_cap=600)
    async def small(context: Context) -> None:
        seen.append(context.caps)

    @tool
    async def usual(context: Context) -> None:
        seen.append(context.caps)

    caps = Caps(value=1_000)
    async with Session([small, usual], caps=caps) as session:
        for tokens in (None, 50_000):
            session.tokens_left = tokens
            await session.call("small")
            await session.call("usual")
    assert [each.value for each in seen] == [600, 1_000, 300, 500]
    assert (seen[0].stdout, seen[0].stderr, seen[0].other) == (500, 100, 600)
    assert seen[1] is caps


async def test_caps_without_bounds_cut_nothing(world: tuple[Any, Path]) -> None:
    sandbox, _ = world
    endless = Caps(**{field.name: 1 << 62 for field in dataclasses.fields(Caps) if field.name != "spool"})
    async with Session([*builtin_tools(), text], sandbox=sandbox, caps=endless) as session:
        assert characters((await session.call("bash", {"command": printing("stdout")})).value["stdout"]) == 300_000
        assert len((await session.call("text", {"size": 300_000})).value) == 300_000
        kept = await session.artifacts.put("x" * 300_000)
        page = await session.call("read_artifact", {"ref": kept.ref})
        assert (len(page.value["text"]), page.warnings) == (300_000, ())


def test_caps_are_the_documented_ones() -> None:
    caps = Caps()
    assert (caps.stdout, caps.stderr, caps.value, caps.other) == (50_000, 10_000, 48_000, 100_000)
    assert (caps.lines, caps.file, caps.entries) == (2_000, 50 << 10, 500)
    assert (caps.matches, caps.match, caps.paths) == (100, 500, 1_000)
    assert caps.spool == 64 << 20


def test_caps_shrink_with_the_tokens_left_and_never_to_nothing() -> None:
    caps = Caps()
    assert caps.fitting(None) is caps
    assert [caps.fitting(tokens).value for tokens in (200_000, 50_000, 10_000, 0, -5)] == [
        48_000, 24_000, 4_800, 4_800, 4_800,
    ]  # fmt: skip
    least = caps.fitting(0)
    assert (least.match, least.line, least.spool) == (caps.match, caps.line, caps.spool)
    assert Caps(lines=1).fitting(0).lines == 1


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, None, "5"])
def test_a_cap_is_a_whole_number_from_1_up(wrong: Any) -> None:
    with pytest.raises(HandrailError, match=r"Caps\.stdout"):
        Caps(stdout=wrong)
