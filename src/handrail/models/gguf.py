"""A model from a GGUF file, run in this process by xllamacpp: its calls keep to the tools' schemas."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import anyio
import anyio.from_thread
import anyio.lowlevel
import xllamacpp  # type: ignore[import-untyped]

from handrail.contract.call import Call
from handrail.contract.errors import HandrailError, describe_error
from handrail.contract.limits import ANSWER_TOKENS, LOCAL_WINDOW
from handrail.contract.model import CallDelta, FailedKind, Message, ModelEvent, ModelFailed, TextDelta, Turn, Usage
from handrail.models.text import as_text, described
from handrail.schema.export import export, for_every_model

HOW: Final = """\
Answer with one JSON object: {"name": "NAME", "arguments": {}} uses a tool, and its result comes with the next message;
{"answer": "TEXT"} is your last answer.

The tools, each with the JSON Schema of its arguments:
"""
_BEGUN: Final = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"]+)"\s*,\s*"arguments"\s*:\s*')
MAGIC: Final = b"GGUF"
"""First bytes of every GGUF file."""
MAX_WAITING_COUNT: Final = 1_000_000
"""Number of tokens that may wait to be read."""
SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p", "seed", "repeat_penalty")


class Gguf:
    """One file, loaded once; it answers one question after the other.

    `calls` are constrained: an answer is a call of a tool, with arguments that its schema accepts, or a text.
    """

    def __init__(
        self, path: str, *, window: int = LOCAL_WINDOW, max_tokens: int | None = None, **sampling: float
    ) -> None:
        if not Path(path).is_file():
            raise HandrailError(f"gguf:{path}: there is no such file")
        with Path(path).open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise HandrailError(f"gguf:{path} is not a GGUF file; download one, such as NAME-Q4_K_M.gguf")
        if wrong := [key for key in sampling if key not in SAMPLING]:
            raise HandrailError(
                f"gguf:{path} has no option {wrong[0]!r}; it has window, max_tokens, {', '.join(SAMPLING)}"
            )
        self.name = f"gguf:{path}"
        self.window = window
        self.max_tokens = max_tokens or min(ANSWER_TOKENS, window // 4)
        self._sampling = sampling
        options = xllamacpp.CommonParams()
        options.model.path, options.n_ctx, options.n_parallel = path, window, 1
        options.warmup, options.verbosity = False, -1
        try:
            self._server = xllamacpp.Server(options)
        except RuntimeError as error:
            raise HandrailError(f"gguf:{path} cannot be loaded: {error}") from error

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, system: str = ""
    ) -> AsyncIterator[ModelEvent]:
        tools = for_every_model(tools)
        written, left = _Written(constrained=bool(tools)), Event()
        send, receive = anyio.create_memory_object_stream[Any](MAX_WAITING_COUNT)
        post = partial(anyio.from_thread.run_sync, token=anyio.lowlevel.current_token())
        work = partial(self._work, self._request(messages, tools, system), send, post, left)
        # A daemon: the library cannot be interrupted between tokens, and must not keep the program from exiting.
        Thread(target=work, name=self.name, daemon=True).start()
        try:
            async for chunk in receive:
                for piece in written.of(chunk):
                    yield piece
        finally:
            left.set()  # the thread sees it at its next token
            send.close()
            receive.close()
        yield written.turn(self.name)

    def _request(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], system: str) -> dict[str, Any]:
        told = [{"role": message.role, "content": message.text} for message in as_text(messages)]
        whole = described(system, tools, HOW)
        request: dict[str, Any] = {
            "messages": [{"role": "system", "content": whole}, *told] if whole else told,
            "max_tokens": self.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._sampling,
        }
        if tools:
            shape = {"name": "answer", "strict": True, "schema": {"anyOf": [_ANSWER, *map(_call, tools)]}}
            request["response_format"] = {"type": "json_schema", "json_schema": shape}
        return request

    def _work(self, request: dict[str, Any], send: Any, post: Callable[..., Any], left: Event) -> None:
        """Answer in a thread of its own, which no event loop waits for."""

        def took(chunk: Any) -> bool:
            try:
                post(send.send_nowait, chunk)
            except Exception:  # noqa: BLE001 - nobody reads any more, or the event loop is gone
                left.set()
            return left.is_set()

        try:
            self._server.handle_chat_completions(request, took)
        except Exception as error:  # noqa: BLE001 - raised again where the question was asked
            took({"error": {"message": describe_error(error)}})
        try:
            post(send.close)
        except RuntimeError:
            pass  # the event loop is gone


_ANSWER: Final = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}


def _call(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = export("mcp", tool["name"], "", tool["inputSchema"])["inputSchema"]
    return {
        "type": "object",
        "properties": {"name": {"const": tool["name"]}, "arguments": schema},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


class _Written:
    """The answer as it grows."""

    def __init__(self, *, constrained: bool) -> None:
        self._constrained = constrained
        self._text = ""
        self._stop: str | None = None
        self._usage = Usage()
        self._sent = 0

    def of(self, chunk: Mapping[str, Any]) -> Iterator[ModelEvent]:
        if error := chunk.get("error"):
            too_long = error.get("type") == "exceed_context_size_error"
            kind: FailedKind = "context" if too_long else "error"
            raise ModelFailed(str(error.get("message")), transient=error.get("code") == 500, kind=kind)
        if used := chunk.get("usage"):
            cached = (used.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self._usage = Usage(used["prompt_tokens"], used["completion_tokens"], cached)
        for choice in chunk.get("choices", ()):
            self._stop = choice["finish_reason"] or self._stop
            if text := (choice.get("delta") or {}).get("content"):
                self._text += text
                yield from self._shown(text)

    def _shown(self, text: str) -> Iterator[ModelEvent]:
        if not self._constrained:
            yield TextDelta(text)
        elif begun := _BEGUN.match(self._text):
            start = max(begun.end(), self._sent)
            if start < len(self._text):
                yield CallDelta(0, begun[1], self._text[start:])
            self._sent = len(self._text)

    def turn(self, name: str) -> Turn:
        if self._stop is None:
            raise ModelFailed(f"{name}: the answer ended before it was complete", transient=True, kind="cut")
        if self._stop != "stop":
            return Turn(self._text, stop="max_tokens" if self._stop == "length" else "other", usage=self._usage)
        if not self._constrained:
            return Turn(self._text, usage=self._usage)
        try:
            said = json.loads(self._text)
        except (ValueError, RecursionError):
            return Turn(self._text, stop="other", usage=self._usage)
        if "answer" in said:
            return Turn(said["answer"], usage=self._usage)
        begun = _BEGUN.match(self._text)
        written = self._text[begun.end() :].rstrip()[:-1] if begun else json.dumps(said["arguments"])
        return Turn("", (Call("gguf", said["name"], written.rstrip()),), "tool_use", self._usage)
