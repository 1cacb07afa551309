"""Build the guard's frame parser with its sanitizers, and run it on hostile input."""

import subprocess
from pathlib import Path

from handrail.drivers.guard.build import HERE, compiler

FLAGS = ("-std=gnu11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall", "-Wextra")


def build_parser(place: Path) -> Path:
    """A program made of the parser and of nothing else of the guard."""
    program = place / "frames"
    files = [Path(__file__).with_name("frames.c"), HERE / "frame.c"]
    subprocess.run([*compiler(), *FLAGS, f"-I{HERE}", *map(str, files), "-o", str(program)], check=True)
    return program


def run_parser(program: Path, seconds: int, seed: int, *, planted: bool = False) -> subprocess.CompletedProcess[str]:
    """Its exit code is 0 when the sanitizers have nothing to report; `planted` adds a mistake they must find."""
    words = [str(program), str(seconds), str(seed), *(["planted"] if planted else [])]
    return subprocess.run(words, capture_output=True, text=True, timeout=seconds + 60, check=False)
