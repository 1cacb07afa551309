"""A store of one's own: the bytes of artifacts are there, and whatever it does, the session goes on."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import pytest

from handrail import (
    Artifacts,
    Blobs,
    Context,
    HandrailError,
    Policy,
    Session,
    Store,
    builtin_tools,
    open_sandbox,
    tool,
)  # fmt: skip
from handrail.artifacts._blobs import PIECE
from handrail.contract.errors import ToolFailed
from handrail.tools.read_artifact import read_artifact
from tests.drivers.watching import eventually

pytestmark = pytest.mark.anyio
BIG = "".join(f"line {n}\n" for n in range(20_000))


class Memory:
    """What a user may write: a dictionary."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.puts: list[str] = []
        self.threads: set[threading.Thread] = set()

    def put(self, key: str, content: BinaryIO) -> None:
        self.threads.add(threading.current_thread())
        self.puts.append(key)
        self.held[key] = content.read()

    def read(self, key: str, start: int, length: int) -> bytes:
        self.threads.add(threading.current_thread())
        return self.held[key][start : start + length]

    def has(self, key: str) -> bool:
        return key in self.held

    def remove(self, key: str) -> None:
        self.threads.add(threading.current_thread())
        self.held.pop(key, None)


class Broken(Memory):
    """A Memory whose methods named in `fails` raise."""

    def __init__(self, *fails: str) -> None:
        super().__init__()
        self.fails = set(fails)

    def _try(self, name: str) -> None:
        if name in self.fails:
            raise RuntimeError(f"the bucket refuses to {name}")

    def put(self, key: str, content: BinaryIO) -> None:
        self._try("put")
        super().put(key, content)

    def read(self, key: str, start: int, length: int) -> bytes:
        self._try("read")
        return super().read(key, start, length)

    def has(self, key: str) -> bool:
        self._try("has")
        return super().has(key)

    def remove(self, key: str) -> None:
        self._try("remove")
        super().remove(key)


class Slow(Memory):
    """A Memory that waits before it puts or removes, until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go = threading.Event(), threading.Event()

    def put(self, key: str, content: BinaryIO) -> None:
        self.entered.set()
        self.go.wait(60)
        super().put(key, content)

    def remove(self, key: str) -> None:
        self.go.wait(60)
        super().remove(key)


@tool
async def big() -> str:
    """A long text."""
    return BIG


@tool
async def length(text: str) -> int:
    """How long it is."""
    return len(text)


async def until(holds: Callable[[], object]) -> None:
    assert await anyio.to_thread.run_sync(eventually, holds)


def local_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file() and path.suffix != ".json")


async def test_the_bytes_are_in_the_own_store_and_any_range_comes_back(tmp_path: Path) -> None:
    memory = Memory()
    with Artifacts(tmp_path, blobs=memory) as store:
        for data in (b"", b"small", b"x" * PIECE, bytes(range(256)) * 12_000):
            kept = await store.put(data)
            for start, count in ((0, None), (PIECE - 1, 2), (len(data), 5), (3, 0), (2, 1)):
                expected = data[start:] if count is None else data[start : start + count]
                assert await store.read(kept, start, count) == expected
    assert len(memory.held) == 4
    assert local_bytes(tmp_path) == 0
    assert threading.main_thread() not in memory.threads, "the event loop does not wait for a store"


async def test_equal_content_of_two_sessions_is_put_once_and_removed_with_the_last(tmp_path: Path) -> None:
    memory = Memory()
    store = Artifacts(tmp_path, blobs=memory)
    one, two = store.scope("one"), store.scope("two")
    kept = await one.put(b"same" * 1000)
    assert (await two.put(b"same" * 1000)).ref == kept.ref
    assert len(memory.puts) == 1
    assert one.sweep() == 1
    store.close()
    assert await two.read(kept) == b"same" * 1000
    two.sweep()
    store.close()
    assert memory.held == {}
    assert list((tmp_path / "objects").iterdir()) == list((tmp_path / "incoming").iterdir()) == []


async def test_a_private_directory_takes_its_contents_out_of_the_store_when_it_is_closed() -> None:
    memory = Memory()
    with Artifacts(blobs=memory) as store:
        await store.scope("s").put(b"abc")
        assert len(memory.held) == 1
    assert memory.held == {}


async def test_a_long_answer_is_kept_there_and_read_artifact_reads_it() -> None:
    memory = Memory()
    with Artifacts(blobs=memory) as store:
        async with Session([big, length, read_artifact], artifacts=store) as session:
            result = await session.call("big")
            (kept,) = session.artifacts.own()
            assert kept.ref in result.warnings[0]
            assert BIG.encode() in memory.held.values()
            read = await session.call("read_artifact", {"ref": kept.ref, "start": 100, "length": 50})
            assert read.value["text"] == BIG[100:150]
            assert (await session.call("length", {"text": {"$artifact": kept.ref}})).value == len(BIG)


async def test_a_script_reads_a_reference_from_the_own_store(tmp_path: Path) -> None:
    memory = Memory()
    code = "text = tools.big()\nreturn [type(text).__name__, text.size, text.read(0, 6)]"
    async with open_sandbox("jail", workspace=str(tmp_path), allow_weaker=True) as sandbox:
        with Artifacts(blobs=memory) as store:
            tools = [*builtin_tools("all"), big]
            options: dict[str, Any] = {"sandbox": sandbox, "artifacts": store, "policy": Policy(mode="open")}
            async with Session(tools, **options) as session:
                result = await session.call("script", {"code": code})
                assert result.value["result"] == ["Ref", len(BIG), "line 0"], result
                assert len(memory.puts) == 1
                await until(lambda: memory.held == {})  # the script has ended, and no result names it


async def test_stored_sessions_are_resumed_forked_copied_and_removed_with_an_own_store(tmp_path: Path) -> None:
    memory, other = Memory(), Memory()
    store = Store(tmp_path / "s.db", blobs=memory)
    async with Session([big, read_artifact], store=store, id="first") as session:
        await session.call("big")
        ref = session.artifacts.own()[0].ref
    later = Store(tmp_path / "s.db", blobs=memory)
    async with Session.resume(later, "first", tools=[read_artifact]) as session:
        assert (await session.call("read_artifact", {"ref": ref, "length": 6})).value["text"] == "line 0"
    copy = later.fork("first")
    elsewhere = Store(tmp_path / "t.db", blobs=other)
    elsewhere.load(later.export("first"))
    assert other.held == memory.held != {}
    later.remove("first")
    later.artifacts.close()
    assert await later.artifacts.scope(copy).read(ref) == BIG.encode()
    later.remove(copy)
    later.artifacts.close()
    assert memory.held == {}
    assert other.held != {}


@pytest.mark.parametrize("fails", ["put", "has"])
async def test_a_store_that_takes_nothing_costs_what_was_left_out_and_no_call(tmp_path: Path, fails: str) -> None:
    broken = Broken(fails)

    @tool
    async def keep(context: Context) -> str:
        return (await context.artifacts.put("mine")).ref

    with Artifacts(tmp_path, blobs=broken) as store:
        async with Session([big, keep], artifacts=store) as session:
            result = await session.call("big")
            assert result.ok
            assert f"the bucket refuses to {fails}" in " ".join(result.warnings)
            failed = await session.call("keep")
            assert failed.kind == "execution_error"
            assert f"Broken did not store it: RuntimeError: the bucket refuses to {fails}" in failed.message
            assert store.scope(session.id).own() == []
            broken.fails.clear()
            assert (await session.call("keep")).ok
    assert list((tmp_path / "incoming").iterdir()) == []


async def test_a_store_that_does_not_answer_is_unavailable_and_works_later() -> None:
    broken = Broken()
    with Artifacts(blobs=broken) as store:
        async with Session([read_artifact], artifacts=store) as session:
            kept = await session.artifacts.put("abc")
            broken.fails.add("read")
            failed = await session.call("read_artifact", {"ref": kept.ref})
            assert (failed.kind, failed.retryable) == ("unavailable", True)
            assert "the bucket refuses to read" in failed.message
            broken.fails.clear()
            assert (await session.call("read_artifact", {"ref": kept.ref})).value["text"] == "abc"


@pytest.mark.parametrize("wrong", [b"abd" * 100, b"abc" * 99, b"abc" * 99 + b"ab", b""])
async def test_wrong_bytes_are_refused_as_changed_and_storing_them_again_heals(wrong: bytes) -> None:
    memory = Memory()
    with Artifacts(blobs=memory) as store:
        async with Session([read_artifact, length], artifacts=store) as session:
            kept = await session.artifacts.put("abc" * 100)
            (key,) = memory.held
            memory.held[key] = wrong
            failed = await session.call("read_artifact", {"ref": kept.ref})
            assert failed.kind == "execution_error"
            assert "was changed in Memory and cannot be read" in failed.message
            filled = await session.call("length", {"text": {"$artifact": kept.ref}})
            assert "was changed in Memory" in filled.message
            await session.artifacts.put("abc" * 100)
            assert (await session.call("length", {"text": {"$artifact": kept.ref}})).value == 300


async def test_bytes_that_are_gone_are_no_artifact_and_an_export_names_it(tmp_path: Path) -> None:
    memory = Memory()
    store = Store(tmp_path / "s.db", blobs=memory)
    async with Session([read_artifact], store=store, id="s") as session:
        kept = await session.artifacts.put("abc")
        memory.held.clear()
        failed = await session.call("read_artifact", {"ref": kept.ref})
        assert (failed.kind, failed.field) == ("invalid_args", "ref")
    with pytest.raises(HandrailError, match=kept.ref):
        list(store.export("s"))


@pytest.mark.parametrize("given", ["text", None, 7])
async def test_a_read_that_returns_no_bytes_says_so(given: Any) -> None:
    class Odd(Memory):
        def read(self, key: str, start: int, length: int) -> bytes:
            return given  # type: ignore[no-any-return]

    with Artifacts(blobs=Odd()) as store:
        kept = await store.put(b"abc")
        with pytest.raises(ToolFailed, match=r"Odd\.read returned an? \w+, and must return bytes"):
            await store.read(kept)


async def test_a_removal_that_fails_is_logged_and_tried_again_with_the_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = Broken("remove")
    with Artifacts(blobs=broken) as store:
        scope = store.scope("s")
        await scope.put(b"abc")
        scope.sweep()
        await until(lambda: "Broken.remove" in caplog.text)
        assert "the bucket refuses to remove" in caplog.text
        broken.fails.clear()
        await scope.put(b"abc")
        assert len(broken.puts) == 1, "it was still there"
        scope.sweep()
        await until(lambda: broken.held == {})


async def test_nobody_who_is_cancelled_waits_for_a_slow_store_and_nothing_is_left(tmp_path: Path) -> None:
    slow = Slow()
    store = Artifacts(tmp_path, blobs=slow)
    scope = store.scope("s")

    async def chunks() -> Any:
        yield b"abc"

    async with anyio.create_task_group() as group:
        group.start_soon(scope.put_stream, chunks())
        await until(slow.entered.is_set)
        assert scope.info("a_" + "0" * 32) is None, "others may use the index meanwhile"
        group.cancel_scope.cancel()
    assert not slow.go.is_set()
    slow.go.set()
    await until(lambda: len(slow.puts) == 1)
    await until(lambda: not any((tmp_path / "incoming").iterdir()))
    scope.sweep()
    await until(lambda: slow.held == {})


async def test_dropping_does_not_wait_for_a_slow_store() -> None:
    slow = Slow()
    slow.go.set()
    with Artifacts(blobs=slow) as store:
        scope = store.scope("s")
        kept = await scope.put(b"abc")
        slow.go.clear()
        scope.pin(kept)
        scope.unpin(kept)
        assert not scope.has(kept)
        assert len(slow.held) == 1
        slow.go.set()
        await until(lambda: slow.held == {})


async def test_what_one_process_drops_stays_for_another_that_stores_it_at_that_moment(tmp_path: Path) -> None:
    memory = Memory()
    stores = [Artifacts(tmp_path, blobs=memory) for _ in range(4)]

    async def work(number: int) -> None:
        scope = stores[number].scope(f"s{number}")
        for _ in range(25):
            kept = await scope.put(b"the same")
            assert await scope.read(kept) == b"the same"
            scope.sweep()

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(work, number)
    for store in stores:
        store.close()
    assert memory.held == {}


class Unfinished:
    def put(self, key: str, content: BinaryIO) -> None: ...


class Async(Memory):
    async def read(self, key: str, start: int, length: int) -> bytes:  # type: ignore[override]
        return b""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Memory, "the class Memory; write an object with the methods put, read, has, remove"),
        (Unfinished(), "an Unfinished; write an object"),
        ({}, "a dict; write"),
        (Async(), "write plain functions, which run in threads: Async.read is async"),
    ],
)
def test_what_is_no_store_is_refused_when_it_is_given(given: Any, words: str, tmp_path: Path) -> None:
    for make in (lambda: Artifacts(blobs=given), lambda: Store(tmp_path / "s.db", blobs=given)):
        with pytest.raises(HandrailError, match=r"Artifacts\.blobs is ") as caught:
            make()
        assert words in str(caught.value)


def test_a_class_with_these_methods_is_accepted_by_type_checkers() -> None:
    checked: Blobs = Memory()
    assert checked.has("") is False
