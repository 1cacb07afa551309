"""Models of providers, and of servers that speak their protocols, over pydantic-ai-slim: one request per question."""

import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx2
from pydantic_ai import messages as parts
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model as Client
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.native_tools import NATIVE_TOOL_TYPES
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from handrail.contract.call import Call
from handrail.contract.errors import HandrailError
from handrail.contract.limits import ANSWER_TOKENS, CONNECT_WAIT, HOSTED_WINDOW, LOCAL_WINDOW, MODEL_SILENCE
from handrail.contract.model import (
    CallDelta,
    Message,
    ModelEvent,
    ModelFailed,
    Stop,
    TextDelta,
    ThinkingDelta,
    Turn,
    Usage,
)
from handrail.lazy import Lazy
from handrail.models._failures import failed
from handrail.models._hosted import AddingClient, adding
from handrail.models._known import KNOWN, TOKENS_ASKED
from handrail.models._messages import History, as_json, clean
from handrail.schema.export import DEFERRED, HOSTED, export, meta_of
from handrail.scrub import SHORTEST

if TYPE_CHECKING:
    from google.genai import client as _genai

    from handrail.models import _sampled
else:
    _sampled = Lazy("handrail.models._sampled")
    _genai = Lazy("google.genai.client")

SETTINGS: Final = frozenset(ModelSettings.__annotations__) - {"max_retries", "request_timeout", "first_event_timeout"}
STOPS: Final[Mapping[str, Stop]] = {
    "stop": "end",
    "tool_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refused",
}
SEARCH: Final = "tool_search"
"""The library's name for a provider's own search for deferred tools."""
VERSION: Final = re.compile(r"/(v\d\w*)/?$", re.ASCII)


def connect(
    provider: str,
    model: str,
    *,
    name: str,
    api_key: str | None = None,
    base_url: str | None = None,
    window: int | None = None,
    max_tokens: int | None = None,
    timeout: float = MODEL_SILENCE,
    cache: bool = True,
    tokens: bool = False,
    **settings: Any,
) -> "ProviderModel":
    """The model. Raises HandrailError for a wrong option and a missing key; nothing is sent."""
    own = provider.split("-")[0] + "_"
    if wrong := [key for key in settings if key not in SETTINGS and not key.startswith(own)]:
        raise HandrailError(
            f"{name} has no option {wrong[0]!r}; options are api_key, base_url, window, timeout, calls, "
            f"{', '.join(sorted(SETTINGS - {'timeout'}))}, and those of the provider, which begin with {own}"
        )
    if provider == "ollama":
        base_url = _with_version(base_url or "http://localhost:11434")
    client = _client(provider, model, name=name, api_key=api_key, base_url=base_url, timeout=timeout)
    if max_tokens is not None:
        settings["max_tokens"] = max_tokens
    if tokens:
        client, settings = _sampled.asking(name, provider, client, settings)
    if KNOWN[provider].asks_to_cache or "cache" in settings:
        settings["cache"] = cache
    key = api_key or _key_of(client)
    return ProviderModel(
        client, provider, name, {"max_retries": 0, **settings}, window=window,
        secrets=(key,) if len(key) >= SHORTEST else (),  # local servers take any letter
    )  # fmt: skip


def _client(
    provider: str, model: str, *, name: str, api_key: str | None, base_url: str | None, timeout: float
) -> Client:
    # No connection stays open between requests: one that the provider has closed meanwhile fails the next request,
    # and an open one belongs to the event loop that made it.
    http = AddingClient(
        timeout=httpx2.Timeout(timeout, connect=min(timeout, CONNECT_WAIT)),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
    )

    def make(kind: str) -> Provider[Any]:
        provide: Callable[..., Provider[Any]] = infer_provider_class(kind)
        if provider == "google" and base_url:
            return provide(client=_google_at(base_url, api_key or "none", http, timeout))
        return provide(api_key=api_key, base_url=base_url, http_client=http)

    try:
        known = infer_model(f"{KNOWN[provider].kind or provider}:{model}", make)
    except UserError as error:
        if not api_key and not base_url and KNOWN[provider].key:
            raise HandrailError(f"{name} needs a key: set {KNOWN[provider].key}_API_KEY, or give api_key=…") from error
        raise HandrailError(f"{name} cannot be opened: {error}") from error
    # The same model with our own rules: schemas go out as they were exported, and a stream must end properly.
    rules = {"json_schema_transformer": None, "openai_chat_streaming_requires_finish_reason": True}
    again: Callable[..., Client] = type(known)
    return again(known.model_name, provider=known.provider, profile=rules)


def _google_at(base_url: str, api_key: str, http: httpx2.AsyncClient, timeout: float) -> Any:
    """A client for another address than Google's, which may end in the version of the protocol."""
    address = VERSION.sub("", base_url)
    version = VERSION.search(base_url)
    options: Any = {
        "base_url": address,
        "api_version": version[1] if version else "v1beta",
        "httpx_async_client": http,
        "timeout": int(timeout * 1000),
    }
    return _genai.Client(vertexai=False, api_key=api_key, http_options=options)


def _key_of(client: Any) -> str:
    """The key that the SDK has found in the environment."""
    sdk = client.client
    key = getattr(sdk, "api_key", None) or getattr(getattr(sdk, "_api_client", None), "api_key", None)
    return key if isinstance(key, str) else ""


class ProviderModel:
    """One model of one provider. It keeps no connection between questions, so there is nothing to close."""

    def __init__(
        self,
        client: Client,
        provider: str,
        name: str,
        settings: Mapping[str, Any],
        *,
        window: int | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        self.name = name
        local = provider == "ollama" or _is_local(client.base_url)
        self._unpriced, self._address = _is_local(client.base_url), client.base_url if local else ""
        self.window = window or client.context_window or (LOCAL_WINDOW if local else HOSTED_WINDOW)
        self.max_tokens = settings.get("max_tokens") or min(ANSWER_TOKENS, self.window // 4)
        self.secrets = tuple(secrets)
        """Texts that no recording of this model may contain."""
        self._client = client
        self._provider = provider
        self._settings = ModelSettings(**settings)  # type: ignore[typeddict-item]
        self._left_out: set[str] = set()
        self._rules = KNOWN[provider].rules or provider
        self.searches = NATIVE_TOOL_TYPES.get(SEARCH) in client.profile.get("supported_native_tools", ())
        """Whether the provider has its own search for deferred tools."""

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, system: str = ""
    ) -> AsyncIterator[ModelEvent]:
        offered = [made for each in tools if (made := self._definition(each))]
        hosted = [made for each in tools if (made := (meta_of(each).get(HOSTED) or {}).get(self._rules))]
        asked = ModelRequestParameters(
            function_tools=offered,
            native_tools=[NATIVE_TOOL_TYPES[SEARCH]()] if any(each.defer_loading for each in offered) else [],
            instruction_parts=[parts.InstructionPart(content=clean(system))] if system.strip() else None,
        )
        history = History(self._provider, self._client).of(messages)
        streaming = False
        try:
            async with AsyncExitStack() as closing:
                request = model_request_stream(
                    self._client, history, model_settings=self._settings, model_request_parameters=asked,
                    instrument=False,
                )  # fmt: skip
                with adding(hosted):
                    stream = await closing.enter_async_context(request)
                pieces, streaming = _Pieces(), True
                async for event in stream:
                    for piece in pieces.of(event):
                        yield piece
                response = stream.get()
        except Exception as error:  # noqa: BLE001 - every failure of a client becomes a ModelFailed
            problem = failed(error, self.name, streaming=streaming, secrets=self.secrets, address=self._address or "")
            raise problem from problem.__cause__
        yield _turn(response, self.name, priced=not self._unpriced)

    def _definition(self, tool: Mapping[str, Any]) -> ToolDefinition | None:
        """The tool by the provider's rules; None for one that would make the provider refuse the whole request.

        None also for one that a provider runs itself, and for a deferred one that this model cannot search for.
        """
        name, description = tool["name"], tool.get("description", "")
        deferred = bool(meta_of(tool).get(DEFERRED))
        if meta_of(tool).get(HOSTED) or (deferred and not self.searches):
            return None
        try:
            made = export(self._rules, name, description, tool["inputSchema"])
        except HandrailError as error:
            if name not in self._left_out:
                self._left_out.add(name)
                logging.getLogger("handrail").warning("%s is not offered to %s: %s", name, self.name, error)
            return None
        made = made.get("function", made)
        schema = next(made[key] for key in ("parameters", "input_schema", "parametersJsonSchema") if key in made)
        return ToolDefinition(
            name=name, description=description, parameters_json_schema=schema, strict=False, defer_loading=deferred,
            with_native=SEARCH if deferred else None,
        )  # fmt: skip


class _Pieces:
    """Deltas that a person can be shown while the answer is written."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[int, str]] = {}
        """Number and name of each call, by the number of its part."""

    def of(self, event: parts.ModelResponseStreamEvent) -> Iterator[ModelEvent]:
        if isinstance(event, parts.PartStartEvent):
            yield from self._began(event.index, event.part)
        elif isinstance(event, parts.PartDeltaEvent):
            yield from self._goes_on(event.index, event.delta)

    def _began(self, index: int, part: parts.ModelResponsePart) -> Iterator[ModelEvent]:
        if isinstance(part, parts.ToolCallPart):
            number, _ = self._calls.setdefault(index, (len(self._calls), part.tool_name))
            yield CallDelta(number, part.tool_name, as_json(part.args))
        elif isinstance(part, parts.TextPart) and part.content:
            yield TextDelta(part.content)
        elif isinstance(part, parts.ThinkingPart) and part.content:
            yield ThinkingDelta(part.content)

    def _goes_on(self, index: int, delta: parts.ModelResponsePartDelta) -> Iterator[ModelEvent]:
        if isinstance(delta, parts.ToolCallPartDelta):
            if index in self._calls and delta.args_delta:
                yield CallDelta(*self._calls[index], as_json(delta.args_delta))
        elif isinstance(delta, parts.TextPartDelta) and delta.content_delta:
            yield TextDelta(delta.content_delta)
        elif isinstance(delta, parts.ThinkingPartDelta) and delta.content_delta:
            yield ThinkingDelta(delta.content_delta)


def _turn(response: parts.ModelResponse, name: str, *, priced: bool) -> Turn:
    """The whole answer. Raises ModelFailed for an answer without an end."""
    details = response.provider_details or {}
    written = details.get("finish_reason")
    if response.state == "incomplete" or not (written or response.finish_reason == "content_filter"):
        raise ModelFailed(f"{name}: the answer ended before it was complete", transient=True, kind="cut")
    calls = tuple(
        Call(part.tool_call_id, part.tool_name, as_json(part.args) or "{}")
        for part in response.parts
        if isinstance(part, parts.ToolCallPart)
    )
    stop = "paused" if response.state == "suspended" else STOPS.get(response.finish_reason or "", "other")
    if stop == "end" and calls:
        stop = "tool_use"
    text = "".join(part.content for part in response.parts if isinstance(part, parts.TextPart))
    refusal = details.get("refusal")
    if stop == "refused" and not text and isinstance(refusal, str):
        text = refusal
    tokens = _sampled.tokens_of(details) if details.get(TOKENS_ASKED) else None
    return Turn(text, calls, stop, _usage(response, priced=priced), History.keep(response), tokens)


def _usage(response: parts.ModelResponse, *, priced: bool) -> Usage:
    """Tokens and cost of the answer. A server on this machine has no price, whatever its model is called."""
    used, cost = response.usage, None
    try:
        if not priced:
            pass
        elif used.cost is not None or used.output_tokens:
            cost = float(used.cost if used.cost is not None else response.cost().total_price)
    except (LookupError, ValueError, AssertionError):  # a model without a known price, or an answer without counts
        pass
    return Usage(
        used.input_tokens,
        used.output_tokens,
        used.cache_read_tokens,
        used.cache_write_tokens,
        used.details.get("reasoning_tokens") or used.details.get("thoughts_tokens") or 0,
        cost,
    )


def _with_version(url: str) -> str:
    return url if urlsplit(url).path.strip("/") else url.rstrip("/") + "/v1"


def _is_local(url: str | None) -> bool:
    host = urlsplit(url or "").hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:
        return host == "localhost" or host.endswith(".local")
