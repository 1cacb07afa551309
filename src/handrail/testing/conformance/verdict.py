"""The findings of the kit about a driver, promise by promise."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from handrail.contract.driver import Feature
from handrail.testing.conformance.check import Check, Seen

Standing = Literal["kept", "broken", "untried", "unclaimed", "unclaimed_but_kept"]
FEATURES: Final[tuple[Feature, ...]] = get_args(Feature)


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """The result of a check: its evidence, its exception, or the reason why it was not tried."""

    check: Check
    seen: Seen | None = None
    """The evidence; None if the check was not tried, or raised."""
    not_tried: str = ""
    error: str = ""
    """The exception of the check, because the driver broke its contract."""
    seconds: float = 0.0
    claimed: bool = True
    """Whether the driver claims the promise."""

    @property
    def tried(self) -> bool:
        return not self.not_tried

    @property
    def kept(self) -> bool:
        return self.seen is not None and self.seen.kept

    @property
    def problem(self) -> str:
        """The problem in one line; empty if the check holds or was not tried."""
        if self.kept or not self.tried:
            return ""
        if self.seen is None:
            return self.error
        seen = self.seen
        if not seen.started:
            return f"it did not run: {_short(seen.command)}, which gave {_short(seen.got)}"
        return f"{_short(seen.command)}: expected {_short(seen.expected)}, got {_short(seen.got)}"


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= 160 else f"{text[:150]} … ({len(text)} characters)"


@dataclass(frozen=True, slots=True)
class GuaranteeVerdict:
    """A promise's verdict. `broken` is a claim that does not hold, `untried` a claim that cannot be checked here."""

    standing: Standing
    checks: tuple[CheckVerdict, ...]

    @property
    def failed(self) -> tuple[CheckVerdict, ...]:
        return tuple(check for check in self.checks if check.tried and not check.kept)


@dataclass(frozen=True, slots=True)
class DriverVerdict:
    """All findings of the kit about a driver."""

    driver: str
    guarantees: Mapping[Feature, GuaranteeVerdict]
    seconds: float = 0.0

    @property
    def broken(self) -> tuple[Feature, ...]:
        """The promises that are claimed and not kept."""
        return tuple(feature for feature, guarantee in self.guarantees.items() if guarantee.standing == "broken")

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of all checks that do not hold, of promises that are not claimed too."""
        return tuple(it.check.name for guarantee in self.guarantees.values() for it in guarantee.failed)

    def to_data(self) -> dict[str, Any]:
        """Return the verdict as JSON data."""
        guarantees = {
            feature: {"standing": guarantee.standing, "checks": [_data(check) for check in guarantee.checks]}
            for feature, guarantee in self.guarantees.items()
        }
        return {"driver": self.driver, "seconds": round(self.seconds, 3), "promises": guarantees}


def _data(verdict: CheckVerdict) -> dict[str, Any]:
    outcome = "kept" if verdict.kept else "not_tried" if not verdict.tried else "broken"
    data: dict[str, Any] = {"name": verdict.check.name, "outcome": outcome, "seconds": round(verdict.seconds, 3)}
    if verdict.seen is not None:
        data["command"] = verdict.seen.command
    reason = verdict.not_tried or verdict.problem
    return {**data, "reason": reason} if reason else data


def summed_up(driver: str, claimed: Iterable[Feature], found: Iterable[CheckVerdict], seconds: float) -> DriverVerdict:
    """Sum up the checks. A claim without a possible check is neither kept nor broken."""
    claims, by_feature = frozenset(claimed), dict[Feature, list[CheckVerdict]]()
    for verdict in found:
        by_feature.setdefault(verdict.check.feature, []).append(verdict)
    guarantees = {
        feature: GuaranteeVerdict(_standing(feature in claims, by_feature[feature]), tuple(by_feature[feature]))
        for feature in FEATURES
        if feature in by_feature
    }
    return DriverVerdict(driver, guarantees, seconds)


def _standing(claimed: bool, checks: Iterable[CheckVerdict]) -> Standing:
    tried = [check for check in checks if check.tried]
    holds = all(check.kept for check in tried)
    if claimed:
        if not tried:
            return "untried"
        return "kept" if holds else "broken"
    return "unclaimed_but_kept" if tried and holds else "unclaimed"
