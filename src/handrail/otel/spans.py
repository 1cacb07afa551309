"""Spans by OpenTelemetry. A fault of the tracer, of a processor or of an exporter never changes what a call answers."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from opentelemetry.context import Context, attach, create_key, detach, get_value, set_value
from opentelemetry.trace import (
    INVALID_SPAN,
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_tracer,
    set_span_in_context,
)

from handrail.contract.errors import describe_error
from handrail.contract.model import Turn
from handrail.contract.result import Result
from handrail.log import report, traceback_of, without_secrets
from handrail.misuse import expect, explains_misuse, refuse
from handrail.otel import _content, _names
from handrail.toolkit.gate import Next, Step
from handrail.toolkit.tracing import Ended, TracedAgent

E = TypeVar("E", bound=Ended)
Attributes = dict[str, Any]
NAME_LIMIT: Final = 200
"""Length of a tool's name, a call's id and a model's name, in characters. A model may send any."""
FINISHED: Final = frozenset({"done", "asked_user"})
"""Reasons for the end of a run that are not errors."""
_CALL: Final = create_key("handrail-call")
"""The call whose body runs in the current context."""


@explains_misuse
class Tracing:
    """Spans for a session: `Session(…, tracing=Tracing())`. Sessions may share one.

    Args:
        tracer_provider: where spans go; the program's global one if None.
        content: whether spans also contain what was said: arguments, results, messages, errors and tracebacks.

    Example:
        ```python
        from handrail.otel import Tracing

        def add(a: int, b: int = 1) -> int:
            "Add two numbers."
            return a + b

        async with Session([add], tracing=Tracing()) as session:  # spans go to the program's tracer provider
            print((await session.call("add", {"a": 41})).value)
        #> 42
        ```
    """

    def __init__(self, tracer_provider: TracerProvider | None = None, *, content: bool = False) -> None:
        if tracer_provider is not None and not callable(getattr(tracer_provider, "get_tracer", None)):
            refuse("Tracing.tracer_provider", tracer_provider, "a TracerProvider, or leave it out for the global one")
        expect("Tracing.content", content, bool, "True or False")
        self._tracer = get_tracer("handrail", tracer_provider=tracer_provider)
        self._content = content
        self._contexts: dict[tuple[str, str], Context] = {}
        """Contexts of the running calls, by call id."""

    async def call(self, step: Step, proceed: Next) -> Result:
        """The gate: a span around all other gates and the body."""
        call, session = step.call, step.context.session_id
        name = _short(call.name)
        attributes: Attributes = {
            _names.OPERATION: _names.EXECUTE_TOOL,
            _names.TOOL_NAME: name,
            _names.TOOL_CALL_ID: _short(call.id),
            _names.TOOL_TYPE: _names.FUNCTION,
            _names.CONVERSATION: _short(session),
        }
        if step.tool.description:
            attributes[_names.TOOL_DESCRIPTION] = _content.text(step.tool.description)
        key = (session, call.id)
        context = self._parents_context(session, call.parent)
        with self._span(f"{_names.EXECUTE_TOOL} {name}", SpanKind.INTERNAL, attributes, context, key) as span:
            result = await proceed(step)
            _describe(self._describe_call, span, step, result)
        return result

    async def run(self, agent: TracedAgent, prompt: str, proceed: Callable[[], Awaitable[E]]) -> E:
        before = agent.usage
        attributes = _about(agent, _names.INVOKE_AGENT)
        title = f"{_names.INVOKE_AGENT} {_short(agent.name)}".strip()
        with self._span(title, SpanKind.INTERNAL, attributes) as span:
            ended = await proceed()
            now = agent.usage
            _describe(_count, span, now.input_tokens - before.input_tokens, now.output_tokens - before.output_tokens)
            _describe(self._describe_run, span, prompt, ended)
        return ended

    async def ask(self, agent: TracedAgent, proceed: Callable[[], Awaitable[Turn]]) -> Turn:
        attributes = _about(agent, _names.CHAT)
        with self._span(f"{_names.CHAT} {attributes[_names.MODEL]}", SpanKind.CLIENT, attributes) as span:
            _describe(self._describe_question, span, agent)
            turn = await proceed()
            _describe(self._describe_turn, span, turn)
        return turn

    def _describe_call(self, span: Span, step: Step, result: Result) -> None:
        if not result.ok:
            self._fail(span, result.kind, result.message, step.traceback)
        if self._content:
            _put(span, _names.TOOL_ARGUMENTS, _content.arguments_text(step.arguments or step.call.arguments))
            _put(span, _names.TOOL_RESULT, _content.result_text(step.call.name, result))

    def _describe_question(self, span: Span, agent: TracedAgent) -> None:
        if self._content:
            if agent.system:
                _put(span, _names.SYSTEM, _content.system_text(agent.system))
            _put(span, _names.INPUT_MESSAGES, _content.input_text(agent.messages))

    def _describe_turn(self, span: Span, turn: Turn) -> None:
        _count(span, turn.usage.input_tokens, turn.usage.output_tokens)
        span.set_attribute(_names.FINISH_REASONS, [_content.FINISH[turn.stop]])
        if self._content:
            _put(span, _names.OUTPUT_MESSAGES, _content.output_text(turn))

    def _describe_run(self, span: Span, prompt: str, ended: Ended) -> None:
        if ended.reason not in FINISHED:
            self._fail(span, ended.reason, ended.text)
        if self._content:
            _put(span, _names.INPUT_MESSAGES, _content.spoken("user", prompt))
            _put(span, _names.OUTPUT_MESSAGES, _content.spoken("assistant", ended.text))

    def _fail(self, span: Span, kind: str, message: str, traceback: str = "") -> None:
        """Mark the span as failed. Messages and tracebacks can contain anything, so they are content."""
        _put(span, _names.ERROR_TYPE, kind)
        span.set_status(Status(StatusCode.ERROR, without_secrets(_content.text(message)) if self._content else None))
        if traceback and self._content:
            span.add_event(_names.EXCEPTION, {_names.STACKTRACE: traceback})

    def _parents_context(self, session: str, parent: str | None) -> Context | None:
        """The context of the call that makes this one, unless this is its body's own; None keeps the current one."""
        if parent is None or get_value(_CALL) == (session, parent):
            return None
        return self._contexts.get((session, parent))

    @contextmanager
    def _span(
        self, name: str, kind: SpanKind, attributes: Attributes, context: Context | None = None,
        call: tuple[str, str] | None = None,
    ) -> Iterator[Span]:  # fmt: skip
        """A span that is the current one in the block, and in every task and thread that the block starts."""
        try:
            clean = {key: without_secrets(value) for key, value in attributes.items()}
            span = self._tracer.start_span(without_secrets(name), context, kind, clean)
        except Exception as error:  # noqa: BLE001 - a sampler or a processor may raise anything
            report("The tracer", error)
            yield INVALID_SPAN
            return
        inside = set_span_in_context(span, context)
        if call is not None:
            self._contexts[call] = inside = set_value(_CALL, call, inside)
        token = attach(inside)
        try:
            yield span
            detach(token)
        except GeneratorExit:  # the coroutine is thrown away, in whatever context
            _describe(self._fail, span, "cancelled", "")
            raise
        except Exception as error:
            detach(token)
            _describe(self._fail, span, _kind_of(error), describe_error(error), traceback_of(error))
            raise
        except BaseException:
            detach(token)
            _describe(self._fail, span, "cancelled", "")
            raise
        finally:
            if call is not None:
                del self._contexts[call]
            _end(span)


def _describe(how: Callable[..., None], span: Span, *what: Any) -> None:
    """Call `how` if anybody will see the span, and log what it raises."""
    try:
        if span.is_recording():
            how(span, *what)
    except Exception as error:  # noqa: BLE001 - the span lacks an attribute; the call goes on
        report("The tracer", error)


def _put(span: Span, name: str, text: str) -> None:
    span.set_attribute(name, without_secrets(text))


def _end(span: Span) -> None:
    try:
        span.end()
    except Exception as error:  # noqa: BLE001 - a processor may raise anything
        report("The tracer", error)


def _about(agent: TracedAgent, operation: str) -> Attributes:
    model = agent.model
    name, provider = getattr(model, "name", None), getattr(model, "provider", None)
    attributes: Attributes = {
        _names.OPERATION: operation,
        _names.CONVERSATION: _short(agent.session.id),
        _names.MODEL: _short(name if isinstance(name, str) and name else type(model).__name__),
    }
    if agent.name:
        attributes[_names.AGENT_NAME] = _short(agent.name)
    return attributes | ({_names.PROVIDER: _short(provider)} if isinstance(provider, str) and provider else {})


def _count(span: Span, input_tokens: int, output_tokens: int) -> None:
    span.set_attribute(_names.INPUT_TOKENS, input_tokens)
    span.set_attribute(_names.OUTPUT_TOKENS, output_tokens)


def _kind_of(error: Exception) -> str:
    kind = getattr(error, "kind", None)
    return kind if isinstance(kind, str) else type(error).__name__


def _short(text: str) -> str:
    return _content.text(text[:NAME_LIMIT])
