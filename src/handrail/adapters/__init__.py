"""Handrail inside other frameworks: each module gives one of them a session or a sandbox, in its own form."""
