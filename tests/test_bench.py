"""The bench runs whole in its quick mode, and its arithmetic is right."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.__main__ import main, subjects
from bench.growth import exponent
from bench.measure import QUICK, Row, Times, interleave, row, table

ROOT = Path(__file__).resolve().parents[1]
GUARDED = [
    "bytes read by plain Python, wall", "the same through a capped call", "the most memory this process had meanwhile",
    "kill: a child that called setsid", "kill: 20 processes", "kill: 2 fork-and-exit chains",
    "processes that survived all of this",
]  # fmt: skip
PROMISED = {
    "adapters": ["pydantic-ai: a call of its own function tool", "pydantic-ai: what that adds"],
    "answers": ["objects: a call that answers them", "longest wait of others", "from one tool to the next"],
    "bombs": [
        "requests", "requests out at once", "until all ended", "MiB in the transcript", "longest silence",
        "an unknown name among", "nested 5,000 deep",
    ],
    "calls": ["async tool", "def tool, in a thread", "calls of 10 ms in call_all, wall", "1 MiB of text as a result"],
    "derive": ["tools by @tool: derived and compiled"],
    "gates": [
        "record", "shape", "budget", "breaker", "preflight", "permit", "lane", "references", "deadline",
        "invoke, with the body", "all of it",
    ],
    "growth": ["in one session", "session: growth exponent", "in one run of an agent", "agent: growth exponent"],
    "host": [
        'subprocess.run(["true"]), wall', "argv true, Sandbox.run", 'subprocess.run(["bash", "-c", "true"])',
        "the line true, against bash", "start a sandbox and get an answer", *GUARDED,
    ],
    "importing": ["import pydantic", "import handrail", "validate_call: the first answer", "@tool: the first answer"],
    "jail": [
        'subprocess.run(["true"]), wall', "the same, bash -c true", "argv true, host driver", "argv true in a jail",
        "the line true in a jail", "the line true, Sandbox.run", "make a jail and get an answer",
        "bubblewrap for each command", "the line, against bash outside", "jails, made one after the other",
        "idle memory (PSS), mean of", *GUARDED,
    ],
    "lanes": ["waiting: writers", "writers: growth exponent", "writers inside a call: growth exponent"],
    "mcp": [
        "a call in memory, 2025-11-25: ours, with all gates", "a call over stdio, 2026-07-28: ours, with all gates",
        "start until the first answer: handrail mcp", "clients at once: one more command each",
    ],
    "store": [
        "what the store adds, against as many INSERTs", "memory: growth exponent", "stored: growth exponent",
        "64 sessions together, wall", "Session.resume of",
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def out_of_the_collectors_sight() -> Iterator[None]:
    """A bench collects garbage before every sample, and the objects of two thousand tests are none of it."""
    gc.freeze()
    yield
    gc.unfreeze()


LONG = ("mcp",)
"""Subjects that start many programs of their own."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in sorted(subjects())]
)
def test_a_subject_reports_every_row_it_promises(name: str) -> None:
    rows = list(subjects()[name].rows(QUICK))
    names = [each.name for each in rows]
    assert rows
    assert len(set(names)) == len(names)
    for promised in PROMISED.get(name, []):
        assert any(promised in each for each in names), f"{promised} is not in {names}"
    assert all(isinstance(each.value, float) for each in rows)
    assert all(each.name in table(rows) for each in rows)


def test_every_promised_subject_is_found_by_its_file_alone() -> None:
    assert set(PROMISED) <= set(subjects())
    assert {"measure", "floor", "guarded"}.isdisjoint(subjects())


def test_a_subject_that_is_named_is_measured_where_what_another_needs_is_not_installed() -> None:
    program = "import sys; sys.modules['mcp'] = None; from bench.__main__ import main; main(['gates', '--quick'])"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "no bound was judged" in done.stdout


def test_the_command_prints_a_table_and_judges_nothing_when_it_is_quick() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "gates", "--quick"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ratio" in done.stdout
    assert "all of it" in done.stdout
    assert "no bound was judged" in done.stdout


def test_an_unknown_subject_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["nonsense"])
    assert refused.value.code == 2
    assert "growth" in capsys.readouterr().err


def test_a_ratio_is_the_median_of_the_ratios_within_each_round() -> None:
    floor, slow_minute = Times((1.0, 10.0, 1.0)), Times((3.0, 30.0, 4.0))
    assert slow_minute.against(floor) == 3.0
    assert row("call", slow_minute, "ms", floor=floor).at_best == 3.0
    assert row("call", slow_minute, "ms", floor=floor).value == 4000.0


def test_a_bound_is_on_the_ratio_and_where_there_is_none_on_the_value() -> None:
    assert Row("call", 50.0, "µs", 9.9, bound=10.0).ok
    assert not Row("call", 5.0, "µs", 10.1, bound=10.0).ok
    assert not Row("exponent", 1.2, "", bound=1.1).ok
    assert "NO" in table([Row("exponent", 1.2, "", bound=1.1)])


def test_the_exponent_tells_linear_growth_from_quadratic() -> None:
    sizes = [50, 200, 800, 3200]
    assert exponent(sizes, [0.1 * size for size in sizes]) == pytest.approx(1.0)
    assert exponent(sizes, [0.1 * size**2 for size in sizes]) == pytest.approx(2.0)


def test_rounds_are_interleaved_and_the_first_one_is_thrown_away() -> None:
    taken: list[str] = []

    def sample(name: str) -> float:
        taken.append(name)
        return float(len(taken))

    times = interleave({"floor": lambda: sample("floor"), "call": lambda: sample("call")}, 2)
    assert taken == ["floor", "call"] * 3
    assert times["floor"].rounds == (3.0, 5.0)
    assert times["call"].rounds == (4.0, 6.0)
