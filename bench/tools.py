"""What the file tools cost in a jail, each beside the plain command that does the same there. Wall time."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import anyio

from bench.measure import Effort, Row, Times, row
from handrail import Policy, Session, builtin_tools, open_sandbox

LINES: Final = 16_384
LINE: Final = "a line of sixty-three letters, as they come in programs of old\n"
GREPPED: Final = 5_000
GLOBBED: Final = 50_000
IN_ONE_DIRECTORY: Final = 100
Call = tuple[str, dict[str, Any]]


def rows(effort: Effort) -> list[Row]:
    work = Path(tempfile.mkdtemp(prefix="handrail-bench-"))
    try:
        _furnish(work, effort)
        times = anyio.run(_measure, work, effort)
    finally:
        shutil.rmtree(work)
    found: list[Row] = []
    for name, (_, plain) in pairs().items():
        found.append(row(f"{name}: {plain.split()[0]}", times[f"{name} plain"], "ms"))
        found.append(row(name, times[name], "ms", floor=times[f"{name} plain"]))
    found.append(row("grep without ripgrep", times["without"], "ms", floor=times.get("grep over 5,000 files plain")))
    return found


PAIRS: Final[dict[str, tuple[Callable[[int], Call], str]]] = {
    "read of 1 MB": (lambda n: ("read", {"path": "big.txt", "offset": LINES - 100}), "tail -n 101 big.txt"),
    "edit of 1 MB": (
        lambda n: ("edit", {"path": "big.txt", "edits": [{"old": f"<{n}>", "new": f"<{n + 1}>"}]}),
        "sed -i s/<0>/<0>/ other.txt",
    ),
    "grep over 5,000 files": (lambda n: ("grep", {"pattern": "nee+dle", "path": "few"}), "rg -n nee+dle few"),
    "glob over 50,000 files": (lambda n: ("glob", {"pattern": "**/*7.txt", "path": "many"}), "find many -name *7.txt"),
}


def pairs() -> dict[str, tuple[Callable[[int], Call], str]]:
    """Those whose plain command is on this machine: dev.py installs ripgrep where it may."""
    return {name: pair for name, pair in PAIRS.items() if shutil.which(pair[1].split()[0])}


def _furnish(work: Path, effort: Effort) -> None:
    (work / "big.txt").write_text("<0>\n" + LINE * LINES)
    (work / "other.txt").write_text("<0>\n" + LINE * LINES)
    for name, count in (("few", effort.count(GREPPED)), ("many", effort.count(GLOBBED))):
        for number in range(count):
            directory = work / name / str(number // IN_ONE_DIRECTORY)
            if number % IN_ONE_DIRECTORY == 0:
                directory.mkdir(parents=True)
            text = LINE * 40 + ("needle\n" if number % 100 == 0 else "") if name == "few" else ""
            (directory / f"{number}.txt").write_text(text)


async def _measure(work: Path, effort: Effort) -> dict[str, Times]:
    async with (
        open_sandbox("jail", workspace=str(work)) as sandbox,
        open_sandbox("jail", workspace=str(work), env={"PATH": os.devnull}) as bare,
        Session(builtin_tools(), sandbox=sandbox, policy=Policy(mode="open")) as session,
        Session(builtin_tools(), sandbox=bare, policy=Policy(mode="open")) as without,
    ):
        taken: dict[str, list[float]] = {}
        for number in range(effort.rounds + 1):
            for name, (tool, plain) in pairs().items():
                began = perf_counter()
                assert (await session.call(*tool(number))).ok
                middle = perf_counter()
                await sandbox.run(plain.split())
                taken.setdefault(name, []).append(middle - began)
                taken.setdefault(f"{name} plain", []).append(perf_counter() - middle)
            began = perf_counter()
            assert (await without.call(*PAIRS["grep over 5,000 files"][0](number))).ok
            taken.setdefault("without", []).append(perf_counter() - began)
    return {name: Times(tuple(seconds[1:])) for name, seconds in taken.items()}
