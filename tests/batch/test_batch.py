"""A batch resumes, tries again what was lost, slows down, stops, and never scores an infrastructure failure as 0."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import HandrailError, ModelFailed, Store, Tool, Usage
from handrail.batch import Done, Here, Lost, Task, Totals, run_batch
from handrail.batch import _pace as pace
from handrail.batch._ledger import RESULTS, read_results
from tests.batch.models import PRICE, Failing, PromptedModel, prompt

pytestmark = pytest.mark.anyio


class FakeCrew:
    """Does tasks without a sandbox: `outcomes` by task id are raised or returned, the last one again and again."""

    def __init__(self, slots: int = 100, **outcomes: list[Any]) -> None:
        self.slots, self.outcomes = slots, outcomes
        self.begun: list[tuple[str, int]] = []
        self.running = self.most = 0
        self.open = False

    async def start(self, out: Path) -> None:
        self.open = True

    async def do(self, task: Task, sample: int, session_id: str) -> tuple[Done, Iterable[str]]:
        assert self.open
        self.begun.append((task.id, sample))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await anyio.sleep(0.001)
            outcomes = self.outcomes.get(task.id, self.outcomes.get("every", [1.0]))
            outcome = outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]
            if isinstance(outcome, Exception):
                raise outcome
            return result(task.id, sample, outcome, session_id), ()
        finally:
            self.running -= 1

    async def close(self) -> None:
        self.open = False


def result(id: str, sample: int, reward: float | None, session: str = "s", reason: str = "done") -> Done:
    return Done(id, sample, 1, reason, "", reward, None, Usage(1, 1, cost=PRICE), 0, 0.1, session, "here")


def tasks(count: int) -> list[Task]:
    return [Task(f"t{number}", "x") for number in range(count)]


def ended() -> Lost:
    return Lost("the sandbox ended", kind="sandbox_ended", done=result("t0", 0, 0.0, reason="sandbox_ended"))


def busy(after: float | None = None) -> Lost:
    return Lost("busy", kind="model", retry_after=after)


async def test_every_task_is_done_once_and_a_second_start_does_nothing(tmp_path: Path) -> None:
    crew = FakeCrew()
    totals = await run_batch(tasks(20), crew, tmp_path, jobs=7)
    assert (totals.tasks, totals.done, totals.solved, totals.lost, totals.stopped) == (20, 20, 20, 0, "")
    assert (crew.most, crew.open) == (7, False)
    before = (tmp_path / RESULTS).read_bytes()
    again = FakeCrew()
    totals = await run_batch(tasks(20), again, tmp_path, jobs=7)
    assert (again.begun, totals.done, totals.new) == ([], 20, 0)
    assert (tmp_path / RESULTS).read_bytes() == before
    assert totals.usage.cost == pytest.approx(20 * PRICE)


async def test_samples_only_and_limit_choose_what_is_done(tmp_path: Path) -> None:
    crew = FakeCrew()
    await run_batch(tasks(5), crew, tmp_path, jobs=1, samples=2, limit=2)
    assert crew.begun == [("t0", 0), ("t0", 1), ("t1", 0), ("t1", 1)]
    crew = FakeCrew()
    totals = await run_batch(tasks(5), crew, tmp_path, jobs=1, samples=2, only=["t1", "t4"])
    assert (crew.begun, totals.tasks) == ([("t4", 0), ("t4", 1)], 4)
    with pytest.raises(HandrailError, match="there is no task 't9'"):
        await run_batch(tasks(5), crew, tmp_path, jobs=1, samples=2, only=["t9"])


async def test_a_lost_task_is_tried_again_and_then_is_lost_with_its_errors(tmp_path: Path) -> None:
    crew = FakeCrew(t0=[Lost("one", kind="setup"), 1.0], t1=[Lost("two", kind="setup")])
    totals = await run_batch(tasks(4), crew, tmp_path, jobs=1)
    lines = {done.id: done for done in read_results(tmp_path)}
    assert (lines["t0"].reward, lines["t0"].tries, lines["t0"].errors) == (1.0, 2, ("one",))
    assert (lines["t1"].reason, lines["t1"].reward, lines["t1"].tries) == ("lost", None, 3)
    assert lines["t1"].errors == ("two",) * 3
    assert '"reason":"lost","text":"","reward":null' in (tmp_path / RESULTS).read_text()
    assert (totals.lost, totals.rewarded, totals.reward) == (1, 3, 3.0)
    crew = FakeCrew()
    await run_batch(tasks(4), crew, tmp_path, jobs=1)
    assert crew.begun == []
    totals = await run_batch(tasks(4), crew, tmp_path, jobs=1, retry_lost=True)
    assert (crew.begun, totals.lost) == ([("t1", 0)], 0)


@pytest.mark.parametrize("tries", [1, 3])
async def test_a_sandbox_that_ends_twice_gives_zero_and_is_never_lost(tmp_path: Path, tries: int) -> None:
    crew = FakeCrew(t0=[ended()])
    await run_batch(tasks(1), crew, tmp_path, jobs=1, tries=tries)
    (done,) = read_results(tmp_path)
    assert (done.reason, done.reward, done.tries, len(done.errors)) == ("sandbox_ended", 0.0, 2, 1)


async def test_a_sandbox_that_ends_once_is_forgiven(tmp_path: Path) -> None:
    await run_batch(tasks(1), FakeCrew(t0=[ended(), 1.0]), tmp_path, jobs=1)
    assert read_results(tmp_path)[0].reward == 1.0


async def test_a_model_that_breaks_every_sandbox_stops_no_batch(tmp_path: Path) -> None:
    lost = Lost("ended", kind="sandbox_ended", done=result("x", 0, 0.0, reason="sandbox_ended"))
    totals = await run_batch(tasks(1), FakeCrew(every=[lost]), tmp_path, jobs=1)
    assert (totals.stopped, totals.lost, totals.reasons) == ("", 0, {"sandbox_ended": 1})


@pytest.mark.parametrize("failure", [Lost("wrong key", kind="configuration"), HandrailError("wrong key")])
async def test_a_wrong_key_stops_the_batch_and_records_nothing(tmp_path: Path, failure: Exception) -> None:
    totals = await run_batch(tasks(9), crew := FakeCrew(every=[failure]), tmp_path, jobs=1)
    assert (totals.stopped, totals.done, len(crew.begun)) == ("wrong key", 0, 1)
    assert (tmp_path / RESULTS).read_bytes() == b""


async def test_five_losses_alike_in_a_row_stop_the_batch_and_none_of_them_is_recorded(tmp_path: Path) -> None:
    crew = FakeCrew(every=[Lost("setup 17 failed", kind="setup"), Lost("setup 18 failed", kind="setup")], t0=[1.0])
    totals = await run_batch(tasks(9), crew, tmp_path, jobs=1, tries=1)
    assert "5 times in a row" in totals.stopped
    assert [done.id for done in read_results(tmp_path)] == ["t0"]
    assert len(crew.begun) == 6


async def test_losses_of_one_task_or_of_different_kinds_do_not_stop_the_batch(tmp_path: Path) -> None:
    crew = FakeCrew(t0=[Lost("bad", kind="setup")], t1=[Lost("other", kind="setup")], t2=[Lost("third", kind="setup")])
    totals = await run_batch(tasks(9), crew, tmp_path, jobs=1, tries=7)
    assert (totals.stopped, totals.lost, totals.done) == ("", 3, 9)


async def test_a_busy_provider_slows_every_slot(tmp_path: Path) -> None:
    events: list[Mapping[str, Any]] = []
    crew = FakeCrew(t0=[busy(0.6), 1.0])
    began = anyio.current_time()
    totals = await run_batch(tasks(3), crew, tmp_path, jobs=1, show=lambda event, _: events.append(event))
    assert (totals.solved, totals.stopped) == (3, "")
    assert anyio.current_time() - began >= 0.6
    assert [event["wait"] for event in events if event["event"] == "again"] == [0.6]


def test_tasks_that_ran_when_a_pause_began_count_once_together() -> None:
    kept = pace.Pace(8)
    assert kept.bad(busy(), "a", began=1.0) == pace.FIRST_PAUSE_SECONDS
    for task in "bcdefgh":
        kept.bad(busy(), task, began=1.0)
    assert not kept.hopeless
    assert kept.wait(running=4) == float("inf")
    assert 0 < kept.wait(running=3) <= pace.FIRST_PAUSE_SECONDS
    kept.good()
    assert kept.wait(running=4) <= pace.FIRST_PAUSE_SECONDS


async def test_an_exception_of_a_crew_loses_the_task_and_not_the_batch(tmp_path: Path) -> None:
    totals = await run_batch(tasks(2), FakeCrew(t0=[RuntimeError("bug"), 1.0]), tmp_path, jobs=1)
    assert (totals.done, totals.errors) == (2, {"RuntimeError: bug": 1})


async def test_a_stop_lets_what_runs_finish_and_begins_nothing(tmp_path: Path) -> None:
    stop = anyio.Event()

    def show(event: Mapping[str, Any], totals: Totals) -> None:
        if event["event"] == "begun" and totals.running == 3:
            stop.set()

    totals = await run_batch(tasks(50), crew := FakeCrew(), tmp_path, jobs=3, show=show, stop=stop)
    assert (len(crew.begun), totals.done, totals.interrupted) == (3, 3, True)


async def test_a_cancelled_batch_writes_no_line_for_what_ran(tmp_path: Path) -> None:
    class Slow(FakeCrew):
        async def do(self, task: Task, sample: int, session_id: str) -> tuple[Done, Iterable[str]]:
            if task.id != "t0":
                await anyio.sleep(60)
            return await super().do(task, sample, session_id)

    crew = Slow()
    with anyio.move_on_after(0.3):
        await run_batch(tasks(5), crew, tmp_path, jobs=5)
    assert [done.id for done in read_results(tmp_path)] == ["t0"]
    assert not crew.open


async def test_the_lines_of_a_far_session_are_stored_before_its_result(tmp_path: Path) -> None:
    here = Here(PromptedModel())
    await here.start(tmp_path / "far")
    done, _ = await here.do(Task("t0", prompt()), 0, "t0.0.x")
    await here.close()
    lines = list(Store(tmp_path / "far" / "sessions.db").export(done.session))

    class Far(FakeCrew):
        async def do(self, task: Task, sample: int, session_id: str) -> tuple[Done, Iterable[str]]:
            return done, iter(lines)

    await run_batch(tasks(1), Far(), tmp_path / "out", jobs=1)
    (line,) = read_results(tmp_path / "out")
    assert any(event.type == "run_ended" for event in Store(tmp_path / "out" / "sessions.db").events(line.session))


async def test_100_000_lines_are_resumed(tmp_path: Path) -> None:
    many = tasks(3)
    await run_batch(many, FakeCrew(), tmp_path, jobs=1, limit=1)
    with (tmp_path / RESULTS).open("a") as file:
        file.writelines(f"{result(f'x{number}', 0, 1.0).to_json()}\n" for number in range(100_000))
    totals = await run_batch(many, FakeCrew(), tmp_path, jobs=1)
    assert (totals.done, totals.new) == (3, 2)


async def test_here_does_real_tasks_and_keeps_their_sessions(tmp_path: Path) -> None:
    real = [Task(f"t{n}", prompt(f"echo {n} > made"), check=f"grep -q {n % 3} made") for n in range(4)]
    totals = await run_batch(real, Here(PromptedModel()), tmp_path, jobs=4)
    assert (totals.solved, totals.rewarded) == (3, 4)
    store = Store(tmp_path / "sessions.db")
    assert {line.session for line in read_results(tmp_path)} == {each.id for each in store.sessions()}
    with pytest.raises(HandrailError, match="with model 'prompted', and this is 'failing'"):
        await run_batch(real, Here(Failing(ModelFailed("x"))), tmp_path, jobs=1)
    with pytest.raises(HandrailError, match="of other tasks"):
        await run_batch(tasks(2), Here(PromptedModel()), tmp_path, jobs=1)


async def test_a_model_that_fails_each_third_time_loses_no_task(tmp_path: Path) -> None:
    model = Failing(ModelFailed("refused", kind="error"), every=3)
    totals = await run_batch(tasks(6), Here(model), tmp_path, jobs=1)
    assert (totals.done, totals.lost, totals.stopped) == (6, 0, "")


async def test_a_model_that_fails_always_stops_the_batch(tmp_path: Path) -> None:
    totals = await run_batch(tasks(20), FakeCrew(every=[Lost("refused", kind="setup")]), tmp_path, jobs=4)
    assert "refused" in totals.stopped
    assert totals.done == 0


async def test_tools_that_act_outside_the_sandbox_need_may_repeat(tmp_path: Path) -> None:
    async def body(context: Any, arguments: Any) -> str:
        return "paid"

    spends = Tool("pay", {"type": "object"}, body, description="Pay.", effects={"spends"})
    with pytest.raises(HandrailError, match="pay can act outside the sandbox"):
        Here(PromptedModel(), tools=[spends])
    Here(PromptedModel(), tools=[spends], may_repeat=True)


@pytest.mark.parametrize("wrong", [{"jobs": 0}, {"jobs": 1, "tries": 0}, {"jobs": 1, "samples": 0}])
async def test_a_number_that_makes_no_sense_is_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(HandrailError, match="a whole number above 0"):
        await run_batch(tasks(1), FakeCrew(), tmp_path, **wrong)


async def test_two_tasks_of_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HandrailError, match="two tasks have the id 't0'"):
        await run_batch([*tasks(1), *tasks(1)], FakeCrew(), tmp_path, jobs=1)
