"""The driver keeps every promise that it claims."""

from handrail_plain import open_plain

from handrail.testing import driver_conformance

test_plain = driver_conformance(open_plain)
