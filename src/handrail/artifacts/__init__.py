"""Bytes stored beside the conversation: named by their content, stored once, read by range."""
