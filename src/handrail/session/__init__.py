"""A Session: the only door to the tools, and the transcript of what went through it."""
