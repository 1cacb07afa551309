"""Places to run: each driver is one small file."""
