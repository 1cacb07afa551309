"""Handrail inside other frameworks: each module gives one of them a session or a sandbox, in its own form."""

from handrail.adapters.messages import answers_for as answers_for
from handrail.adapters.messages import calls_from as calls_from
from handrail.adapters.tools_from import tools_from as tools_from

__all__ = ["answers_for", "calls_from", "tools_from"]
