"""Schemas: derived from functions, enforced on arguments, explained to models, exported to providers."""
