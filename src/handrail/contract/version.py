"""The version of Handrail."""

__version__ = "0.1.0"
