"""The model of a conversation: the one the person names, the configured one, or one whose key is set here."""

import os
from collections.abc import Callable
from typing import Any, Final

from handrail.cli._app import Advice
from handrail.cli._installed import EXTRA, install_command
from handrail.contract.model import Model
from handrail.models.open import DEFAULTS, PROVIDERS, open_model

HOW_TO_GET_ONE: Final = """\
no model is named, none is configured, and there is no key in the environment.
  hosted: set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or add --model anthropic:NAME
  local:  start a server, and add --model ollama:NAME or --model openai-chat:NAME@http://HOST/v1
  a file: {install}, and add --model gguf:PATH
  none:   `handrail demo` plays a scripted one; --model person lets you type the calls yourself"""


class NoModel(Advice):
    """Nobody said which model, and no key tells."""

    def __init__(self) -> None:
        super().__init__(HOW_TO_GET_ONE.format(install=install_command(f"{EXTRA},local")))


def model_name(named: str | None, configured: str | None = None) -> str:
    """The name for `open_model`. Raises NoModel."""
    by_key = (name for variable, name in DEFAULTS.items() if os.environ.get(variable, "").strip())
    name = named or configured or next(by_key, None)
    if name is None:
        raise NoModel
    return name


def open_named(name: str, base_url: str | None = None, ask_line: Callable[[str], str | None] | None = None) -> Model:
    """The model of this name, at the configured address; a person answers by `ask_line`."""
    options: dict[str, Any] = {"ask_line": ask_line} if name == "person" and ask_line is not None else {}
    if base_url is not None and name.partition(":")[0] in PROVIDERS and "@http" not in name:
        options["base_url"] = base_url
    return open_model(name, **options)
