"""The page about debugging tells the truth: with the environment of each recipe, its program delivers a span."""

import base64
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PAGE = (Path(__file__).parents[2] / "docs" / "debugging.md").read_text(encoding="utf-8")
RECIPES = [block for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if "OTLP" in block]
KEYS = {"LANGFUSE_PUBLIC_KEY": "pk-" + "p" * 60, "LANGFUSE_SECRET_KEY": "sk-" + "s" * 60, "HONEYCOMB_API_KEY": "hc"}
BASIC = base64.b64encode(f"{KEYS['LANGFUSE_PUBLIC_KEY']}:{KEYS['LANGFUSE_SECRET_KEY']}".encode()).decode()
EXPECTED = {
    "localhost": ("/v1/traces", {}),
    "langfuse": (
        "/api/public/otel/v1/traces",
        {"authorization": f"Basic {BASIC}", "x-langfuse-ingestion-version": "4"},
    ),
    "honeycomb": ("/v1/traces", {"x-honeycomb-team": "hc"}),
}


class Backend(HTTPServer):
    """Takes what an exporter sends."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Take)
        self.taken: list[tuple[str, dict[str, str], ExportTraceServiceRequest]] = []


class Take(BaseHTTPRequestHandler):
    server: Backend

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, dict(self.headers), ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_there_are_three_recipes() -> None:
    assert [name for recipe in RECIPES for name in EXPECTED if name in recipe] == list(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_program_delivers_a_span_with_the_environment_of_the_recipe(
    name: str, backend: Backend, tmp_path: Path
) -> None:
    (recipe,) = [each for each in RECIPES if name in each]
    here = f"http://127.0.0.1:{backend.server_address[1]}"
    exports = [line for line in recipe.splitlines() if line.startswith("export ")]
    exports = [re.sub(r"(ENDPOINT=)https?://[^/\s]+", rf"\g<1>{here}", line) for line in exports]
    programs = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (program,) = [each for each in programs if "OTLPSpanExporter" in each]
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    script = "\n".join([*exports, f"exec {sys.executable} program.py"])
    done = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, env={**os.environ, **KEYS}, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    ((path, headers, request),) = backend.taken
    assert path == EXPECTED[name][0]
    assert EXPECTED[name][1].items() <= {key.lower(): value for key, value in headers.items()}.items()
    (resource,) = request.resource_spans
    assert [span.name for scope in resource.scope_spans for span in scope.spans] == ["execute_tool add"]
    assert "my-agent" in str(resource.resource)
