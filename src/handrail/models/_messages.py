"""Messages in the library's form: every call paired with its result, and nothing that a provider would reject."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai import messages as parts
from pydantic_ai.models import Model as Client

from handrail.contract.call import Call
from handrail.contract.errors import HandrailError
from handrail.contract.model import Message
from handrail.contract.result import IMAGE_TYPES, Image, images_in
from handrail.models._known import KNOWN


class History:
    """A conversation as one provider reads it."""

    def __init__(self, provider: str, client: Client) -> None:
        self._provider = provider
        self._client = client

    def of(self, messages: Sequence[Message]) -> list[parts.ModelMessage]:
        history: list[parts.ModelMessage] = []
        calls: tuple[Call, ...] = ()
        for message in messages:
            if message.role == "user":
                history.append(parts.ModelRequest([parts.UserPromptPart(self._prompt(message))]))
            elif message.role == "tool":
                history.append(parts.ModelRequest(self._results(calls, message)))
            elif answer := self._answer(message):
                calls = message.calls
                history.append(answer)
        return history

    def _prompt(self, message: Message) -> str | list[parts.UserContent]:
        text = clean(message.text)
        if not message.images:
            return text
        shown: list[parts.UserContent] = [text] if text.strip() else []
        for image in message.images:
            shown.append(self._picture(image) or f"[a picture of type {image.media_type} cannot be shown]")
        return shown

    def _results(self, calls: Sequence[Call], message: Message) -> list[parts.ModelRequestPart]:
        """The results, and in one part after them their pictures and what the user says next."""
        results = message.results
        if len(calls) != len(results):
            raise HandrailError(f"{len(calls)} calls have {len(results)} results; each call has one, in order")
        made: list[parts.ModelRequestPart] = []
        later: list[parts.UserContent] = []
        for call, result in zip(calls, results, strict=True):
            text = clean(json.dumps(result.to_envelope(call.name), ensure_ascii=False, separators=(",", ":")))
            pictures = [picture for _, image in images_in(result.value) if (picture := self._picture(image))]
            content: Any = [text, *pictures] if pictures else text
            if pictures and KNOWN[self._provider].has_text_results:
                content = text
                later += [f"What {clean(call.name)} (call {clean(call.id)}) shows:", *pictures]
            made.append(
                parts.ToolReturnPart(
                    clean(call.name),
                    content,
                    clean(call.id),
                    outcome="failed" if KNOWN[self._provider].tells_failures and not result.ok else "success",
                )
            )
        said = self._prompt(message) if message.text.strip() or message.images else ""
        if later and said:
            later += [said] if isinstance(said, str) else said
        if later or said:
            made.append(parts.UserPromptPart(later or said))
        return made

    def _picture(self, image: Image) -> parts.BinaryContent | None:
        if image.media_type not in IMAGE_TYPES or (
            image.media_type == "image/gif" and not KNOWN[self._provider].takes_gif
        ):
            return None
        return parts.BinaryContent(image.data, media_type=image.media_type)

    def _answer(self, message: Message) -> parts.ModelResponse | None:
        """The model's answer in the provider's form; None for an empty answer, which providers refuse."""
        kept = self._kept(message)
        if kept is not None:
            return kept
        made: list[parts.ModelResponsePart] = [parts.TextPart(clean(message.text))] if message.text.strip() else []
        made += [
            parts.ToolCallPart(clean(call.name), clean(as_json(call.arguments)), clean(call.id))
            for call in message.calls
        ]
        return parts.ModelResponse(made, model_name=self._client.model_name) if made else None

    def _kept(self, message: Message) -> parts.ModelResponse | None:
        """The answer with its signatures, under the ids that its calls have now; None where nothing was kept."""
        if message.keep is None:
            return None
        [kept] = parts.ModelMessagesTypeAdapter.validate_python([_clean_json(message.keep)])
        if not isinstance(kept, parts.ModelResponse):
            return None
        made, calls = list(kept.parts), list(message.calls)
        for number, part in enumerate(made):
            if isinstance(part, parts.ToolCallPart):
                if not calls:
                    return None
                made[number] = replace(part, tool_call_id=clean(calls.pop(0).id))
        return None if calls else replace(kept, parts=made)

    @staticmethod
    def keep(response: parts.ModelResponse) -> Any:
        """Data that must go back with this answer, as JSON; None if its text and calls say everything."""
        if all(_is_plain(part) for part in response.parts):
            return None
        [kept] = parts.ModelMessagesTypeAdapter.dump_python([response], mode="json", exclude_none=True)
        return {key: value for key, value in kept.items() if key not in ("usage", "timestamp")}


def _is_plain(part: parts.ModelResponsePart) -> bool:
    return isinstance(part, parts.TextPart | parts.ToolCallPart) and not part.id and not part.provider_details


def as_json(arguments: str | Mapping[str, Any] | None) -> str:
    """Arguments as text: the model's own, where the provider passes it on."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def clean(text: str) -> str:
    """The text without lone surrogates: one in any message makes every later request fail."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _clean_json(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): _clean_json(item) for key, item in value.items()}
    return [_clean_json(item) for item in value] if isinstance(value, list) else value
