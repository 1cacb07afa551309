"""A HostedTool: a tool that a model's provider runs itself, beside those that a session runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from handrail.contract.errors import HandrailError, ToolFailed
from handrail.contract.result import Failure
from handrail.misuse import nearest, refuse
from handrail.schema.export import PROVIDERS, export
from handrail.toolkit.context import Context
from handrail.toolkit.tool import ALL, Tool


class HostedTool(Tool):
    """A tool such as a provider's web search: offered to that provider in its own words, and called by nobody else.

    A session answers a call of it with a refusal.

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

    __slots__ = ("definitions",)
    definitions: dict[str, dict[str, Any]]
    """Definition of the tool, by provider."""

    def __init__(self, name: str, definitions: Mapping[str, Mapping[str, Any]], *, description: str = "") -> None:
        checked = _checked(name, definitions)

        async def body(context: Context, arguments: Mapping[str, Any]) -> Any:
            raise ToolFailed(Failure("rejected", refusal(name)))

        options: Any = {"description": description, "callable_from": ALL - {"script"}}
        super().__init__(name, {"type": "object"}, body, **options)
        object.__setattr__(self, "definitions", checked)  # a Tool is frozen

    def __repr__(self) -> str:
        return f"<HostedTool {self.name}: {', '.join(sorted(self.definitions))}>"


def refusal(name: str) -> str:
    """The answer to a call of a hosted tool."""
    return f"{name} is run by the model's provider itself, and cannot be called here. Use another tool."


def is_for(provider: str, tool: Tool) -> bool:
    """Whether the tool is offered to this provider: one that providers run themselves, to those that have it."""
    return not isinstance(tool, HostedTool) or provider in tool.definitions


def exported(provider: str, tool: Tool, beside: Sequence[Tool] = ()) -> dict[str, Any]:
    """The tool's schema in this provider's form. Raises HandrailError if the provider would refuse it."""
    if isinstance(tool, HostedTool):
        if provider not in tool.definitions:
            raise HandrailError(f"{tool.name} is run by the provider itself, and {provider} has no definition of it")
        return dict(tool.definitions[provider])
    describe = tool.behaviour.describe
    description = tool.description if describe is None else describe(beside)
    return export(provider, tool.name, description, tool.parameters, tool.output)


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
