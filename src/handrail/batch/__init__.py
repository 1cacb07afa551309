"""Many tasks, each by an agent in a fresh sandbox: resumable, checked, and honest about who caused a failure."""

from handrail.batch.batch import Crew as Crew
from handrail.batch.batch import run_batch as run_batch
from handrail.batch.here import Here as Here
from handrail.batch.task import Done as Done
from handrail.batch.task import Lost as Lost
from handrail.batch.task import Task as Task
from handrail.batch.totals import Totals as Totals
from handrail.batch.work import do_task as do_task

__all__ = ["Crew", "Done", "Here", "Lost", "Task", "Totals", "do_task", "run_batch"]
