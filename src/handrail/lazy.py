"""Import a module when it is first used, so that a program's first answer comes sooner."""

import sys
from importlib import import_module
from typing import Any, Final

EDGES: Final = (
    "handrail.__main__", "handrail.adapters", "handrail.batch", "handrail.cli", "handrail.mcp", "handrail.models",
    "handrail.otel",
)  # fmt: skip
"""Packages that need extras: load_all loads them only if the program already has."""
_named: set[str] = set()


class Lazy:
    """A stand-in for a module that many programs never use (docs/decisions/001). It caches the attributes it has given.

    Type checkers and import-linter must see the module too:

        if TYPE_CHECKING:
            from handrail.drivers import jail as _jail
        else:
            _jail = Lazy("handrail.drivers.jail")
    """

    def __init__(self, name: str) -> None:
        self.__dict__[""] = name  # under a key that no attribute of a module can have
        _named.add(name)

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self.__dict__[""]), attribute)
        self.__dict__[attribute] = value  # so that `__getattr__` is not called again for it
        return value


def load_all() -> None:
    """Load every module of Handrail now, and the modules that they load lazily."""
    _load_package("handrail")
    for name in sorted(_named):
        _load(name)


def _load_package(package: str) -> None:
    for found in import_module("pkgutil").iter_modules(import_module(package).__path__, f"{package}."):
        if _room(found.name) not in EDGES or _room(found.name) in sys.modules:
            _load(found.name)
            if found.ispkg:
                _load_package(found.name)


def _load(name: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("handrail") or (name.startswith("handrail") and _room(name) not in EDGES):
            raise  # only what an extra brings may be missing


def _room(name: str) -> str:
    return ".".join(name.split(".")[:2])
