"""Over HTTP only the right request is served: the right host, origin, token, method and size."""

import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from itertools import product
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.shared.exceptions import MCPError

from handrail import HandrailError
from handrail.mcp.http import MAX_REQUEST_BYTES
from handrail.serving import BearerTokens, is_loopback, names_of
from tests.mcp.commands import OTHER_TOKEN, TOKEN, Address, http_server
from tests.mcp.served import NEW, OLD, PROTOCOLS, envelope

LIST: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/list",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": NEW,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with http_server(tmp_path_factory.mktemp("work"), "--handles") as address:
        yield address


@asynccontextmanager
async def client_with(
    server: Address, token: str, protocol: str, heard: list[str] | None = None, answers: Any = None
) -> AsyncIterator[Client]:
    """A client with this token; `heard` gets the MCP session of every answer, and `answers` every question."""

    async def note(response: Any) -> None:
        if heard is not None:
            heard.append(response.headers.get("mcp-session-id", ""))

    async with create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http:
        http.event_hooks["response"].append(note)
        transport = streamable_http_client(server.url, http_client=http)
        async with Client(transport, mode=protocol, elicitation_callback=answers) as client:
            yield client


def answer(
    server: Address, *, host: str, origin: str | None, token: str | None, method: str, size: int = 0,
    chunked: bool = False, protocol: str = NEW, session: str | None = None,
) -> tuple[int, bytes]:  # fmt: skip
    """The answer to one request for the list of tools, or before 2026-07-28 for a session, padded to this size."""
    body = json.dumps(LIST if protocol == NEW else INITIALIZE).encode()
    body += b" " * max(0, size - len(body))
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest(method, "/mcp", skip_host=True, skip_accept_encoding=True)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    headers |= {"MCP-Protocol-Version": NEW, "Mcp-Method": "tools/list"} if protocol == NEW else {}
    headers |= {"Host": host} if host else {}
    headers |= {} if origin is None else {"Origin": origin}
    headers |= {} if token is None else {"Authorization": token}
    headers |= {} if session is None else {"Mcp-Session-Id": session}
    headers |= {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(len(body))}
    for name, value in headers.items():
        connection.putheader(name, value)
    try:
        connection.endheaders()
        connection.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has answered before it read all
    try:
        response = connection.getresponse()
        streams = session is not None and response.status == 200 and method == "GET"  # it has no end
        return response.status, b"" if streams else response.read()
    except (ConnectionResetError, BrokenPipeError):
        return 0, b""
    finally:
        connection.close()


def is_served(status: int, body: bytes) -> bool:
    return status == 200 and (b'"tools":' in body or b'"protocolVersion"' in body)


def names(server: Address, most: int = 4) -> tuple[list[str], list[str | None], list[str | None]]:
    """Hosts, origins and tokens: of each list the first two, and of the tokens the first, are right."""
    right = f"127.0.0.1:{server.port}"
    hosts = [right, f"localhost:{server.port}", f"evil.example:{server.port}", "", "evil.example", "127.0.0.1:1"]
    wrong = ["http://evil.example", f"http://127.0.0.1.evil.example:{server.port}", "null", f"https://{right}"]
    tokens = [f"Bearer {TOKEN}", None, f"Bearer {TOKEN[:-1]}", TOKEN, "Bearer ", "Bearer wrong-token-of-this-test"]
    return hosts[:most], [None, f"http://{right}", *wrong][:most], tokens[:most]


@pytest.mark.parametrize("most", [4, pytest.param(6, marks=pytest.mark.long)])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_only_the_right_request_is_served(server: Address, protocol: str, most: int) -> None:
    hosts, origins, tokens = names(server, most)
    served = []
    for cell in product(hosts, origins, tokens, ["POST", "GET", "PUT", "DELETE", "OPTIONS", "HEAD"]):
        host, origin, token, method = cell
        if is_served(*answer(server, host=host, origin=origin, token=token, method=method, protocol=protocol)):
            served.append(cell)
    assert served == [(host, origin, tokens[0], "POST") for host, origin in product(hosts[:2], origins[:2])], (
        "the right ones and no others"
    )


@pytest.mark.anyio
async def test_only_the_right_request_ends_a_session_or_follows_its_events(server: Address) -> None:
    ids: list[str] = []
    hosts, origins, tokens = names(server)
    right: dict[str, Any] = {"host": hosts[0], "origin": None, "token": tokens[0], "protocol": OLD}
    async with client_with(server, TOKEN, OLD, ids) as client:
        await client.list_tools()
        right["session"] = next(filter(None, ids))
        for host, origin, token, method in product(hosts, origins, tokens, ["DELETE", "PUT", "GET"]):
            if method != "PUT" and (host in hosts[:2] and origin in origins[:2] and token == tokens[0]):
                continue
            cell = {**right, "host": host, "origin": origin, "token": token, "method": method}
            status, _ = await anyio.to_thread.run_sync(lambda cell=cell: answer(server, **cell))
            assert status in (400, 401, 403, 405, 421), cell
        assert (await client.list_tools()).tools, "it is still there"
        assert answer(server, **right, method="DELETE")[0] == 200, "the control"
        assert answer(server, **right, method="GET")[0] == 404


@pytest.mark.parametrize(("protocol", "chunked"), [(NEW, False), (NEW, True), (OLD, False), (OLD, True)])
def test_a_request_that_is_too_large_is_refused(server: Address, protocol: str, chunked: bool) -> None:
    right: dict[str, Any] = {"host": f"127.0.0.1:{server.port}", "origin": None, "token": f"Bearer {TOKEN}"}
    right |= {"method": "POST", "chunked": chunked, "protocol": protocol}
    assert is_served(*answer(server, **right, size=MAX_REQUEST_BYTES))
    status, body = answer(server, **right, size=MAX_REQUEST_BYTES + 1)
    assert status in (413, 0)
    assert not is_served(status, body)
    status, body = answer(server, **{**right, "token": None}, size=MAX_REQUEST_BYTES * 4)
    assert status in (401, 0), "who has no token does not get to send that much"


def test_it_listens_on_loopback_only(server: Address) -> None:
    for address in {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}:
        if not str(address).startswith("127."):
            with pytest.raises(OSError), socket.create_connection((str(address), server.port), timeout=5):
                pass
    with socket.create_connection(("127.0.0.1", server.port), timeout=30):
        pass


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_client_with_the_token_calls_tools(server: Address, protocol: str) -> None:
    async with client_with(server, TOKEN, protocol) as client:
        result = envelope(
            await client.call_tool("bash", {"command": "echo hello; env; tr '\\0' ' ' < /proc/1/cmdline"})
        )
    assert result["result"]["stdout"].startswith("hello\n")
    assert TOKEN not in json.dumps(result), "no command sees the token"


@pytest.mark.anyio
async def test_each_token_has_its_own_sandbox(server: Address) -> None:
    async with client_with(server, TOKEN, NEW) as one, client_with(server, OTHER_TOKEN, NEW) as other:
        await one.call_tool("bash", {"command": "echo mine > /tmp/mine"})
        same = envelope(await one.call_tool("bash", {"command": "cat /tmp/mine"}))
        strange = envelope(await other.call_tool("bash", {"command": "cat /tmp/mine"}))
        handle = envelope(await one.call_tool("sandbox_open", {}))["result"]["sandbox"]
        own = envelope(await one.call_tool("bash", {"command": "echo hi", "sandbox": handle}))
        stolen = envelope(await other.call_tool("bash", {"command": "echo hi", "sandbox": handle}))
    assert same["result"]["stdout"] == "mine\n"
    assert strange["result"]["exit_code"] == 1
    assert own["result"]["stdout"] == "hi\n"
    assert (stolen["kind"], stolen["field"]) == ("not_found", "sandbox")


@pytest.mark.anyio
async def test_each_mcp_session_of_a_token_has_its_own_sandbox(server: Address) -> None:
    async with client_with(server, TOKEN, OLD) as one, client_with(server, TOKEN, OLD) as other:
        await one.call_tool("bash", {"command": "echo mine > /tmp/mine"})
        strange = envelope(await other.call_tool("bash", {"command": "cat /tmp/mine"}))
    assert strange["result"]["exit_code"] == 1


@pytest.mark.anyio
async def test_a_session_of_one_token_is_not_found_with_another(server: Address) -> None:
    ids: list[str] = []
    async with client_with(server, TOKEN, OLD, ids) as client:
        await client.list_tools()
        stolen = create_mcp_http_client(
            headers={"Authorization": f"Bearer {OTHER_TOKEN}", "mcp-session-id": next(filter(None, ids))}
        )
        async with stolen:
            body = {"jsonrpc": "2.0", "id": 9, "method": "tools/list", "params": {}}
            accept = {"Accept": "application/json, text/event-stream"}
            assert (await stolen.post(server.url, json=body, headers=accept)).status_code == 404


@pytest.mark.anyio
async def test_without_a_token_there_is_no_connection(server: Address) -> None:
    with pytest.raises((MCPError, ExceptionGroup)):
        async with client_with(server, "wrong-token-of-this-test", OLD) as client:
            await client.list_tools()


@pytest.mark.parametrize(
    "tokens", [[], ["short"], ["has a space in the middle"], ["gr\u00fc\u00dfe-aus-der-ferne-und-mehr"]]
)
def test_a_token_that_is_easily_guessed_or_cannot_be_sent_is_refused(tokens: list[str]) -> None:
    with pytest.raises(HandrailError):
        BearerTokens(tokens)


def test_the_names_of_a_server_are_those_of_its_address() -> None:
    assert names_of("127.0.0.1") == ["127.0.0.1", "[::1]", "localhost"]
    assert "build.example" in names_of("build.example")
    assert socket.gethostname() in names_of("0.0.0.0")
    assert "evil.example" not in names_of("0.0.0.0")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_an_address_of_this_machine_is_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "10.0.0.1", "::", "", "127.0.0.1.evil.example", "127.evil.example", "127.", "localhost.example"]
)
def test_another_address_or_a_name_that_looks_like_one_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)
