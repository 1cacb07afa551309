"""A program that is killed at any moment loses no event that it showed, and repeats no effect."""

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from handrail import Store

PROGRAM = Path(__file__).with_name("killed_program.py")
Shown = list[list[Any]]


def run(directory: Path, wait: float | None, kind: str = "store") -> Shown:
    """Run the program, kill it after a while, and return what it showed."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), str(directory), kind], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        if wait is None:
            shown = process.stdout.readlines()
        else:
            first = process.stdout.readline()  # it has begun
            sleep(wait)
            process.kill()
            shown = [first, *process.stdout.readlines()]
    return [json.loads(line) for line in shown if line.endswith("\n")]


def check(directory: Path, shown: Shown) -> None:
    """Fail unless every event that was shown is stored, every call has one result, and no effect came twice."""
    store = Store(directory / "sessions.db")
    (summary,) = store.sessions()
    events = list(store.events(summary.id))
    assert [event.seq for event in events] == list(range(len(events)))
    for seq, type, call_id in shown:
        assert len(events) > seq, f"event {seq} was shown and is not stored"
        assert (events[seq].type, events[seq].call_id) == (type, call_id)
    effects = Counter((directory / "effects").read_text().split()) if (directory / "effects").exists() else Counter()
    assert not [line for line, times in effects.items() if times > 1]
    began = [event.call_id for event in events if event.type == "call_running"]
    assert len(effects) <= len(began), "an effect came before its call_running was stored"


def all_ended(directory: Path) -> None:
    store = Store(directory / "sessions.db")
    (summary,) = store.sessions()
    events = list(store.events(summary.id))
    asked = [call["id"] for event in events if event.type == "model_answered" for call in event.data["calls"]]
    started = [event.call_id for event in events if event.type == "call_started"]
    ended = [event.call_id for event in events if event.type == "call_ended"]
    assert sorted(asked) == sorted(started) == sorted(set(ended)) == sorted(ended)
    assert asked, "no call was made, so nothing was shown"
    effects = set((directory / "effects").read_text().split())
    for event in events:
        if event.type == "call_ended":
            n = str(int(event.call_id.removeprefix("c").split("_")[0]))  # type: ignore[union-attr]
            kind = event.data["kind"]
            assert kind in (None, "unknown_outcome", "unavailable", "cancelled")
            assert kind != "unavailable" or n not in effects, "a call with effects was said not to have run"
            assert kind is not None or n in effects


def kill_and_resume(directory: Path, times: int, kind: str = "store") -> int:
    """Kill the program so often, and let it end. Returns how often it was killed in the middle."""
    took = _time_of_a_run(directory.with_name(f"{directory.name}-whole"))
    shown: Shown = []
    killed = 0
    for _ in range(times):
        new = run(directory, random.random() * took, kind)
        over = bool(new) and new[-1][0] == "ended"
        shown += new[:-1] if over else new
        killed += not over
        check(directory, shown)
        if over:
            break
    run(directory, None, kind)
    check(directory, shown)
    all_ended(directory)
    return killed


def _time_of_a_run(directory: Path) -> float:
    """Seconds from the first event to the last, as this machine is now."""
    directory.mkdir()
    assert run(directory, None)[-1] == ["ended", "done"]
    store = Store(directory / "sessions.db")
    events = list(store.events(store.sessions()[0].id))
    return events[-1].time - events[0].time


def kill_often(tmp_path: Path, times: int) -> None:
    killed = number = 0
    while killed < times:
        number += 1
        assert number < 10 * times, f"the program was killed only {killed} times"
        directory = tmp_path / f"d{number}"
        directory.mkdir()
        killed += kill_and_resume(directory, times - killed)


@pytest.mark.parametrize("part", range(5))
def test_a_program_killed_and_resumed_loses_nothing_and_repeats_nothing(tmp_path: Path, part: int) -> None:
    kill_often(tmp_path, 4)  # 20 in all


@pytest.mark.long
@pytest.mark.parametrize("part", range(30))
def test_three_hundred_kills_lose_nothing_and_repeat_nothing(tmp_path: Path, part: int) -> None:
    kill_often(tmp_path, 10)


def test_a_store_that_writes_late_is_caught_by_the_same_check(tmp_path: Path) -> None:
    for number in range(40):
        directory = tmp_path / f"d{number}"
        directory.mkdir()
        shown = run(directory, random.random() * 0.2, "late")
        if shown and shown[-1][0] != "ended" and len(shown) > 3:
            try:
                check(directory, shown)
            except (AssertionError, ValueError):
                return
    pytest.fail("it was never caught, or the program was never killed in the middle")
