"""Tools that the provider runs itself: their definitions go into the request as they are."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import httpx2

_added: Final[ContextVar[Sequence[Mapping[str, Any]]]] = ContextVar("added", default=())


class AddingClient(httpx2.AsyncClient):
    """HTTP client that adds definitions to a request's tools: the library above knows only some, each by a class."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if added := _added.get():
            body = json.loads(await request.aread())
            body["tools"] = [*(body.get("tools") or ()), *added]
            headers = [(key, value) for key, value in request.headers.raw if key.lower() != b"content-length"]
            request = httpx2.Request(
                request.method, request.url, headers=headers, content=json.dumps(body).encode(),
                extensions=request.extensions,
            )  # fmt: skip
        return await super().send(request, **options)


@contextmanager
def adding(definitions: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Add these tools to requests that are sent in this block."""
    token = _added.set(definitions)
    try:
        yield
    finally:
        _added.reset(token)
