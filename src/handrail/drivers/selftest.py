"""Find out by trying what a driver really enforces here, once per process and configuration."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from handrail.contract.driver import Driver


async def tested(name: str, opener: Callable[..., Awaitable[Driver]], options: Mapping[str, Any]) -> Driver:
    """Open the driver; its report says what was found. Raises Unavailable where it does not work at all."""
    return await opener(**options)
