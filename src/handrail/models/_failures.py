"""Turn a provider's error into one ModelFailed: what happened, and whether it may pass."""

import json
import re
import traceback
from collections.abc import Iterable
from typing import Any, Final

from pydantic_ai import exceptions as raised

from handrail.contract.errors import describe_error
from handrail.contract.model import FailedKind, ModelFailed

MAX_MESSAGE_CHARS: Final = 600
"""Length of the provider's message that is kept, in characters."""
KINDS: Final[tuple[tuple[type[Exception], FailedKind, bool, str], ...]] = (
    (raised.ModelContextWindowExceededError, "context", False, "the conversation is longer than the model can read"),
    (raised.ModelAuthenticationError, "key", False, "the key was refused; check api_key"),
    (raised.ModelNotFoundError, "no_such_model", False, "there is no such model, or the address is wrong"),
    (raised.ModelQuotaExceededError, "quota", False, "the account has no credit left"),
    (raised.ModelRateLimitError, "busy", True, "too many requests"),
    (raised.ModelUnavailableError, "busy", True, "the provider is overloaded or not available"),
    (raised.ModelServerError, "error", True, "the provider failed"),
    (raised.ModelRequestRejectedError, "error", False, "the provider refused the request"),
)
"""Kinds of errors, tried in order: the kind, whether it may pass, and what happened."""
_SECONDS: Final = re.compile(r"(\d+(?:\.\d+)?)s", re.ASCII)
UNREACHABLE: Final = "the provider could not be reached"
LATER: Final = frozenset({408, 409, 425})
"""HTTP statuses after which a retry may succeed."""


def failed(
    error: Exception, name: str, *, streaming: bool, secrets: Iterable[str] = (), address: str = ""
) -> ModelFailed:
    """The failure of a request to the model `name`. `streaming`: whether its answer had begun.

    `address` is that of a server which the person runs.
    """
    if isinstance(error, ModelFailed):
        return error
    kind, transient, what = _judged(error, streaming)
    if what == UNREACHABLE and address:
        what = f"no server answers at {address}; start it, or write NAME@http://HOST/v1 for another"
    text = f"{name}: {what}: {_said(error)}"
    for secret in secrets:
        text = text.replace(secret, "[api_key]")
    retry_after = getattr(error, "retry_after", None)
    if retry_after is None:
        retry_after = _asked_to_wait(vars(error).get("body"))
    made = ModelFailed(text, transient=transient, retry_after=retry_after, kind=kind)
    whole = "".join(traceback.format_exception(error))
    made.__cause__ = None if any(secret in whole for secret in secrets) else error  # a traceback would show it
    return made


def _judged(error: Exception, streaming: bool) -> tuple[FailedKind, bool, str]:
    for family, kind, transient, what in KINDS:
        if isinstance(error, family):
            return kind, transient, what
    if isinstance(error, raised.ModelHTTPError):
        return "error", error.status_code in LATER, "the provider refused the request"
    if isinstance(error, raised.ModelTimeoutError):
        return ("cut" if streaming else "error"), True, "the provider was silent for too long"
    if streaming and isinstance(error, raised.ModelAPIError | raised.UnexpectedModelBehavior | OSError | ValueError):
        return "cut", True, "the answer ended before it was complete"
    if isinstance(error, raised.ModelConnectionError | OSError):
        return "error", True, UNREACHABLE
    if isinstance(error, raised.ModelAPIError | raised.UnexpectedModelBehavior):
        return "error", True, "the answer could not be read"
    return "error", False, "the request failed"


def _said(error: Exception) -> str:
    """The provider's message about the error, without the rest of its answer."""
    status = f"HTTP {error.status_code}" if isinstance(error, raised.ModelHTTPError) else ""
    body: Any = vars(error).get("body")
    message = _message_in(body) or (json.dumps(body, ensure_ascii=False) if body and status else "")
    text = " ".join(word for word in (status, message) if word) or describe_error(error)
    return text if len(text) <= MAX_MESSAGE_CHARS else text[:MAX_MESSAGE_CHARS] + " …"


def _asked_to_wait(body: Any) -> float | None:
    """Seconds to wait by Google's answer, which has them in its body instead of a header: `"retryDelay": "2s"`."""
    error = body.get("error") if isinstance(body, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and (found := _SECONDS.fullmatch(delay)):
            return float(found[1])
    return None


def _message_in(body: Any) -> str:
    for _ in range(3):  # {"error": {"message": …}}, with or without the outer object
        if isinstance(body, dict):
            if isinstance(body.get("message"), str):
                return str(body["message"])
            body = body.get("error")
    return body if isinstance(body, str) else ""
