"""A file of tasks is read whole or refused, with the line and what to write instead."""

import json
from pathlib import Path

import pytest

from handrail import HandrailError
from handrail.batch import Task
from handrail.batch.task import MAX_LINE_BYTES, read_tasks


def refused(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(HandrailError) as error:
        read_tasks(path)
    return str(error.value)


def line(**keys: object) -> str:
    return json.dumps({"id": "a", "prompt": "x", **keys})


def test_every_key_of_a_line_is_read(tmp_path: Path) -> None:
    keys = {
        "files": {"a/b.txt": "1"}, "archive": "data/a.tar", "setup": "true", "check": "true", "check_timeout": 5,
        "check_files": {"c.py": ""}, "system": "s", "model": "recorded:x", "meta": {"any": ["thing"]},
    }  # fmt: skip
    (tmp_path / "t.jsonl").write_text(f"\ufeff{line(**keys)}\n\n{line(id='b')}")
    first, second = read_tasks(tmp_path / "t.jsonl")
    assert first == Task("a", "x", **{**keys, "archive": str(tmp_path / "data/a.tar")})  # type: ignore[arg-type]
    assert second == Task("b", "x")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no tasks"), ("\n \n", "has no tasks"), ("{", "line 1: it is not JSON"), ("[1]", "it is a list"),
        ("null", "it is None"), ('{"prompt": "x"}', "it has no id"), ('{"id": "a"}', "it has no prompt"),
        (line(promt="x"), "'promt' is not a key of a task; did you mean 'prompt'?"), (line(zzz=1), "goes into meta"),
        (f"{line()}\n{line()}", "line 2: the id 'a' is taken by line 1"), (line(id="a/b"), "Task.id is 'a/b'"),
        (line(id=".."), "Task.id"), (line(id=""), "Task.id"), (line(id=7), "Task.id is 7"), (line(id="a\n"), "Task.id"),
        (line(id="a" * 101), "Task.id"), (line(prompt=" "), "Task.prompt"), (line(prompt=None), "Task.prompt"),
        (line(files={"/etc/x": ""}), "'/etc/x'"), (line(files={"a/../../x": ""}), "without `..`"),
        (line(check_files={"../x": ""}), "without `..`"), (line(files=["x"]), "Task.files is a list"),
        (line(files={"x": 1}), "Task.files['x'] is 1"), (line(files={"": "x"}), "a path of Task.files is ''"),
        (line(archive="/a.tar"), "beside the tasks"), (line(archive="../a.tar"), "beside the tasks"),
        (line(check_timeout=0), "check_timeout is 0"), (line(check_timeout="1"), "check_timeout"),
        (line(check_timeout=None), "check_timeout"), (line(check=3), "Task.check is 3"), (line(meta=3), "Task.meta"),
        ('{"id": "a", "prompt": ' + "[" * 100_000, "line 1"), (b'{"id": "\xff"}', "not JSON"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named_with_what_to_write(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert said in refused(tmp_path, text)


def test_a_line_of_100_megabytes_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with path.open("wb") as file:
        file.write(line().encode() + b"\n" + b'{"id": "b", "prompt": "')
        file.truncate(100 << 20)
    with pytest.raises(HandrailError, match=f"line 2 is longer than {MAX_LINE_BYTES >> 20} MiB"):
        read_tasks(path)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_tasks(tmp_path / "none.jsonl")


def test_equal_tasks_are_written_the_same() -> None:
    one, two = Task("a", "x", meta={"b": 1, "a": 2}), Task("a", "x", meta={"a": 2, "b": 1})
    assert one.to_json() == two.to_json()
    assert one.to_json() != Task("a", "x", meta={"a": 3, "b": 1}).to_json()
