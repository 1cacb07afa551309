"""Drivers: one file or package for each, and `open_sandbox`, which chooses among them."""
