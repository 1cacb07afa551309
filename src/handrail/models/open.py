"""Open a model by its name, and say what is right where a name, an option or an installed package is wrong."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from handrail.contract.errors import HandrailError
from handrail.contract.model import Model
from handrail.lazy import Lazy

if TYPE_CHECKING:
    from handrail.models import providers as _providers
else:
    _providers = Lazy("handrail.models.providers")

PROVIDERS: Final = ("anthropic", "google", "ollama", "openai", "openai-chat")
FORMS: Final = (*(f"{provider}:NAME" for provider in PROVIDERS), "openai-chat:NAME@http://HOST/v1")
_ADDRESS: Final = re.compile(r"@(https?://.*)$", re.DOTALL)


def open_model(name: str, **options: Any) -> Model:
    """The model of this name, such as `anthropic:NAME`, `ollama:NAME` or `openai-chat:NAME@http://HOST/v1`.

    Options: api_key, base_url, window (tokens), max_tokens (of an answer), temperature, thinking (True, False or an
    effort such as "high"), cache (True), timeout (600 seconds of silence), and the settings that the provider calls
    its own. Nothing is sent before the model is asked.

    Raises HandrailError for a wrong name or option, a missing key, and a package that is not installed.
    """
    provider, colon, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
    address = _ADDRESS.search(rest)
    model, base_url = (rest[: address.start()], address[1]) if address else (rest, None)
    if provider not in PROVIDERS or not model.strip():
        raise HandrailError(_wrong_name(name, provider, colon))
    if base_url and options.get("base_url"):
        raise HandrailError(f"{name}: the address is given twice, in the name and as base_url; leave one out")
    if base_url:
        options["base_url"] = base_url
    try:
        connect = _providers.connect
    except ImportError as error:
        raise HandrailError(
            f"{name} needs the package {error.name or 'pydantic-ai-slim'}: pip install 'handrail[models]'"
        ) from error
    return connect(provider, model, name=name, **options)


def _wrong_name(name: object, provider: str, colon: str) -> str:
    said = f"{name!r} is not the name of a model"
    if provider in PROVIDERS:
        return f"{said}: write the model after the colon, as in {provider}:NAME"
    near = nearest(provider, PROVIDERS)
    hint = f"; did you mean {near}:{(str(name).partition(':')[2] if colon else '') or 'NAME'}?" if near else ""
    return f"{said}{hint} Names are {', '.join(FORMS)}."


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that looks most like this one; empty if none does."""
    return next(iter(get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)), "")
