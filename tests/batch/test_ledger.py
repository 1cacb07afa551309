"""A line of results.jsonl is the commit: none is lost, changed or believed twice, however the file was torn."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from handrail import HandrailError, Usage
from handrail.batch import Done
from handrail.batch._ledger import ABOUT, RESULTS, Ledger, read_results

ABOUT_IT = {"tasks": "abc", "model": "m"}


def result(id: str, sample: int = 0, reason: str = "done", reward: float | None = 1.0) -> Done:
    return Done(
        id, sample, 1, reason, "ünï\n", reward, {"exit_code": 0, "output": "x"}, Usage(1, 2, cost=0.5), 3, 1.5, "s", "n"
    )


def written(out: Path, *results: Done) -> bytes:
    ledger = Ledger(out, ABOUT_IT)
    for each in results:
        ledger.append(each)
    ledger.close()
    return (out / RESULTS).read_bytes()


def test_what_is_appended_is_there_at_the_next_start(tmp_path: Path) -> None:
    made = [result("a"), result("a", 1), result("b", reason="lost", reward=None)]
    written(tmp_path, *made)
    ledger = Ledger(tmp_path, ABOUT_IT)
    assert list(ledger.results.values()) == made
    assert read_results(tmp_path) == made
    assert (tmp_path / RESULTS).stat().st_mode & 0o777 == 0o600
    ledger.close()


def test_a_file_torn_at_any_byte_keeps_every_whole_line_and_takes_the_next(tmp_path: Path) -> None:
    whole = written(tmp_path, result("a"), result("b"))
    first = whole.index(b"\n") + 1
    for end in range(len(whole) + 1):
        (tmp_path / RESULTS).write_bytes(whole[:end])
        ledger = Ledger(tmp_path, ABOUT_IT)
        # A line that lacks nothing but its end was written whole.
        expected = ["a"] * (end >= first - 1) + ["b"] * (end >= len(whole) - 1)
        assert [id for id, _ in ledger.results] == expected, end
        ledger.append(result("c"))
        ledger.close()
        lines = (tmp_path / RESULTS).read_bytes().splitlines()
        assert [json.loads(line)["id"] for line in lines] == [*expected, "c"], end


@pytest.mark.parametrize(
    ("foreign", "said"),
    [
        (b"hello", "Expecting value"), (b"[]", "it is not a result"), (b"{}", "it is not a result"), (b"", "line 2"),
        (b'{"id": "x"}', "it is not a result"), (result("a").to_json().encode(), "has a result above it"),
        (result("z").to_json().replace('"reward":1.0', '"reward":NaN').encode(), "reward"),
        (result("z", reason="lost", reward=None).to_json().replace('"reward":null', '"reward":0.0').encode(), "lost"),
    ],
)  # fmt: skip
def test_a_foreign_line_is_named_and_nothing_is_changed(tmp_path: Path, foreign: bytes, said: str) -> None:
    whole = written(tmp_path, result("a"), result("b"))
    first = whole.index(b"\n") + 1
    changed = whole[:first] + foreign + b"\n" + whole[first:]
    (tmp_path / RESULTS).write_bytes(changed)
    with pytest.raises(HandrailError, match="line 2") as refused:
        Ledger(tmp_path, ABOUT_IT)
    assert said in str(refused.value) or not foreign
    assert (tmp_path / RESULTS).read_bytes() == changed


def test_a_lost_line_may_be_followed_by_a_result(tmp_path: Path) -> None:
    written(tmp_path, result("a", reason="lost", reward=None), result("a"))
    ledger = Ledger(tmp_path, ABOUT_IT)
    assert ledger.results["a", 0].reason == "done"
    ledger.close()


def test_two_batches_do_not_work_in_one_directory(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, ABOUT_IT)
    with pytest.raises(HandrailError, match="another batch works in"):
        Ledger(tmp_path, ABOUT_IT)
    ledger.close()
    Ledger(tmp_path, ABOUT_IT).close()


@pytest.mark.parametrize(("name", "said"), [("tasks", "of other tasks"), ("model", "with model 'm', and this is 'x'")])
def test_the_directory_of_another_batch_is_refused(tmp_path: Path, name: str, said: str) -> None:
    whole = written(tmp_path, result("a"))
    with pytest.raises(HandrailError, match=said):
        Ledger(tmp_path, {**ABOUT_IT, name: "x"})
    assert (tmp_path / RESULTS).read_bytes() == whole


def test_results_without_their_description_are_refused(tmp_path: Path) -> None:
    written(tmp_path, result("a"))
    (tmp_path / ABOUT).unlink()
    with pytest.raises(HandrailError, match=r"no batch\.json"):
        Ledger(tmp_path, ABOUT_IT)
    (tmp_path / ABOUT).write_text("{")
    with pytest.raises(HandrailError, match="cannot be read"):
        Ledger(tmp_path, ABOUT_IT)


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        Ledger(tmp_path / "file", ABOUT_IT)
    (tmp_path / RESULTS).mkdir()
    with pytest.raises(IsADirectoryError):
        Ledger(tmp_path, ABOUT_IT)


FULL = """
import resource, signal, sys
from pathlib import Path
from handrail.batch._ledger import Ledger
from tests.batch.test_ledger import ABOUT_IT, result
ledger = Ledger(Path(sys.argv[1]), ABOUT_IT)
ledger.append(result("a"))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    ledger.append(result("b"))
except OSError as error:
    print(error.errno)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
ledger.append(result("c"))
"""


def test_a_line_for_which_there_is_no_room_leaves_nothing_behind(tmp_path: Path) -> None:
    room = len(result("a").to_json().encode()) + 50
    argv = [sys.executable, "-c", FULL, str(tmp_path), str(room)]
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run(argv, capture_output=True, text=True, cwd=root, check=False, timeout=60)
    assert ran.stdout == "27\n", ran.stderr
    assert [done.id for done in read_results(tmp_path)] == ["a", "c"]
    Ledger(tmp_path, ABOUT_IT).close()
