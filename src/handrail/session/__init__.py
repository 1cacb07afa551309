"""A Session: the only way to call tools, and the transcript of every call."""
