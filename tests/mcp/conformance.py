"""The official conformance suite, against Handrail's server and client: `python3 dev.py mcp-conformance`.

Two versions of it are installed from npm, and the Node that they need, in directories of .venv.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dev

OLDER: Final = "0.1.16"
NEWER: Final = "0.2.0-alpha.12"
NODE: Final = "node@24"
"""The suite needs Node 22 at least, and Debian has an older one."""
PATIENCE: Final = 300
"""Seconds for one run of the suite, on a busy machine too."""
CLIENT: Final = f"{sys.executable} -m tests.mcp.fixture_client"


@dataclass(frozen=True)
class Run:
    """One run of the suite."""

    name: str
    version: str
    options: tuple[str, ...]

    @property
    def is_of_server(self) -> bool:
        return self.options[0] == "server"


CORE: Final = ("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry")
"""The suite's group `core` of client scenarios, without those of OAuth, which are the group `auth` too."""
RUNS: Final = (
    Run("server, all active scenarios", OLDER, ("server",)),
    Run("server, required by 2025-11-25", NEWER, ("server", "--requirements", "2025-11-25")),
    Run("server, required by 2026-07-28", NEWER, ("server", "--requirements", "2026-07-28")),
    *(Run(f"client, {scenario}", OLDER, ("client", "--command", CLIENT, "--scenario", scenario)) for scenario in CORE),
    *(
        Run(
            f"client, {scenario} of {revision}",
            NEWER,
            ("client", "--command", CLIENT, "--scenario", scenario, "--spec-version", revision),
        )
        for revision, scenarios in {
            "2025-11-25": (*CORE, "json-schema-2020-12-preservation"),
            "2026-07-28": (  # all that it requires, without OAuth
                "tools_call",
                "request-metadata",
                "sep-2322-client-request-state",
                "http-standard-headers",
                "http-custom-headers",
                "http-invalid-tool-headers",
                "json-schema-ref-no-deref",
                "json-schema-2020-12-preservation",
            ),
        }.items()
        for scenario in scenarios
    ),
)


def installed(place: str, package: str) -> Path:
    """The directory of npm packages with this one. Raises RuntimeError, naming Node, if it cannot be installed."""
    modules, missing = dev.node_modules(place, package)
    if missing:
        raise RuntimeError(missing)
    return modules


def node() -> str:
    """The Node that all of these programs run on: it is large, and installed once."""
    return str(installed("node", NODE) / ".bin" / "node")


def suite(version: str) -> list[str]:
    """The words that start this version."""
    modules = installed(f"conformance-{version}", f"@modelcontextprotocol/conformance@{version}")
    return [node(), str(modules / "@modelcontextprotocol/conformance/dist/index.js")]


@contextmanager
def fixture_servers() -> Iterator[tuple[str, str]]:
    """The addresses of a running fixture server, and of one that lacks a tool."""
    argv = [sys.executable, "-m", "tests.mcp.fixture"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=dev.ROOT) as process:
        assert process.stdout is not None
        try:
            whole, lacking = process.stdout.readline().split()
            yield f"http://127.0.0.1:{whole}/mcp", f"http://127.0.0.1:{lacking}/mcp"
        finally:
            process.kill()


def run(one: Run, url: str = "") -> tuple[bool, str]:
    """Whether all that is required passed, and what the suite printed; `url` is that of the server."""
    where = ["--url", url] if one.is_of_server else []
    done = subprocess.run(
        [*suite(one.version), *one.options, *where],
        cwd=dev.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode == 0 and passed(done.stdout) > 0, done.stdout


def passed(printed: str) -> int:
    """How many checks passed."""
    counts = re.findall(r"(\d+)(?:/\d+)?,? passed|Passed: (\d+)", printed)
    return max((int(one or other) for one, other in counts), default=0)


def main(words: Sequence[str]) -> int:
    chosen = [one for one in RUNS if all(word in one.name for word in words)]
    failed = 0
    with fixture_servers() as (url, _):
        for one in chosen:
            good, printed = run(one, url)
            failed += not good
            if not good:
                print(printed)
            print(
                f"{'ok    ' if good else 'FAILED'} {one.version:16} {one.name}: {passed(printed)} checks passed",
                flush=True,
            )
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main(sys.argv[1:]))
