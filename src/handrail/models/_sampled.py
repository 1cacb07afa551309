"""The tokens that a server sampled: asked for with every request, and read from the stream of its answer."""

from collections.abc import Mapping
from typing import Any, Final

from openai.types.chat import ChatCompletionChunk
from pydantic_ai.models import Model as Client
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse

from handrail.contract.errors import HandrailError
from handrail.contract.model import Tokens
from handrail.models._known import TOKENS_ASKED

PROMPT: Final = "prompt_token_ids"
OUTPUT: Final = "token_ids"
"""Names by which vLLM and others give the ids of tokens."""


class _SampledResponse(OpenAIStreamedResponse):
    """Collects the ids of tokens, which the library above knows nothing of."""

    def _map_chunk_provider_details(self, chunk: ChatCompletionChunk) -> dict[str, Any] | None:
        known = self.provider_details or {}
        prompt = (chunk.model_extra or {}).get(PROMPT) or known.get(PROMPT) or []
        output = list(known.get(OUTPUT, []))
        for choice in chunk.choices or ():
            output += (choice.model_extra or {}).get(OUTPUT) or []
        return {
            **(super()._map_chunk_provider_details(chunk) or {}),
            TOKENS_ASKED: True,
            PROMPT: prompt,
            OUTPUT: output,
        }


class _SampledChat(OpenAIChatModel):
    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _SampledResponse


def asking(name: str, provider: str, client: Client, settings: Mapping[str, Any]) -> tuple[Client, dict[str, Any]]:
    """The same model, and settings that ask for tokens. Raises HandrailError for a provider that gives none."""
    if provider != "openai-chat":
        raise HandrailError(f"{name} has no option 'tokens'; it is for openai-chat:NAME@http://HOST/v1")
    body = {"return_token_ids": True} if _is_elsewhere(client) else {}
    extra = {**body, **(settings.get("extra_body") or {})}
    made = _SampledChat(client.model_name, provider=client.provider, profile=client.profile)  # type: ignore[arg-type]
    return made, {**settings, "openai_logprobs": True, **({"extra_body": extra} if extra else {})}


def _is_elsewhere(client: Client) -> bool:
    """Whether it is another server than OpenAI's own, which refuses a key that it does not know."""
    return "api.openai.com" not in (client.base_url or "")


def tokens_of(details: Mapping[str, Any]) -> Tokens:
    """The tokens of an answer, as its server gave them."""
    logprobs = [each.get("logprob") for each in details.get("logprobs") or ()]
    return Tokens(
        tuple(details.get(PROMPT) or ()), tuple(details.get(OUTPUT) or ()),
        tuple(float(each) for each in logprobs if each is not None),
    )  # fmt: skip
