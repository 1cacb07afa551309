"""An Agent: a model that works with the tools of a session until it is done."""

from handrail.agent.agent import MAX_ROUNDS as MAX_ROUNDS
from handrail.agent.agent import Agent as Agent
from handrail.agent.loop import Outcome as Outcome

__all__ = ["MAX_ROUNDS", "Agent", "Outcome"]
