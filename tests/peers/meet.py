"""Put one peer through the kit, in the environment where it is installed: `python -m tests.peers.meet NAME`."""

import asyncio
import json
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import version
from typing import Any

import anyio

from handrail.drivers.open import known_drivers
from handrail.testing.conformance import CHECKS, CheckVerdict, DriverVerdict, Opener, conform
from tests.peers.peers import OURS, PEERS
from tests.peers.run_to_end import LACKS

MEMORY = 2 << 30
"""Bytes that this process may have: a backend may read a device that has no end."""
APART = (
    "reading a pipe is refused and does not wait", "writing to a pipe is refused and does not wait",
    "an endless device is refused",
)  # fmt: skip
THREADS = 100
"""For backends that wait in threads: by default there are as many as a machine has processors, and some more."""
PATIENCE = 45.0
"""Seconds for one check in a process of its own."""


async def met(opener: Opener, named: dict[str, str], only: list[str]) -> dict[str, list[list[str]]]:
    """By promise: each check, what became of it, and why."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    asked = [check.name for check in CHECKS if check.name in only and check.name not in named]
    verdict: DriverVerdict = await conform(opener, only=asked)
    tried = {it.check.name: it for guarantee in verdict.guarantees.values() for it in guarantee.checks}
    rows: dict[str, list[list[str]]] = {}
    for check in CHECKS:
        if check.name in tried or (check.name in named and check.name in only):
            end = ("lacks", named[check.name]) if check.name in named else became(tried[check.name])
            rows.setdefault(check.feature, []).append([check.name, *end])
    return rows


def became(verdict: CheckVerdict) -> tuple[str, str]:
    if verdict.kept:
        return "kept", ""
    if verdict.not_tried:
        return ("lacks" if verdict.not_tried in LACKS else "untried"), verdict.not_tried
    return "broken", verdict.problem


def opener_of(name: str) -> tuple[Opener, dict[str, str]]:
    """How it is opened, and what it cannot express, by the name of the check that would ask for it."""
    if name in OURS:
        found = known_drivers()[name]
        assert not isinstance(found, str), found
        return found, {}
    module: Any = import_module(f"tests.peers.in_{name.replace('-', '_')}")
    return module.open_peer, {check: why for each in module.NAMED for why, checks in each.items() for check in checks}


def alone(name: str, check: str) -> dict[str, list[list[str]]]:
    """The same in a process of its own, because a backend may block the whole of it."""
    words = [sys.executable, "-m", "tests.peers.meet", name, check]
    feature = next(it.feature for it in CHECKS if it.name == check)
    try:
        ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return {feature: [[check, "broken", "the whole process hangs"]]}
    guarantees: dict[str, list[list[str]]] = json.loads(ran.stdout.splitlines()[-1])["promises"]
    return guarantees


def main(name: str, only: list[str]) -> None:
    if name in PEERS:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.environ["HANDRAIL_PEER"] = "a variable of this machine"
    opener, named = opener_of(name)
    apart = [check for check in APART if name in PEERS and not only]
    guarantees = anyio.run(met, opener, named, only or [it.name for it in CHECKS if it.name not in apart])
    for check in apart:
        for feature, rows in alone(name, check).items():
            guarantees.setdefault(feature, []).extend(rows)
    found = {"version": version(PEERS.get(name, "handrail").partition("==")[0]), "promises": guarantees}
    sys.stdout.write(f"\n{json.dumps(found)}\n")
    sys.stdout.flush()
    os._exit(0)  # a thread of a backend may wait for ever


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
