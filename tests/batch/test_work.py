"""A task runs in a fresh sandbox, is checked with files that the agent could not see, and its failure has a cause."""

import io
import os
import signal
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from handrail import Budget, Call, Completed, HandrailError, Limits, ModelFailed, Store, Turn
from handrail.batch import Done, Lost, Task, do_task
from handrail.batch.work import TaskOptions, reward_of, work_on
from handrail.testing import MemoryDriver, ScriptedModel
from tests.batch.models import PRICE, PromptedModel, prompt

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "sessions.db") as opened:
        yield opened


async def done(store: Store, task: Task, model: Any = None, **options: Any) -> Done:
    return await do_task(task, model or PromptedModel(), store=store, **options)


async def test_a_task_is_done_checked_and_stored(store: Store) -> None:
    task = Task(
        "sum", prompt("cat given.txt > made.txt"), files={"given.txt": "4"}, setup="echo 2 >> given.txt",
        check="grep -q 42 <(tr -d '\\n' < made.txt) && python3 check.py", check_files={"check.py": "print('good')"},
        meta={"level": 1},
    )  # fmt: skip
    found = await done(store, task, session_id="sum.0", sample=3)
    assert (found.id, found.sample, found.tries, found.reason, found.text) == ("sum", 3, 1, "done", "Done.")
    assert found.reward == 1.0
    assert found.check == {"exit_code": 0, "output": "good\n"}
    assert (found.calls, found.session, found.errors) == (1, "sum.0", ())
    assert found.usage.cost == pytest.approx(2 * PRICE)
    assert found.node == os.uname().nodename
    assert Done.from_json(found.to_json()) == found
    scored = [event for event in store.events("sum.0") if event.type == "scored"]
    assert [event.data["reward"] for event in scored] == [1.0]
    assert scored[0].data["meta"] == {"level": 1}


async def test_each_task_has_a_fresh_sandbox(store: Store) -> None:
    first = await done(store, Task("a", prompt("touch seen; touch /tmp/seen"), check="test -e seen"))
    second = await done(store, Task("b", prompt("true"), check="test -e seen || test -e /tmp/seen"))
    assert (first.reward, second.reward) == (1.0, 0.0)


async def test_the_agent_cannot_see_the_files_of_the_check(store: Store) -> None:
    task = Task("a", prompt("find / -name secret_check.py 2>/dev/null; ls -a"), check="test -e secret_check.py",
                check_files={"secret_check.py": "1"})  # fmt: skip
    found = await done(store, task)
    assert found.reward == 1.0
    assert "secret_check" not in str([e.data["result"] for e in store.events(found.session) if e.type == "call_ended"])


@pytest.mark.parametrize(
    "planted",
    ["mkdir -p tests/check.py", "echo x > tests", "mkdir tests; ln -s /etc/passwd tests/check.py",
     "mkdir tests; ln -s loop tests/check.py; ln -s ../tests/check.py tests/loop"],
)  # fmt: skip
async def test_what_the_agent_puts_in_the_place_of_a_check_is_replaced(store: Store, planted: str) -> None:
    task = Task("a", prompt(planted), check="python3 tests/check.py", check_files={"tests/check.py": "print(1)"})
    found = await done(store, task)
    assert (found.reward, found.errors) == (1.0, ())


@pytest.mark.parametrize(
    ("check", "reward"),
    [
        ("exit 0", 1.0), ("exit 3", 0.0), ("echo '{\"reward\": 0.25}'", 0.25),
        ("echo '{\"reward\": -2}'; exit 1", -2.0), ("echo '{\"reward\": 0.5}'; echo more", 1.0),
        ("echo '{\"reward\": NaN}'", 0.0), ("echo '{\"reward\": \"1\"}'", 0.0), ("echo '{\"reward\": Infinity}'", 0.0),
        ("echo '{\"score\": 1}'; exit 1", 0.0), ("echo '{'", 1.0), ("sleep 60 & sleep 60 & true", 1.0),
    ],
)  # fmt: skip
async def test_the_check_decides_the_reward(store: Store, check: str, reward: float) -> None:
    found = await done(store, Task("a", prompt(), check=check))
    assert found.reward == reward


def test_a_reward_that_is_too_large_for_a_number_is_none() -> None:
    assert reward_of(Completed(0, f'{{"reward": 1{"0" * 400}}}'))[0] == 0.0


async def test_without_a_check_there_is_no_reward(store: Store) -> None:
    found = await done(store, Task("a", prompt()))
    assert (found.reason, found.reward, found.check) == ("done", None, None)
    assert "scored" not in {event.type for event in store.events(found.session)}


async def test_a_check_that_prints_very_much_is_cut(store: Store) -> None:
    found = await done(store, Task("a", prompt(), check="head -c 200000000 /dev/zero | tr '\\0' x; echo; echo end"))
    assert found.reward == 1.0
    assert found.check is not None
    assert len(found.check["output"]) <= 8_000
    assert found.check["output"].endswith("end\n")


async def test_a_check_that_takes_too_long_gives_zero(store: Store) -> None:
    found = await done(store, Task("a", prompt(), check="echo '{\"reward\": 1}'; sleep 60", check_timeout=0.5))
    assert (found.reason, found.reward) == ("done", 0.0)
    assert found.errors == ("the check was ended by timeout",)


async def test_the_jobs_of_the_agent_have_ended_before_the_check(store: Store) -> None:
    job = Call("1", "bash", {"command": "trap '' TERM; while :; do date >> log; sleep 0.05; done", "background": True})
    begun = Call("2", "bash", {"command": "until test -s log; do sleep 0.01; done"})
    model = ScriptedModel([Turn(calls=(job,)), Turn(calls=(begun,)), "Done."])
    check = "cp log before; sleep 0.5; cmp log before"
    assert (await done(store, Task("a", "x", check=check), model)).reward == 1.0


@pytest.mark.parametrize(
    ("reason", "options", "turn"),
    [
        ("round_limit", {"rounds": 1}, Turn(calls=(Call("1", "bash", {"command": "true"}),))),
        ("budget", {"budget": Budget(requests=1)}, Turn(calls=(Call("1", "bash", {"command": "true"}),))),
        ("cut", {}, Turn("half", stop="max_tokens")),
        ("refused", {}, Turn("no", stop="refused")),
    ],
)
async def test_however_the_run_ends_the_check_decides(
    store: Store, reason: str, options: dict[str, Any], turn: Turn
) -> None:
    found = await done(store, Task("a", "x", check="true"), ScriptedModel([turn]), **options)
    assert (found.reason, found.reward) == (reason, 1.0)


async def test_an_answer_without_content_is_the_models_own_doing(store: Store) -> None:
    found = await done(store, Task("a", "x", check="false"), ScriptedModel([Turn(), Turn()]))
    assert (found.reason, found.reward) == ("model_error", 0.0)


async def test_a_conversation_that_is_too_long_is_the_models_own_doing(store: Store) -> None:
    model = ScriptedModel([ModelFailed("too long", kind="context")])
    assert (await done(store, Task("a", "x", check="false"), model)).reward == 0.0


@pytest.mark.parametrize(
    ("failed", "kind", "after"),
    [
        (ModelFailed("busy", transient=True, retry_after=99, kind="busy"), "model", 99),
        (ModelFailed("no credit", kind="quota"), "model", None),
        (ModelFailed("refused", kind="error"), "model", None),
        (RuntimeError("bug"), "model", None),
        (ModelFailed("wrong key", kind="key"), "configuration", None),
        (ModelFailed("which?", kind="no_such_model"), "configuration", None),
    ],
)
async def test_a_failure_of_the_provider_loses_the_task(
    store: Store, failed: Exception, kind: str, after: float | None
) -> None:
    with pytest.raises(Lost) as lost:
        await done(store, Task("a", "x", check="true"), ScriptedModel([failed]))
    assert (lost.value.kind, lost.value.retry_after, lost.value.done) == (kind, after, None)


@pytest.mark.parametrize("setup", ["echo why; exit 3", "kill -9 -1; sleep 9; exit 1"])
async def test_a_setup_that_fails_loses_the_task(store: Store, setup: str) -> None:
    model = PromptedModel()
    with pytest.raises(Lost, match="setup") as lost:
        await done(store, Task("a", prompt(), setup=setup), model)
    assert (lost.value.kind, model.asked) == ("setup", 0)


async def test_a_file_that_cannot_be_written_loses_the_task(store: Store) -> None:
    with pytest.raises(Lost, match="not prepared"):
        await done(store, Task("a", prompt(), files={"x": "1", "x/y": "2"}))


async def test_a_sandbox_that_does_not_open_loses_the_task(store: Store) -> None:
    options = TaskOptions(sandbox={"workspace": "/nonexistent/place"})
    with pytest.raises(Lost, match="no sandbox was opened") as lost:
        await work_on(Task("a", prompt()), PromptedModel(), options, store=store, session_id=None, sample=0)
    assert lost.value.kind == "machine"


def archive(path: Path, members: dict[str, bytes], mode: Any = "w:gz") -> str:
    with tarfile.open(path, mode) as made:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return str(path)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
async def test_an_archive_is_unpacked_into_the_workspace(store: Store, tmp_path: Path, mode: str) -> None:
    packed = archive(tmp_path / "a.tar", {"src/a.py": b"print(42)"}, mode)
    found = await done(store, Task("a", prompt(), archive=packed, check="python3 src/a.py | grep 42"))
    assert found.reward == 1.0


async def test_an_archive_that_climbs_out_reaches_nothing(store: Store, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    packed = archive(tmp_path / "a.tar", {f"../../../../../../..{outside}": b"x", f"{outside}2": b"x"})
    with pytest.raises(Lost, match="unpacking"):
        await done(store, Task("a", prompt(), archive=packed))
    assert not outside.exists()
    assert not Path(f"{outside}2").exists()


@pytest.mark.parametrize("content", [b"", b"not a tar", None])
async def test_an_archive_that_cannot_be_read_loses_the_task(
    store: Store, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "a.tar"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Lost):
        await done(store, Task("a", prompt(), archive=str(path), check="false"))


def children(of: int | None = None) -> set[int]:
    """All processes below this one."""
    found: set[int] = set()
    with suppress(OSError):  # it may end meanwhile
        for task in Path(f"/proc/{of or os.getpid()}/task").iterdir():
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found.union(*(children(pid) for pid in found))


class KillingModel:
    """Kills the sandbox from outside as soon as it is asked, as a machine in need does."""

    async def ask(self, messages: Any, tools: Any, *, system: str = "") -> Any:
        for pid in children() - self.before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await anyio.sleep(0.2)
        yield Turn("Done.")

    def __init__(self) -> None:
        self.before = children()


@pytest.mark.parametrize(("check", "reward"), [("true", 0.0), (None, None)])
async def test_a_sandbox_that_ends_under_the_agent_loses_the_task_and_tells_its_result(
    store: Store, check: str | None, reward: float | None
) -> None:
    with pytest.raises(Lost) as lost:
        await done(store, Task("a", "x", check=check), KillingModel())
    assert lost.value.kind == "sandbox_ended"
    assert lost.value.done is not None
    assert (lost.value.done.reason, lost.value.done.reward) == ("sandbox_ended", reward)
    assert "scored" not in {event.type for event in store.events(lost.value.done.session)}


BREAKING = {
    "processes": "for i in $(seq 2000); do setsid sleep 100 & done; sleep 0.5",
    "disk": "head -c 300M /dev/zero > full; head -c 300M /dev/zero > /tmp/full; head -c 300M /dev/zero > /dev/shm/f",
    "memory": "python3 -c 'x = bytearray(1 << 28)'; tail -c 64M /dev/zero",
    "kill": "kill -9 -1; kill -9 1; kill -9 $PPID",
    "workspace": "rm -rf /workspace /workspace/* /tmp/* 2>/dev/null; chmod 000 .",
}  # fmt: skip


@pytest.mark.parametrize("how", BREAKING)
async def test_a_model_that_breaks_its_sandbox_gets_zero_and_is_never_lost(store: Store, how: str) -> None:
    limits = Limits(processes=64, tmp=64 << 20, file_size=200 << 20)
    task = Task("a", prompt(BREAKING[how]), check="exit 1", check_files={"deep/check.py": "x" * 1000})
    found = await done(store, task, limits=limits)
    assert (found.reason, found.reward) == ("done", 0.0)


class FullDriver(MemoryDriver):
    """Has no room for the files of the check, as after an agent that has filled the disk."""

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        if path.endswith("check.py"):
            raise OSError(28, "No space left on device", path)
        await super().write(path, data, mode=mode)


async def test_a_check_that_cannot_start_for_want_of_room_gives_zero(store: Store) -> None:
    options = TaskOptions(sandbox={"driver": FullDriver()}, allow_weaker=True)
    task = Task("a", "x", check="true", check_files={"check.py": "1"})
    found = await work_on(task, ScriptedModel(["Done."]), options, store=store, session_id=None, sample=0)
    assert found.reward == 0.0
    assert "No space left" in found.errors[0]
    assert found.check == {"exit_code": None, "output": ""}


async def test_a_tasks_own_system_and_model_count(store: Store) -> None:
    model = ScriptedModel(["Done."])
    await done(store, Task("a", "x", system="Be brief."), model)
    assert model.requests[0].system == "Be brief."
    with pytest.raises(HandrailError, match="not the name of a model"):
        await done(store, Task("b", "x", model="nonsense"), model)


async def test_a_cancelled_task_leaves_no_sandbox(store: Store) -> None:
    before = children()
    with anyio.move_on_after(1):
        await done(store, Task("a", prompt("sleep 60"), check="true"))
    with anyio.fail_after(10):
        while children() - before:  # noqa: ASYNC110 - the kernel tells nobody
            await anyio.sleep(0.05)


def begun_call(store: Store, session: str) -> str | None:
    """The id of the first call that the session has begun."""
    with suppress(HandrailError):  # it may not be in the store yet
        return next((event.call_id for event in store.events(session) if event.type == "call_started"), None)
    return None


async def test_a_call_of_a_running_task_can_be_ended_through_its_door(store: Store) -> None:
    found: list[Done] = []

    async def work() -> None:
        found.append(await done(store, Task("a", prompt("sleep 60"), check="true"), session_id="a.0"))

    with anyio.fail_after(50):
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            while (call := begun_call(store, "a.0")) is None:  # noqa: ASYNC110 - a store tells nobody
                await anyio.sleep(0.05)
            async with store.attach("a.0") as attached:
                assert await attached.terminate(call)
    assert (found[0].reason, found[0].reward) == ("done", 1.0)
