"""Check that a driver fulfils the contract, and find its report."""

from typing import Final, get_args

from handrail.contract.driver import Driver, Feature, Guarantee, Report
from handrail.contract.errors import BrokenDriver

_METHODS: Final = ("start", "read", "write", "stat", "list", "make_dir", "remove", "close")
_FEATURES: Final = frozenset(get_args(Feature))


def check_driver(driver: Driver) -> None:
    """Raise BrokenDriver, naming every missing method or unknown feature."""
    missing = [name for name in _METHODS if not callable(getattr(driver, name, None))]
    if missing:
        raise BrokenDriver(f"{type(driver).__name__} is not a Driver: missing {', '.join(missing)}.")
    features = getattr(driver, "features", None)
    if not isinstance(features, frozenset | set):
        raise BrokenDriver(f"{type(driver).__name__}.features is {features!r}; it is a frozenset of feature names.")
    unknown = sorted(str(feature) for feature in features - _FEATURES)
    if unknown:
        raise BrokenDriver(f"{type(driver).__name__}.features has unknown names: {', '.join(unknown)}.")


def report_of(driver: Driver) -> Report:
    """Return the driver's own report; without one, its features are the report."""
    report = getattr(driver, "report", None)
    if isinstance(report, Report):
        return report
    name = getattr(driver, "name", None) or type(driver).__name__
    guarantees = (Guarantee(feature, "enforced") for feature in sorted(driver.features))
    return Report(str(name), tuple(guarantees))
