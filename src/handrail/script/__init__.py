"""Scripts of a model that call tools: what is checked before, the interpreter, and the channel (CHANNEL.md)."""
