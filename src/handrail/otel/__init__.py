"""OpenTelemetry spans for calls, runs and requests to a model: `Session(…, tracing=Tracing())`."""

try:
    import opentelemetry.trace  # noqa: F401 - to say what to install
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "handrail.otel needs opentelemetry-api: pip install 'handrail[otel]' opentelemetry-sdk", name=error.name
    ) from None

from handrail.otel.spans import Tracing as Tracing

__all__ = ["Tracing"]
