"""Bytes that are kept beside the conversation: stored once, named by their content, read by range."""
