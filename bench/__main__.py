"""Run the subjects named on the command line, or all of them: `python -m bench [subject ...] [--quick]`."""

import argparse
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from time import perf_counter

import bench
from bench.measure import FULL, QUICK, Effort, Row, table


@dataclass(frozen=True, slots=True)
class Subject:
    """A file beside this one with a function `rows(effort) -> Iterable[Row]`."""

    name: str
    guarantee: str
    rows: Callable[[Effort], Iterable[Row]]


def subjects(wanted: Collection[str] = ()) -> dict[str, Subject]:
    """Every file here that has `rows`, by name, or those that are wanted; adding one is adding a file.

    No other file is loaded: it may need a package that is not installed here.
    """
    modules = {
        found.name: import_module(f"bench.{found.name}")
        for found in iter_modules(bench.__path__)
        if not found.name.startswith("_") and (not wanted or found.name in wanted)
    }
    return {
        name: Subject(name, (module.__doc__ or "").strip(), module.rows)
        for name, module in modules.items()
        if hasattr(module, "rows")
    }


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=bench.__doc__)
    parser.add_argument("subjects", nargs="*", metavar="subject", help="files in bench/; all of them by default")
    parser.add_argument("--quick", action="store_true", help="one small round: shows that it works, measures nothing")
    asked = parser.parse_args(words)
    known = subjects(asked.subjects)
    if unknown := [name for name in asked.subjects if name not in known]:
        parser.error(f"no subject {', '.join(unknown)}; there are {', '.join(subjects())}")
    began = perf_counter()
    missed = [miss for name in asked.subjects or known for miss in run(known[name], quick=asked.quick)]
    print(f"{perf_counter() - began:.0f} s. ", end="")
    if asked.quick:
        print("Quick: the figures mean nothing, and no bound was judged.")
        return 0
    print(f"Over their bound: {'; '.join(missed)}." if missed else "Every bound holds.")
    return 1 if missed else 0


def run(subject: Subject, *, quick: bool) -> list[str]:
    """Print the subject's table; the names of the rows over their bound."""
    rows = list(subject.rows(QUICK if quick else FULL))
    print(f"{subject.name}: {subject.guarantee}\n{table(rows)}\n", flush=True)
    return [f"{subject.name}, {each.name}" for each in rows if not each.ok]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
