"""The places in which scripts are tried: the guard compiled, and a world on each driver that runs commands."""

from tests.tools.conftest import _guard, real

__all__ = ["_guard", "real"]
