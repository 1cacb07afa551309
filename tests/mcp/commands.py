"""`handrail mcp` as a program of its own, over HTTP."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOKEN: Final = "first-token-of-this-test"
OTHER_TOKEN: Final = "second-token-of-this-test"
HANDRAIL: Final = (sys.executable, "-m", "handrail", "mcp")


@dataclass(frozen=True)
class Address:
    """Where a server listens."""

    port: int
    process: "subprocess.Popen[str]"

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
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r":(\d+)/mcp", line)
            assert found, line
            yield Address(int(found[1]), process)
        finally:
            process.terminate()
            process.wait(30)
            process.stderr and process.stderr.close()
