"""A HostedTool: a tool that a model's provider runs itself, beside those that a session runs."""

from collections.abc import Mapping
from typing import Any

from handrail.contract.errors import HandrailError, ToolFailed
from handrail.contract.result import Failure
from handrail.misuse import nearest, refuse
from handrail.schema.export import PROVIDERS
from handrail.toolkit.context import Context
from handrail.toolkit.tool import ALL, Tool


class HostedTool:
    """A tool such as a provider's web search: offered to that provider in its own words, and called by nobody else.

    Args:
        name: what it is called in the Toolbox.
        definitions: by provider, what goes into its requests as it is: `{"openai-responses": {"type": "web_search"}}`.
            A provider without a definition is not offered the tool.
        description: for people; providers have their own.

    Example:
        ```python
        search = HostedTool("web_search", {"openai-responses": {"type": "web_search"}})
        async with Session([search]) as session:
            print(session.schemas("openai-responses"))
            print(session.schemas("anthropic"))
        #> [{'type': 'web_search'}]
        #> []
        ```
    """

    def __init__(self, name: str, definitions: Mapping[str, Mapping[str, Any]], *, description: str = "") -> None:
        self.name, self.description = name, description
        self.definitions = _checked(name, definitions)

    def __repr__(self) -> str:
        return f"<HostedTool {self.name}: {', '.join(sorted(self.definitions))}>"

    def as_tool(self) -> Tool:
        """The Tool that stands for it; it answers that only the provider runs it."""

        async def body(context: Context, arguments: Mapping[str, Any]) -> Any:
            raise ToolFailed(Failure("rejected", refusal(self.name)))

        return Tool(
            self.name, {"type": "object"}, body, description=self.description, callable_from=ALL - {"script"},
            hosted=self.definitions,
        )  # fmt: skip


def refusal(name: str) -> str:
    """The answer to a call of a hosted tool."""
    return f"{name} is run by the model's provider itself, and cannot be called here. Use another tool."


def _checked(name: str, definitions: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    write = 'a definition for each provider, such as {"openai-responses": {"type": "web_search"}}'
    if not isinstance(definitions, Mapping) or not definitions:
        refuse(f"the definitions of {name}", definitions, write)
    known = [provider for provider in PROVIDERS if provider != "mcp"]
    for provider, definition in definitions.items():
        if provider not in known:
            raise HandrailError(f"tool {name}: there is no provider {provider!r}; {nearest(str(provider), known)}")
        if not isinstance(definition, Mapping):
            refuse(f"the definition of {name} for {provider}", definition, write)
    return {provider: dict(definition) for provider, definition in definitions.items()}
