"""The guard is built with the package: a wheel needs no compiler, and says for which machine it is."""

import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from handrail.drivers.guard.build import (
    FLAGS,
    HERE,
    NoCompiler,
    build,
    compiler,
    musl_compiler,
    position_independent,
    sources,
    stale,
)

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import anyio, shutil, sys, tempfile
from handrail.contract.driver import Command
from handrail.drivers.host import open_host
assert not any(map(shutil.which, ("cc", "gcc", "clang"))), "the control: there is no compiler"
async def main():
    with tempfile.TemporaryDirectory() as place:
        driver = await open_host(workspace=place)
        process = await driver.start(Command(line="echo from the wheel"))
        async for chunk in process.output():
            print(chunk.data.decode(), end="")
        await driver.close()
anyio.run(main)
import handrail
print(handrail.__file__)
"""


def test_a_program_older_than_its_sources_is_stale(tmp_path: Path) -> None:
    program = tmp_path / "guard"
    assert stale(program)
    program.touch()
    assert not stale(program)
    os.utime(program, (1, 1))
    assert stale(program)


def test_a_build_that_fails_leaves_the_old_program(tmp_path: Path) -> None:
    program = tmp_path / "guard"
    program.write_text("old")
    with pytest.raises(subprocess.CalledProcessError):
        build(program, command=["false"])
    assert program.read_text() == "old"
    assert os.listdir(tmp_path) == ["guard"]


def headers(program: Path) -> tuple[int, dict[int, int]]:
    """The type of an ELF file of 64 bits, and of each of its segments the flags."""
    data = program.read_bytes()
    assert data[:5] == b"\x7fELF\x02"
    (kind,), (at,), (size, count) = (
        struct.unpack_from("<H", data, 16), struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54),
    )  # fmt: skip
    return kind, dict(struct.unpack_from("<II", data, at + size * number) for number in range(count))


INTERPRETER, STACK, READ_ONLY, EXECUTE, ANYWHERE = 3, 0x6474E551, 0x6474E552, 1, 3


def test_the_program_is_static_has_no_stack_to_run_and_lies_where_nobody_knows(tmp_path: Path) -> None:
    kind, segments = headers(build(tmp_path / "guard"))
    assert INTERPRETER not in segments
    assert not segments[STACK] & EXECUTE
    assert READ_ONLY in segments
    if musl_compiler() and position_independent():
        assert kind == ANYWHERE
    assert INTERPRETER in headers(Path(sys.executable).resolve())[1], "the control: most programs are not static"


def test_the_stack_is_protected(tmp_path: Path) -> None:
    object_file = tmp_path / "files.o"
    kept = [flag for flag in FLAGS if flag.startswith(("-f", "-O", "-std"))]
    subprocess.run([*compiler(), *kept, "-c", str(HERE / "files.c"), "-o", str(object_file)], check=True)
    assert b"__stack_chk_fail" in object_file.read_bytes()


def test_without_any_compiler_it_says_what_is_needed(tmp_path: Path) -> None:
    code = "from handrail.drivers.guard.build import compiler; compiler()"
    env = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=False)
    assert NoCompiler.__name__ in ran.stderr
    assert "ziglang" in ran.stderr


def test_every_file_of_the_guard_stays_small() -> None:
    sizes = {path.name: len(path.read_text().splitlines()) for path in [*sources(), *HERE.glob("*.h")]}
    assert sizes, "the control: there are some"
    assert max(sizes.values()) <= 300, sizes


def test_a_wheel_runs_a_command_where_there_is_no_compiler(tmp_path: Path) -> None:
    house = tmp_path / "house"
    house.mkdir()
    for name in ("src", "pyproject.toml", "hatch_build.py", "LICENSE", "README.md"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, house / name, ignore=shutil.ignore_patterns("__pycache__", "guard.[0-9]*"))
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, house)
    (house / "src/handrail/drivers/guard/guard").unlink(missing_ok=True)
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(words, cwd=house, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert sysconfig.get_platform().rpartition("-")[2] in wheel.name
    installed = tmp_path / "installed"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        str(installed),
        str(wheel),
    ]
    subprocess.run(pip, check=True)
    with zipfile.ZipFile(wheel) as archive:
        assert archive.getinfo("handrail/drivers/guard/guard").external_attr >> 16 & 0o111
    env = {"PATH": str(tmp_path / "empty"), "PYTHONPATH": str(installed)}
    ran = subprocess.run([sys.executable, "-c", RUN], env=env, capture_output=True, text=True, check=False, cwd="/")
    assert ran.stdout.splitlines() == ["from the wheel", str(installed / "handrail/__init__.py")], ran.stderr


@pytest.mark.long
def test_it_compiles_for_aarch64(tmp_path: Path) -> None:
    cross = shutil.which("aarch64-linux-gnu-gcc")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl"]
    compiles = cross or not subprocess.run([*zig, "--version"], capture_output=True, check=False).returncode
    assert compiles, "neither aarch64-linux-gnu-gcc nor ziglang is installed: apt-get install gcc-aarch64-linux-gnu"
    program = build(tmp_path / "guard", command=[cross] if cross else zig)
    assert program.read_bytes()[18] == 0xB7, "the ELF number of aarch64"
