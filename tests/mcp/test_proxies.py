"""The proxies of the documentation, as it writes them, in front of `handrail mcp` over HTTP."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from handrail import Policy, Session
from handrail.mcp import connect
from tests.installing import ROOT
from tests.mcp.commands import TOKEN, http_server

pytestmark = [pytest.mark.anyio, pytest.mark.long]
PROXIES = ("nginx", "caddy")
BLOCK = re.compile(r"<!-- not code: configurations of proxies -->\n```\w*\n(.*?)```", re.DOTALL)
LARGE = "x" * (3 << 20)


def installed(program: str) -> str:
    """Where the program is; as root it is installed by apt where it is not."""
    if shutil.which(program) is None:
        subprocess.run(["apt-get", "install", "-y", "-q", program], check=True, capture_output=True, timeout=600)
    return shutil.which(program) or program


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def written(program: str, port: int, server: int, directory: Path) -> list[str]:
    """Write the page's configuration, with these ports, and return the command that serves it."""
    blocks = dict(zip(PROXIES, BLOCK.findall((ROOT / "docs/mcp-server.md").read_text()), strict=True))
    text = blocks[program].replace("127.0.0.1:8765", f"127.0.0.1:{server}")
    file = directory / f"{program}.conf"
    if program == "caddy":
        text = text.replace("mcp.example.com", f"http://127.0.0.1:{port}")
        file.write_text(f"{{\n\tadmin off\n}}\n{text}")
        return [installed(program), "run", "--adapter", "caddyfile", "--config", str(file)]
    user = "user root; " if os.geteuid() == 0 else ""  # whose directory this is
    file.write_text(
        f"{user}daemon off; pid {directory}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;\n"
        f"server {{ listen 127.0.0.1:{port};\n{text}\n}} }}\n"
    )
    return [installed(program), "-p", str(directory), "-c", str(file)]


@contextmanager
def proxied(program: str, server: int, directory: Path) -> Iterator[str]:
    port = free_port()
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(written(program, port, server, directory), stdout=log, stderr=log)
    try:
        for _ in range(600):
            with socket.socket() as trying:
                if trying.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, (directory / "log").read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize("program", PROXIES)
async def test_a_proxy_as_the_page_writes_it_serves_calls_streams_and_cancellation(
    program: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with http_server(work) as server, proxied(program, server.port, tmp_path) as url:
        assert httpx2.post(url, json={}).status_code == 401, "without a token"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            connect("it", url=url, headers=headers) as tools,
            Session(tools.tools, policy=Policy(mode="open")) as session,
        ):
            said = await session.call("it__bash", {"command": "echo hello"})
            assert "hello" in str(said.value), said
            large = await session.call("it__write", {"path": "large", "content": LARGE})
            assert large.ok, large
            assert (work / "large").stat().st_size == len(LARGE)
            pending = session.begin("it__bash", {"command": "echo began; touch began; sleep 300; touch ended"})
            async for event in session.events():
                if event.type == "call_output" and "began" in str(event.data):
                    break  # it streams: the command goes on for five minutes
            pending.cancel()
            again = await session.call("it__bash", {"command": "pgrep -f 'sleep 30[0]' || echo none"})
            assert "none" in str(again.value), again
