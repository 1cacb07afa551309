"""Inside pydantic-ai: its agents use a session's tools, and its workspaces are our sandboxes."""

import pytest

from tests.adapters.drive_pydantic_ai import PydanticAI
from tests.adapters.scenarios import SCENARIOS, STREAMING, Scenario

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("scenario", [*SCENARIOS, *STREAMING], ids=lambda each: each.__name__)
async def test_an_agent_of_pydantic_ai_uses_the_tools_of_a_session(scenario: Scenario) -> None:
    await scenario(PydanticAI())
