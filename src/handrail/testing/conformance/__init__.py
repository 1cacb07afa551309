"""The conformance kit: every promise of a driver as checks that can be seen to fail."""

from handrail.testing.conformance._conform import CHECKS, chosen, conform
from handrail.testing.conformance.check import Check, NotTried, Seen
from handrail.testing.conformance.fixture import Fixture, Open, Opener
from handrail.testing.conformance.verdict import CheckVerdict, DriverVerdict, GuaranteeVerdict

__all__ = [
    "CHECKS",
    "Check",
    "CheckVerdict",
    "DriverVerdict",
    "Fixture",
    "GuaranteeVerdict",
    "NotTried",
    "Open",
    "Opener",
    "Seen",
    "chosen",
    "conform",
]  # fmt: skip
