"""Names, options and packages: what is wrong is said, with what is right."""

import re
import subprocess
import sys

import pytest

from handrail import HandrailError
from handrail.models import open_model


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("antropic:claude", "did you mean anthropic:claude?"),
        ("OpenAI:gpt", "did you mean openai:gpt?"),
        ("gemini:x", "google:NAME"),
        ("ollama", "ollama:NAME"),
        ("ollama:", "ollama:NAME"),
        ("openai:@http://localhost", "openai:NAME"),
        ("", "anthropic:NAME"),
        (None, "anthropic:NAME"),
        (7, "anthropic:NAME"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest_and_the_right_ones(name: object, hint: str) -> None:
    with pytest.raises(HandrailError, match=re.escape(hint)):
        open_model(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["max_token", "anthropic_thinking", "max_retries", "request_timeout"])
def test_an_unknown_option_is_refused_with_the_known_ones(option: str) -> None:
    with pytest.raises(HandrailError, match=f"{option}.*max_tokens.*temperature.*openai_"):
        open_model("openai:gpt-5", api_key="k", **{option: 1})


def test_options_of_the_provider_are_passed_on() -> None:
    open_model("openai:gpt-5", api_key="k", temperature=0.5, thinking="high", openai_store=False)


def test_a_missing_key_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, key in (("anthropic:x", "ANTHROPIC"), ("openai:x", "OPENAI"), ("google:x", "GEMINI")):
        with pytest.raises(HandrailError, match=f"{key}_API_KEY"):
            open_model(name)


def test_an_address_is_given_once() -> None:
    with pytest.raises(HandrailError, match="twice"):
        open_model("openai-chat:x@http://localhost/v1", base_url="http://localhost/v1")


def test_the_name_of_a_model_may_have_colons_and_an_at_sign() -> None:
    assert open_model("ollama:qwen3:8b@http://localhost:1").name == "ollama:qwen3:8b@http://localhost:1"  # type: ignore[attr-defined]
    open_model("openai-chat:@team/model", api_key="k")
    open_model("anthropic:model@20260101", api_key="k")


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def test_importing_models_imports_no_provider() -> None:
    heavy = "{'pydantic_ai', 'openai', 'anthropic', 'google.genai', 'httpx2', 'pydantic'}"
    assert run(f"import sys, handrail.models; print({heavy} & set(sys.modules))") == "set()\n"


def test_without_the_extra_the_error_says_what_to_install() -> None:
    printed = run(
        "import sys\nsys.modules['pydantic_ai'] = None\nfrom handrail.models import open_model\n"
        "try:\n    open_model('openai:x', api_key='k')\nexcept Exception as error:\n"
        "    print(type(error).__name__, error)"
    )
    assert printed.startswith("MissingExtra")
    assert "pip install 'handrail[models]'" in printed


def test_without_the_local_extra_the_error_says_what_to_install() -> None:
    printed = run(
        "import sys\nsys.modules['xllamacpp'] = None\nfrom handrail.models import open_model\n"
        "try:\n    open_model('gguf:x')\nexcept Exception as error:\n    print(error)"
    )
    assert "gguf:x needs the extra 'local': pip install 'handrail[local]'" in printed


@pytest.mark.parametrize(("first", "loaded"), [("handrail", False), ("handrail.models", True)])
def test_loading_all_at_once_loads_what_needs_extras_only_where_the_program_has(first: str, loaded: bool) -> None:
    modules = ["handrail.drivers.posix", "handrail.adapters.messages", "handrail.models.providers", "pydantic_ai"]
    printed = run(
        f"import {first}, sys\nfrom handrail.lazy import load_all\nload_all()\nload_all()\n"
        f"print([name in sys.modules for name in {modules}])"
    )
    assert printed == f"{[True, False, loaded, loaded]}\n"


def test_without_the_extra_every_other_module_can_still_be_loaded_at_once() -> None:
    assert (
        run(
            "import sys\nsys.modules |= dict.fromkeys(['pydantic_ai', 'httpx2', 'xllamacpp'])\nimport handrail.models\n"
            "from handrail.lazy import load_all\nload_all()\nprint('handrail.models.open' in sys.modules)"
        )
        == "True\n"
    )
