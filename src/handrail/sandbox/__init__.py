"""A place to work in: commands with limits that hold, jobs, files and the lane, over any driver."""

from handrail.sandbox.completed import Caps, Completed, EndedBy, Late
from handrail.sandbox.job import Job
from handrail.sandbox.lane import Lane, Place
from handrail.sandbox.sandbox import Sandbox
from handrail.sandbox.spool import Spool

__all__ = ["Caps", "Completed", "EndedBy", "Job", "Lane", "Late", "Place", "Sandbox", "Spool"]
