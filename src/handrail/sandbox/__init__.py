"""A Sandbox: commands with enforced limits, jobs and files, over any driver."""

from handrail.sandbox._spool import Spool
from handrail.sandbox.completed import Completed, EndedBy, Late
from handrail.sandbox.job import Job
from handrail.sandbox.sandbox import Sandbox

__all__ = ["Completed", "EndedBy", "Job", "Late", "Sandbox", "Spool"]
