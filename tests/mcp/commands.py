"""`handrail mcp` as a program of its own, over HTTP."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Final

TOKEN: Final = "first-token-of-this-test"
OTHER_TOKEN: Final = "second-token-of-this-test"
HANDRAIL: Final = (sys.executable, "-m", "handrail", "mcp")


@dataclass(frozen=True)
class Address:
    """Where a server listens."""

    port: int
    process: "subprocess.Popen[bytes]"
    log: Path
    """Holds what it has written to stderr."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


@contextmanager
def http_server(directory: Path, *options: str, argv: Sequence[str] = HANDRAIL) -> Iterator[Address]:
    """A server on this directory, for two tokens."""
    tokens = directory.parent / f"{directory.name}-tokens"
    tokens.write_text(f"{TOKEN}\n{OTHER_TOKEN}\n")
    tokens.chmod(0o600)
    words = [*argv, "--http", "127.0.0.1:0", "--token-file", str(tokens), "--workspace", str(directory), *options]
    log = directory.parent / f"{directory.name}-stderr"
    with log.open("wb") as stderr, subprocess.Popen(words, stderr=stderr) as process:
        try:
            yield Address(_port(process, log), process, log)
        finally:
            process.terminate()
            process.wait(30)


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    """The port that it says it listens on."""
    while True:
        ended = process.poll() is not None
        if found := re.search(r":(\d+)/mcp", log.read_text()):
            return int(found[1])
        assert not ended, log.read_text()
        sleep(0.02)
