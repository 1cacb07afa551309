"""The loop that lets a model use tools."""
