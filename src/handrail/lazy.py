"""Name a module now and load it when something of it is first used, so that importing Handrail stays cheap."""

from importlib import import_module
from typing import Any


class Lazy:
    """Stands for a module; what was used of it once is at hand afterwards.

    For what most programs that import Handrail never touch, or touch late. docs/decisions/001 says why.
    """

    def __init__(self, name: str) -> None:
        self.__dict__[""] = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self.__dict__[""]), attribute)
        self.__dict__[attribute] = value
        return value
