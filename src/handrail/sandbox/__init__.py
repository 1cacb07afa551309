"""A place to work in: commands with limits that hold, jobs and files, over any driver."""

from handrail.sandbox.completed import Caps, Completed, EndedBy, Late
from handrail.sandbox.job import Job
from handrail.sandbox.sandbox import Sandbox
from handrail.sandbox.spool import Spool

__all__ = ["Caps", "Completed", "EndedBy", "Job", "Late", "Sandbox", "Spool"]
