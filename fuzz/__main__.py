"""Fuzz the guard's frame parser: python -m fuzz [seconds] [seed]."""

import sys
import tempfile
import time
from pathlib import Path

from fuzz.parser import build_parser, run_parser


def main(arguments: list[str]) -> int:
    seconds = int(arguments[0]) if arguments else 60
    seed = int(arguments[1]) if len(arguments) > 1 else int(time.time())
    with tempfile.TemporaryDirectory() as place:
        ran = run_parser(build_parser(Path(place)), seconds, seed)
    sys.stdout.write(f"seed {seed}, {seconds} s: {ran.stdout}{ran.stderr}")
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
