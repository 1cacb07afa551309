"""The conformance kit as tests of pytest: one for each check."""

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from handrail.contract.driver import Driver, Feature
from handrail.lazy import Lazy

if TYPE_CHECKING:
    import pytest

    from handrail.testing import conformance as _conformance
else:  # a program that uses the fakes needs neither
    pytest = Lazy("pytest")
    _conformance = Lazy("handrail.testing.conformance")

NOT_CLAIMED: Final = "the driver does not claim this"


def driver_conformance(
    opener: Callable[..., Awaitable[Driver]], *, only: Collection[Feature | str] | None = None
) -> Callable[..., None]:
    """Make a pytest test function that puts a driver through the conformance kit.

    Give the function a name that begins with `test`. A check fails where the driver breaks a promise that it claims.
    A check is skipped, with the reason, where the promise is neither claimed nor kept, or cannot be tried here.

    Example:
        ```python
        async def open_mine(**options: object) -> Driver:
            return MemoryDriver()

        test_my_driver = driver_conformance(open_mine, only=["files"])
        ```
    """
    names = [check.name for check in _conformance.chosen(only)]
    mark = pytest.mark.parametrize("name", names, ids=[name.replace(" ", "_") for name in names])

    def test(name: str) -> None:
        verdict = anyio.run(partial(_conformance.conform, opener, only=[name], workers=1))
        (guarantee,) = verdict.guarantees.values()
        (found,) = guarantee.checks
        if found.not_tried:
            pytest.skip(found.not_tried)
        if guarantee.standing == "unclaimed":
            pytest.skip(f"{NOT_CLAIMED}: {found.problem}")
        if found.problem:
            pytest.fail(f"{found.check.feature} is claimed and broken: {name}\n{found.problem}", pytrace=False)

    marked: Any = mark(test)
    return marked  # type: ignore[no-any-return]
