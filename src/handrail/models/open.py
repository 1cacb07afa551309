"""Open a model by its name. A wrong name or option, or a missing package, is refused with what to write instead."""

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeVar

from handrail.contract.errors import HandrailError, MissingExtra
from handrail.contract.model import Model
from handrail.lazy import Lazy
from handrail.models._known import KNOWN

if TYPE_CHECKING:
    from handrail.models import gguf as _gguf
    from handrail.models import person as _person
    from handrail.models import providers as _providers
    from handrail.models import recorded as _recorded
    from handrail.models import text as _text
else:
    _gguf = Lazy("handrail.models.gguf")
    _person = Lazy("handrail.models.person")
    _providers = Lazy("handrail.models.providers")
    _recorded = Lazy("handrail.models.recorded")
    _text = Lazy("handrail.models.text")

T = TypeVar("T")
PROVIDERS: Final = tuple(sorted(KNOWN))
FORMS: Final = (
    *(f"{provider}:NAME" for provider in PROVIDERS),
    "openai-chat:NAME@http://HOST/v1", "gguf:PATH", "recorded:PATH", "person",
)  # fmt: skip
DEFAULTS: Final = {key: f"{name}:{model}" for name, each in KNOWN.items() for key, model in each.defaults.items()}
"""Default model, by the variable that holds a key."""
_ADDRESS: Final = re.compile(r"@(https?://.*)$", re.DOTALL)


def open_model(name: str, **options: Any) -> Model:
    """The model of this name: `anthropic:NAME`, `openai-chat:NAME@http://HOST/v1`, `recorded:PATH`, `person` and so on.

    Options: api_key, base_url, window (tokens), max_tokens (of an answer), temperature, thinking (True, False or an
    effort such as "high"), cache (True), timeout (600 seconds of silence), calls ("text" for a model that writes its
    calls as text), tokens (True keeps what a server of openai-chat sampled in `Turn.tokens`), and the settings that the
    provider calls its own. A recording has strict and secrets, a person ask_line. Nothing is sent before the model is
    asked.

    Raises HandrailError for a wrong name or option, a missing key, and a package that is not installed.

    Example:
        ```python
        from handrail.models import open_model

        print(open_model("openai-chat:qwen3@http://127.0.0.1:8080/v1", window=32_000).window)
        #> 32000
        ```
    """
    calls = options.pop("calls", "native")
    if calls not in ("native", "text"):
        raise HandrailError(f"calls is {calls!r}; it is 'native' or 'text'")
    provider, _, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
    model: Model
    if provider == "recorded" and rest:
        model = _recorded.Recorded(rest, **_only(name, options, "strict", "secrets"))
    elif provider == "gguf" and rest:
        model = _installed(name, "local", lambda: _gguf.Gguf)(rest, **options)
    elif name == "person":
        model = _person.Person(**_only(name, {"ask_line": input, **options}, "ask_line"))
    elif provider in PROVIDERS and _ADDRESS.sub("", rest).strip():
        model = _at_provider(name, provider, rest, options)
    else:
        raise HandrailError(_wrong_name(name, provider, rest))
    return _text.TextCalls(model) if calls == "text" else model


def _at_provider(name: str, provider: str, rest: str, options: dict[str, Any]) -> Model:
    if KNOWN[provider].has_address and "@" in rest[1:] and not _ADDRESS.search(rest):
        given = rest[1:].partition("@")[2]
        raise HandrailError(f"{name}: {given!r} is not an address; write {provider}:NAME@http://HOST/v1")
    if address := _ADDRESS.search(rest):
        if options.get("base_url"):
            raise HandrailError(f"{name}: the address is given twice, in the name and as base_url; leave one out")
        options["base_url"] = address[1]
    connect = _installed(name, "models", lambda: _providers.connect)
    return connect(provider, _ADDRESS.sub("", rest), name=name, **options)


def _installed(name: str, extra: str, load: Callable[[], T]) -> T:
    """The value that `load` returns. Raises HandrailError if a package of the extra is missing."""
    try:
        return load()
    except ImportError as error:
        raise MissingExtra(f"{name} needs the extra {extra!r}", extra) from error


def _only(name: str, options: dict[str, Any], *known: str) -> dict[str, Any]:
    if wrong := [key for key in options if key not in known]:
        raise HandrailError(f"{name} has no option {wrong[0]!r}; it has {', '.join(known)}")
    return options


def _wrong_name(name: object, provider: str, rest: str) -> str:
    said = f"{name!r} is not the name of a model"
    if provider in PROVIDERS:
        return f"{said}: write the model after the colon, as in {provider}:NAME"
    if not rest and (
        known := next((kind for kind, each in KNOWN.items() if each.begins and re.match(each.begins, provider)), "")
    ):
        return f"{said}; did you mean {known}:{name}? Names are {', '.join(FORMS)}."
    near = next(iter(get_close_matches(provider.lower(), (*PROVIDERS, "gguf", "recorded", "person"), n=1)), "")
    hint = f"; did you mean {near}{'' if near == 'person' else ':' + (rest or 'NAME')}?" if near else "."
    return f"{said}{hint} Names are {', '.join(FORMS)}."
